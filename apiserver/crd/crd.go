// Package crd serves custom resources: it follows the CustomResourceDefinitions in the store, accepts their names, and gives the registry a kind for
// each one that is established.
//
// Guarantees: a definition is served before its status says Established, and is served no more once it is gone. No definition takes a
// resource that the server has already, nor a name of another definition in its group. While a definition is deleted its objects are deleted through admission,
// and it stays until the last of them is gone. Objects outlive the process and changes of their definition: they are converted when they are read.
//
// Schemas and expressions are compiled when an object first needs them, so a definition that nobody uses costs little more than its own size.
// A change of one definition costs the same however many there are.
//
// One goroutine decides; everything else is safe for concurrent use. The package does not authorize and does not validate
// definitions: the gate did both before they were stored.
package crd

import (
	"context"
	"log/slog"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"

	"github.com/yare-project/yare/apiserver/verbs"
	"github.com/yare-project/yare/internal/follow"
	"github.com/yare-project/yare/internal/resource"
	"github.com/yare-project/yare/kind"
)

// Gate is how definitions are read and their status is written: the server's own in-process transport.
type Gate interface {
	follow.Source
	Get(ctx context.Context, ref resource.Ref, opts metav1.GetOptions) (runtime.Object, error)
	Update(ctx context.Context, ref resource.Ref, obj runtime.Object, opts metav1.UpdateOptions) (runtime.Object, error)
}

// Registry is where kinds are served.
type Registry interface {
	Add(kinds ...*kind.Kind) error
	Remove(resources ...schema.GroupResource)
	Resource(schema.GroupResource) (*verbs.Resource, bool)
}

// Resolver finds the addresses (host:port) of a Service's port, the best first.
type Resolver func(ctx context.Context, namespace, name string, port int32) ([]string, error)

// Config is all that a Server needs.
type Config struct {
	Gate     Gate
	Registry Registry
	// Resolve finds the Services of conversion webhooks; nil: webhooks must be named by URL.
	Resolve Resolver
	Clock   clock.WithTicker // nil: the real one
	Log     *slog.Logger     // nil: discards
}

// Server serves custom resources. See Run.
type Server struct {
	Config
	hooks  *hooks
	synced chan struct{}

	// mu guards what the watch tells the worker: the newest definitions by name, nil for one that is gone.
	mu       sync.Mutex
	complete bool
	pending  map[string]*definition
	over     []*cleaning
	wake     chan struct{}

	// What follows is the worker's own.
	known map[string]*definition
	// groups know who holds which names.
	groups map[string]*group
	// dirty are the definitions to look at; unwritten those whose status is not stored yet.
	dirty, unwritten map[string]bool

	served   map[string]*served
	cleaning map[string]*cleaning
}

type definition = apiextensionsv1.CustomResourceDefinition

// resourceOf is where definitions are.
var resourceOf = resource.Ref{GroupVersionResource: apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions")}

// retryAfter is the wait after a status or a registration that failed.
const retryAfter = time.Second

// New makes a Server.
func New(cfg Config) (*Server, error) {
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	h, err := newHooks(cfg.Resolve)
	if err != nil {
		return nil, err
	}
	return &Server{Config: cfg, hooks: h, synced: make(chan struct{}), pending: map[string]*definition{}, wake: make(chan struct{}, 1),
		known: map[string]*definition{}, groups: map[string]*group{}, dirty: map[string]bool{}, unwritten: map[string]bool{}, served: map[string]*served{}, cleaning: map[string]*cleaning{}}, nil
}

// Synced is closed once every definition that was stored at the start is served.
func (s *Server) Synced() <-chan struct{} { return s.synced }

// Run works until ctx ends. What is served stays served.
func (s *Server) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	wg.Go(func() {
		_ = follow.Run(ctx, follow.Config{Source: s.Gate, Ref: resourceOf, Set: s.set, Drop: s.drop, Synced: s.listed, Clock: s.Clock, Log: s.Log})
	})
	var retry <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.wake:
		case <-retry:
		}
		retry = nil
		if !s.step(ctx, &wg) {
			retry = s.Clock.After(retryAfter)
		}
	}
}

func (s *Server) set(obj runtime.Object) {
	if d, ok := obj.(*definition); ok {
		s.tell(d.Name, d)
	}
}

func (s *Server) drop(obj runtime.Object) {
	if d, ok := obj.(*definition); ok {
		s.tell(d.Name, nil)
	}
}

func (s *Server) tell(name string, d *definition) {
	s.mu.Lock()
	s.pending[name] = d
	complete := s.complete
	s.mu.Unlock()
	if complete {
		s.signal()
	}
}

// listed ends the first list: only then names can be judged.
func (s *Server) listed() {
	s.mu.Lock()
	s.complete = true
	s.mu.Unlock()
	s.signal()
}

func (s *Server) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// take hands the worker what was told since, once everything that there is was told.
func (s *Server) take() map[string]*definition {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.over {
		if s.cleaning[c.name] == c {
			delete(s.cleaning, c.name)
		}
	}
	s.over = nil
	if !s.complete {
		return nil
	}
	out := s.pending
	s.pending = map[string]*definition{}
	return out
}
