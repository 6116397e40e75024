// Package route lets pods of different nodes reach each other: it gives this machine a route to the pod addresses of every other node, by way
// of that node's InternalIP ("host gateway"). Packets travel as they are, without a tunnel, so both nodes must be on one link; where a router stands
// between them, the loop says so in an Event on the other Node and in the log, and that router, or a network plug-in, must carry the routes.
//
// The heart is pure: [Decide] reads Nodes, [Diff] compares with the kernel. The shell is a loop that runs on each node, as that node.
//
// Guarantees: only routes that carry this data folder's mark (a protocol number and a metric) are ever changed, so that two clusters on a machine and
// the administrator's own routes are left alone; a route leads only to addresses within the cluster's pod range that no older node has, so that a node
// cannot draw others' traffic to itself; a route that somebody removed comes back within a minute, usually at once. When the loop stops, routes stay,
// because containers do: [Clean] removes them.
package route

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/clock"

	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/loop"
)

// checkEvery is how often the kernel is asked whether the routes are still there; usually it tells.
const checkEvery = time.Minute

// listenAgain is the wait before the kernel is listened to again.
const listenAgain = time.Second

// ReasonFailed is the reason of the Event on a node whose pods cannot be reached; Kubernetes' route controller uses the same.
const ReasonFailed = "FailedToCreateRoute"

// pass is the only key: all routes are looked at together.
var pass = loop.Key{Name: "routes"}

// Config is what a Router needs.
type Config struct {
	// NodeName is this node.
	NodeName string
	// ClusterCIDR is where all nodes' pod ranges must lie.
	ClusterCIDR []netip.Prefix
	Kernel      Kernel
	Clock       clock.Clock
	Log         *slog.Logger
}

// Kernel is a machine's routing table, as far as it is this Router's. [Open] gives the real one.
type Kernel interface {
	// Reach says how the machine reaches an address.
	Reach(netip.Addr) (Hop, error)
	// Routes are those with this Router's mark.
	Routes() ([]Route, error)
	// Set adds a route, or replaces the one to the same addresses.
	Set(Route) error
	// Remove removes a route; one that is gone is no error.
	Remove(Route) error
	// Watch calls lost when one of this Router's routes may have vanished (link is 0), or an interface or its addresses changed, until ctx ends.
	Watch(ctx context.Context, lost func(link int)) error
}

// Router is the loop.
type Router struct {
	config Config
	ready  chan struct{}

	mu      sync.Mutex
	enqueue func(loop.Key)
	links   []int // interfaces that routes use
	missing bool  // a route that should be there cannot be: any interface may bring the way

	told map[string]string // the problem that a node's Event told of; the loop's only worker has it
	once sync.Once         // closes ready
}

// New makes a Router. Nothing is changed before its loop runs.
func New(c Config) *Router {
	return &Router{config: c, ready: make(chan struct{}), told: map[string]string{}}
}

// Ready is closed after the first pass.
func (r *Router) Ready() <-chan struct{} { return r.ready }

// Reads is what the loop watches.
func Reads() []loop.Access {
	return []loop.Access{{GroupResource: corev1.Resource("nodes"), Verbs: []string{"get", "list", "watch"}}}
}

// Descriptor declares the loop. It writes nothing to the API but Events.
func (r *Router) Descriptor() loop.Descriptor {
	return loop.Descriptor{Name: "routes", Reads: Reads(), Start: r.start}
}

func (r *Router) start(in loop.Inputs) (loop.Reconcile, error) {
	nodes := client.CacheOf[*corev1.Node](in.Caches, client.CacheOptions{})
	nodes.OnChange(func(old, new *corev1.Node) {
		if old == nil || new == nil || !sameNetwork(old, new) {
			in.Enqueue(pass)
		}
	})
	in.Enqueue(pass)
	r.mu.Lock()
	r.enqueue = in.Enqueue
	r.mu.Unlock()
	return func(context.Context, loop.Key) (loop.Result, error) {
		defer r.once.Do(func() { close(r.ready) })
		return loop.Result{After: checkEvery}, r.reconcile(nodes.List(""), in.Event)
	}, nil
}

// sameNetwork tells whether a change of a Node concerns nobody's routes.
func sameNetwork(a, b *corev1.Node) bool {
	return a.UID == b.UID && slices.Equal(a.Spec.PodCIDRs, b.Spec.PodCIDRs) && equality.Semantic.DeepEqual(a.Status.Addresses, b.Status.Addresses)
}

// Run hears from the kernel what happens to routes and interfaces, until ctx ends. A kernel that has more to tell than was heard in time ends a
// subscription: then a new one is made, which starts with a look at everything.
func (r *Router) Run(ctx context.Context) error {
	for {
		err := r.config.Kernel.Watch(ctx, r.lost)
		if ctx.Err() != nil {
			return nil
		}
		r.config.Log.Info("the kernel's news of routes are interrupted", "again-in", listenAgain, "error", err)
		select {
		case <-ctx.Done():
			return nil
		case <-r.config.Clock.After(listenAgain):
		}
	}
}

func (r *Router) lost(link int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.enqueue != nil && (link == 0 || r.missing || slices.Contains(r.links, link)) {
		r.enqueue(pass)
	}
}

func (r *Router) reconcile(nodes []*corev1.Node, event func(client.Object, string, string, string)) error {
	want, problems := Decide(r.config.NodeName, nodes, r.config.ClusterCIDR, r.config.Kernel.Reach)
	have, err := r.config.Kernel.Routes()
	if err != nil {
		return fmt.Errorf("read this machine's routes: %w", err)
	}
	set, remove := Diff(want, have)
	var faults []error
	for _, route := range remove {
		faults = append(faults, r.config.Kernel.Remove(route))
	}
	for _, route := range set {
		if err := r.config.Kernel.Set(route); err != nil {
			problems[route.Node] = err.Error()
			faults = append(faults, err)
		}
	}
	r.remember(want, len(problems) > 0)
	r.tell(nodes, problems, event)
	return errors.Join(faults...)
}

func (r *Router) remember(want []Route, missing bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.missing = missing
	r.links = r.links[:0]
	for _, route := range want {
		if !slices.Contains(r.links, route.Link) {
			r.links = append(r.links, route.Link)
		}
	}
}

// tell says once what is wrong with the way to a node's pods.
func (r *Router) tell(nodes []*corev1.Node, problems map[string]string, event func(client.Object, string, string, string)) {
	for _, node := range nodes {
		text := problems[node.Name]
		if text != "" && r.told[node.Name] != text {
			r.config.Log.Warn("pods of another node cannot be reached from this one", "node", node.Name, "because", text)
			event(node, corev1.EventTypeWarning, ReasonFailed, fmt.Sprintf("Pods of node %s cannot be reached from node %s: %s", node.Name, r.config.NodeName, text))
		}
	}
	clear(r.told)
	for name, text := range problems {
		r.told[name] = text
	}
}
