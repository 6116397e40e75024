package client

import (
	"context"
	"log/slog"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
)

// CachesConfig is what caches need.
type CachesConfig struct {
	// Transport lists and watches, as a user who may do so for every cached kind.
	Transport Transport
	// Clock times the back-off between attempts; nil means the real one.
	Clock clock.Clock
	// Log hears of interrupted watches; nil means slog.Default().
	Log *slog.Logger
}

// Caches makes and runs the caches of one process over one transport; a kind asked for twice with the same options is one cache,
// fed by one watch.
type Caches struct {
	shared *registry
	// asked is called with every resource that a cache is asked for; nil for the root.
	asked func(schema.GroupVersionResource, CacheOptions) error
	used  *usage
}

// usage remembers what a view handed out, and what it refused.
type usage struct {
	mu      sync.Mutex
	stores  []*store
	refused []error
}

type registry struct {
	config CachesConfig
	mu     sync.Mutex
	stores map[storeKey]*store
	ctx    context.Context // set while running
	wait   sync.WaitGroup
}

type storeKey struct {
	schema.GroupVersionResource
	CacheOptions
}

// NewCaches makes an empty set; nothing is watched before Run.
func NewCaches(config CachesConfig) *Caches {
	if config.Clock == nil {
		config.Clock = clock.RealClock{}
	}
	if config.Log == nil {
		config.Log = slog.Default()
	}
	return &Caches{shared: &registry{config: config, stores: map[storeKey]*store{}}, used: &usage{}}
}

// View is the same caches seen by one reader: allow judges each resource that it asks for. A refused cache stays empty and unsynced, and
// [Caches.Refused] reports it.
func (c *Caches) View(allow func(schema.GroupVersionResource, CacheOptions) error) *Caches {
	return &Caches{shared: c.shared, asked: allow, used: &usage{}}
}

// Refused lists the errors of this view's allow function.
func (c *Caches) Refused() []error {
	c.used.mu.Lock()
	defer c.used.mu.Unlock()
	return append([]error(nil), c.used.refused...)
}

// WaitSynced returns once every cache that this view handed out is synced, or ctx ends.
func (c *Caches) WaitSynced(ctx context.Context) error {
	c.used.mu.Lock()
	stores := append([]*store(nil), c.used.stores...)
	c.used.mu.Unlock()
	for _, s := range stores {
		select {
		case <-s.synced:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// Run feeds the caches until ctx ends, then returns when all have stopped. A cache made meanwhile starts at once.
func (c *Caches) Run(ctx context.Context) {
	r := c.shared
	r.mu.Lock()
	r.ctx = ctx
	for _, s := range r.stores {
		r.start(s)
	}
	r.mu.Unlock()
	<-ctx.Done()
	r.mu.Lock() // no start can be under way once the context is seen ended under the lock
	r.mu.Unlock()
	r.wait.Wait()
}

// start is called with the lock held.
func (r *registry) start(s *store) {
	if r.ctx == nil || r.ctx.Err() != nil || s.started {
		return
	}
	s.started = true
	feed := &reflector{store: s, transport: r.config.Transport, clock: r.config.Clock,
		log: r.config.Log.With("resource", s.ref.GroupVersionResource.String())}
	ctx := r.ctx
	r.wait.Go(func() { feed.run(ctx) })
}

func (c *Caches) store(gvr schema.GroupVersionResource, opts CacheOptions) *store {
	if c.asked != nil {
		if err := c.asked(gvr, opts); err != nil {
			c.used.mu.Lock()
			c.used.refused = append(c.used.refused, err)
			c.used.mu.Unlock()
			return newStore(gvr, opts)
		}
	}
	r := c.shared
	r.mu.Lock()
	defer r.mu.Unlock()
	key := storeKey{gvr, opts}
	s, ok := r.stores[key]
	if !ok {
		s = newStore(gvr, opts)
		r.stores[key] = s
		r.start(s)
	}
	c.used.mu.Lock()
	c.used.stores = append(c.used.stores, s)
	c.used.mu.Unlock()
	return s
}

// CacheOf returns the cache of T with these options, made on first use.
//
// Indexes that different callers add to one cache do not collide: By looks up the caller's own, then the first of that name. See [SharedIndex] for those
// that several callers mean to have in common.
func CacheOf[T Object](c *Caches, opts CacheOptions) Cache[T] {
	return CacheOfResource[T](c, ResourceOf[T](), opts)
}

// CacheOfResource is CacheOf for a named resource: for kinds that are not built in, or with T = Object for any.
func CacheOfResource[T Object](c *Caches, gvr schema.GroupVersionResource, opts CacheOptions) Cache[T] {
	return &view[T]{store: c.store(gvr, opts), own: map[string]*index{}}
}
