package fairness

import (
	"cmp"
	"context"
	"hash/maphash"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/utils/clock"

	"github.com/yare-project/yare/internal/follow"
	"github.com/yare-project/yare/internal/resource"
)

// Config is what a Controller needs.
type Config struct {
	// Levels and Schemas are the mandatory objects: they hold where the API has none of their name. One schema must be named "catch-all".
	Levels  []*flowcontrolv1.PriorityLevelConfiguration
	Schemas []*flowcontrolv1.FlowSchema
	// Seats is how many requests the server works on at once, those of the level "exempt" left out.
	Seats int
	// Timeout is how long a request takes at most that has no deadline of its own; it waits for a quarter of it, like every other. Zero: 1 min.
	Timeout time.Duration
	Clock   clock.WithTicker
	Log     *slog.Logger
	Metrics prometheus.Registerer // nil: none
}

// The periods of KEP-1040: how often levels lend and borrow, and how long any request may wait.
const (
	borrowPeriod = 10 * time.Second
	maxPatience  = time.Minute
)

// Controller is priority and fairness by the objects of the API. Feed it with Run, or with Set and Drop.
type Controller struct {
	cfg     Config
	epoch   time.Time
	changed chan struct{}
	synced  chan struct{}
	plan    atomic.Pointer[plan]
	gauges  gauges

	mu      sync.Mutex
	loading int // resources whose objects Run has not loaded yet
	levels  map[string]*level
	// objects are what the API has.
	levelObjects  map[string]*flowcontrolv1.PriorityLevelConfiguration
	schemaObjects map[string]*flowcontrolv1.FlowSchema
	stats         map[flowKey]*stats
	fair          float64
	nominal       int // seats of all levels
}

var _ Turns = (*Controller)(nil)

type flowKey struct{ level, schema string }

// plan is one immutable state of the rules.
type plan struct {
	flows    []*flow // in the order of matching
	catchAll *flow
}

// New makes a controller that knows the mandatory objects only.
func New(cfg Config) *Controller {
	cfg.Timeout = cmp.Or(cfg.Timeout, time.Minute)
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	c := &Controller{
		cfg: cfg, epoch: cfg.Clock.Now(), changed: make(chan struct{}, 1), synced: make(chan struct{}), levels: map[string]*level{},
		levelObjects: map[string]*flowcontrolv1.PriorityLevelConfiguration{}, schemaObjects: map[string]*flowcontrolv1.FlowSchema{},
		stats: map[flowKey]*stats{},
	}
	c.rebuild()
	if cfg.Metrics != nil {
		register(cfg.Metrics, &collector{c})
	}
	return c
}

// Run follows the objects of the source and lets levels borrow from each other, until ctx ends.
func (c *Controller) Run(ctx context.Context, source follow.Source) error {
	c.mu.Lock()
	c.loading = 2
	c.mu.Unlock()
	var group sync.WaitGroup
	for _, plural := range []string{"prioritylevelconfigurations", "flowschemas"} {
		group.Go(func() {
			_ = follow.Run(ctx, follow.Config{ // ends with ctx only
				Source: source, Ref: resource.Ref{GroupVersionResource: flowcontrolv1.SchemeGroupVersion.WithResource(plural)},
				Set: c.Set, Drop: c.Drop, Synced: c.oneSynced, Clock: c.cfg.Clock, Log: c.cfg.Log,
			})
		})
	}
	group.Go(func() { c.lend(ctx) })
	group.Wait()
	return nil
}

// lend adjusts what levels have of each other.
func (c *Controller) lend(ctx context.Context) {
	ticker := c.cfg.Clock.NewTicker(borrowPeriod)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
			c.mu.Lock()
			c.borrow()
			c.mu.Unlock()
		case <-c.changed:
			c.rebuild()
		}
	}
}

func (c *Controller) oneSynced() {
	c.mu.Lock()
	c.loading--
	done := c.loading == 0
	c.mu.Unlock()
	if done {
		c.rebuild()
		close(c.synced)
	}
}

// Synced is closed once Run has loaded everything. Until then only the mandatory rules hold.
func (c *Controller) Synced() <-chan struct{} { return c.synced }

// Set takes over the newest state of a FlowSchema or PriorityLevelConfiguration.
func (c *Controller) Set(obj runtime.Object) { c.change(obj, false) }

// Drop forgets one.
func (c *Controller) Drop(obj runtime.Object) { c.change(obj, true) }

func (c *Controller) change(obj runtime.Object, gone bool) {
	c.mu.Lock()
	matters := false
	switch o := obj.(type) {
	case *flowcontrolv1.PriorityLevelConfiguration:
		matters = change(c.levelObjects, o, gone)
	case *flowcontrolv1.FlowSchema:
		matters = change(c.schemaObjects, o, gone)
	}
	matters = matters && c.loading == 0
	c.mu.Unlock()
	if matters {
		c.rebuild()
	}
}

// change tells whether the rules are others now: a new status changes none.
func change[T metav1.Object](m map[string]T, o T, gone bool) bool {
	if gone {
		delete(m, o.GetName())
		return true
	}
	old, known := m[o.GetName()]
	m[o.GetName()] = o
	return !known || o.GetGeneration() == 0 || old.GetGeneration() != o.GetGeneration() || old.GetUID() != o.GetUID()
}

// wake asks Run for new rules.
func (c *Controller) wake() {
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

func (p *plan) match(r *Request) *flow {
	verb := verbOf(r.Verb)
	for _, f := range p.flows {
		if f.matches(r, verb) {
			return f
		}
	}
	return p.catchAll
}

// Enter lets a request in when its turn comes. The error is 429 (TooManyRequests) with a Retry-After, or ctx's.
func (c *Controller) Enter(ctx context.Context, t *Ticket) error {
	if t.User == nil {
		t.User = &user.DefaultInfo{Name: user.Anonymous, Groups: []string{user.AllUnauthenticated}}
	}
	for {
		f := c.plan.Load().match(&t.Request)
		t.flow = f
		hash := uint64(0)
		if f.queued {
			t.distinguisher = f.distinguish(&t.Request)
			hash = maphash.String(f.seed, t.distinguisher)
		}
		ok, err := f.level.enter(ctx, t, hash, c)
		if ok {
			if err == nil {
				c.gauges.enter(t)
			}
			return err
		}
		c.settled()
	}
}

// settled waits for whoever removed a level to publish the rules without it.
func (c *Controller) settled() {
	c.mu.Lock()
	defer c.mu.Unlock()
}

// Leave gives the seats back; to leave twice is to leave once.
func (c *Controller) Leave(t *Ticket) {
	if t.level == nil {
		return
	}
	c.gauges.leave(t)
	t.level.finish(t)
}

// patience is how long a request may wait: a quarter of its time.
func (c *Controller) patience(ctx context.Context) time.Duration {
	of := c.cfg.Timeout
	if deadline, ok := ctx.Deadline(); ok {
		of = deadline.Sub(c.cfg.Clock.Now())
	}
	return min(of/4, maxPatience)
}
