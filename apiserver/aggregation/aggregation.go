// Package aggregation serves the API groups of other API servers as if they were this one's own (APIService, the "aggregation layer"), and keeps an
// APIService for each group version that this server serves itself.
//
// For a group version that an APIService gives to a Service, requests are passed on to a ready endpoint of it, with the user in request headers that the
// other server believes because of this server's front-proxy certificate. What the other server says of itself (discovery, OpenAPI) is fetched in
// the background and kept.
//
// Guarantees: a server that is dead or slow delays nobody but those who ask for its own objects, and these are told why at once. Nothing that a
// client sends can change who the other server takes it for. While there is no such APIService the package costs one atomic load a request.
//
// Checks, fetches and writes happen in goroutines of [Aggregator.Run]; everything else is safe for concurrent use. The package does not authorize: the gate
// does that before it asks.
package aggregation

import (
	"context"
	"crypto/tls"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/internal/follow"
	"github.com/yare-project/yare/internal/resource"
	"github.com/yare-project/yare/kind"
)

type apiService = apiregistrationv1.APIService

// apiServices is where APIServices are.
var apiServices = resource.Ref{GroupVersionResource: apiregistrationv1.SchemeGroupVersion.WithResource("apiservices")}

// Gate is how APIServices, Services and EndpointSlices are read and APIServices written: the server's own in-process transport.
type Gate interface {
	follow.Source
	Get(ctx context.Context, ref resource.Ref, opts metav1.GetOptions) (runtime.Object, error)
	List(ctx context.Context, ref resource.Ref, opts metav1.ListOptions) ([]runtime.Object, metav1.ListMeta, error)
	Create(ctx context.Context, ref resource.Ref, obj runtime.Object, opts metav1.CreateOptions) (runtime.Object, error)
	Update(ctx context.Context, ref resource.Ref, obj runtime.Object, opts metav1.UpdateOptions) (runtime.Object, error)
	Delete(ctx context.Context, ref resource.Ref, opts metav1.DeleteOptions) (runtime.Object, error)
}

// Registry is what this server serves itself.
type Registry interface {
	Kinds() []*kind.Kind
	OnChange(f func())
}

// Priority is the place of a group among groups and of a version among its group's: the higher comes first.
type Priority struct{ Group, Version int32 }

// Config is all that an Aggregator needs.
type Config struct {
	// Certificate is what other servers are shown: the front proxy's.
	Certificate func(*tls.CertificateRequestInfo) (*tls.Certificate, error)
	// Identity are further headers in which a server might be told who asks. What a client sends in them is not passed on.
	Identity Identity
	// Resolve finds the addresses (host:port) of a Service's port, the best first.
	Resolve func(ctx context.Context, namespace, name string, port int32) ([]string, error)
	// Builtin tells the priority of a group version that is part of this server; false for what custom resources define.
	Builtin func(schema.GroupVersion) (Priority, bool)
	Clock   clock.WithTicker     // nil: the real one
	Log     *slog.Logger         // nil: discards
	Metrics *prometheus.Registry // nil: a new one
}

// Identity names headers, and prefixes of their names.
type Identity struct{ Names, Prefixes []string }

// Aggregator knows who serves what this server does not. See New and Run.
type Aggregator struct {
	cfg     Config
	metrics *metrics
	synced  chan struct{}

	// now is nil while nobody else serves anything.
	now atomic.Pointer[view]
	// known and documents change whenever Services or Documents does.
	known, documents atomic.Uint64

	// What follows is set by Run.
	ctx     context.Context
	gate    Gate
	running sync.WaitGroup

	// listed is what Services told last.
	listed atomic.Pointer[listing]

	mu       sync.Mutex
	stored   map[string]*apiService
	backends map[schema.GroupVersion]*backend
	endpoint context.CancelFunc // ends the watches of Services; nil while there are none
	wake     chan struct{}
}

// view is one immutable state of who else serves what.
type view struct {
	backends  map[schema.GroupVersion]*backend
	byService map[types.NamespacedName][]*backend
}

// New makes an Aggregator that knows of nobody yet.
func New(cfg Config) *Aggregator {
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Metrics == nil {
		cfg.Metrics = prometheus.NewRegistry()
	}
	return &Aggregator{cfg: cfg, metrics: newMetrics(cfg.Metrics), synced: make(chan struct{}), stored: map[string]*apiService{},
		backends: map[schema.GroupVersion]*backend{}, wake: make(chan struct{}, 1)}
}

// Synced is closed once every APIService that was stored at the start is known.
func (a *Aggregator) Synced() <-chan struct{} { return a.synced }

// Serves tells whether another server serves the group version.
func (a *Aggregator) Serves(gv schema.GroupVersion) bool { return a.backend(gv) != nil }

func (a *Aggregator) backend(gv schema.GroupVersion) *backend {
	v := a.now.Load()
	if v == nil {
		return nil
	}
	return v.backends[gv]
}

// Run follows APIServices, and checks who serves what they name, until ctx ends. It may run once.
func (a *Aggregator) Run(ctx context.Context, gate Gate) error {
	a.ctx, a.gate = ctx, gate
	err := follow.Run(ctx, follow.Config{Source: gate, Ref: apiServices, Set: a.set, Drop: a.drop, Synced: func() { close(a.synced) }, Clock: a.cfg.Clock, Log: a.cfg.Log})
	a.running.Wait()
	return err
}

func (a *Aggregator) signal() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

func versionOf(s *apiService) schema.GroupVersion {
	return schema.GroupVersion{Group: s.Spec.Group, Version: s.Spec.Version}
}

// elsewhere tells whether an APIService gives its group version to another server. The group of APIServices itself cannot be given away: nobody could take
// that back.
func elsewhere(s *apiService) bool { return s.Spec.Service != nil && s.Spec.Group != apiServices.Group }

// set takes over the newest state of an APIService.
func (a *Aggregator) set(obj runtime.Object) {
	s, ok := obj.(*apiService)
	if !ok {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	was := a.stored[s.Name]
	a.stored[s.Name] = s
	a.metrics.set(s)
	old := a.backends[versionOf(s)]
	switch {
	case !elsewhere(s) && old != nil:
		a.remove(old)
	case !elsewhere(s):
		if a.moved(s) || a.moved(was) {
			a.known.Add(1)
		}
	case old == nil:
		a.add(newBackend(a, s))
	case old.reaches(s):
		old.take(s)
	default:
		next := newBackend(a, s)
		next.inherit(old)
		a.add(next) // in one step: nobody must be told in between that nobody serves it
		old.close()
	}
	a.signal()
}

func (a *Aggregator) drop(obj runtime.Object) {
	s, ok := obj.(*apiService)
	if !ok {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.stored, s.Name)
	a.metrics.drop(s.Name)
	if b := a.backends[versionOf(s)]; b != nil && b.name == s.Name {
		a.remove(b)
	}
	if a.moved(s) {
		a.known.Add(1)
	}
	a.signal()
}

func (a *Aggregator) add(b *backend) {
	a.backends[b.gv] = b
	a.publish()
	ctx, end := context.WithCancel(a.ctx)
	b.end = end
	a.running.Go(func() { b.watch(ctx) })
	a.running.Go(func() { b.learn(ctx) })
	if a.endpoint == nil {
		following, end := context.WithCancel(a.ctx)
		a.endpoint = end
		a.followEndpoints(following)
	}
}

func (a *Aggregator) remove(b *backend) {
	delete(a.backends, b.gv)
	a.publish()
	b.close()
	if len(a.backends) == 0 && a.endpoint != nil {
		a.endpoint()
		a.endpoint = nil
	}
}

// publish shows readers the present backends.
func (a *Aggregator) publish() {
	if len(a.backends) == 0 {
		a.now.Store(nil)
	} else {
		v := &view{backends: make(map[schema.GroupVersion]*backend, len(a.backends)), byService: map[types.NamespacedName][]*backend{}}
		for gv, b := range a.backends {
			v.backends[gv] = b
			v.byService[b.service] = append(v.byService[b.service], b)
		}
		a.now.Store(v)
	}
	a.known.Add(1)
	a.documents.Add(1)
}

func portOf(s *apiService) int32 { return ptr.Deref(s.Spec.Service.Port, 443) }
