package loop

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"

	"github.com/yare-project/yare/client"
)

// Config is what a runtime needs.
type Config struct {
	// Transport reaches the gate as the user of the loop of this name; see UserName.
	Transport func(loop string) client.Transport
	// Caches are shared by all loops. Whoever made them runs them.
	Caches *client.Caches
	// Clock nil means the real one.
	Clock clock.WithTicker
	// Log nil means slog.Default().
	Log *slog.Logger
	// Metrics nil means that nobody collects them.
	Metrics prometheus.Registerer
	// Elector says when this process leads; nil means always.
	Elector Elector
	// Instance names this process in Events, such as a host name.
	Instance string
	// Drain is how long running passes may take to end when Run is stopped; zero means 5 s.
	Drain time.Duration
}

// Elector decides which of several processes runs the loops.
type Elector interface {
	// Lead waits until this process leads, calls run with a context that ends when it no longer does, and waits for run to return. It returns
	// when ctx ends or leadership is lost.
	Lead(ctx context.Context, run func(ctx context.Context)) error
}

// Runtime runs loops. Its methods are safe for concurrent use.
type Runtime struct {
	config  Config
	metrics *metrics

	mu    sync.Mutex
	loops []*running
	ran   bool
}

// running is one loop at work.
type running struct {
	Descriptor
	queue     *queue
	caches    *client.Caches
	reconcile Reconcile
	events    *Recorder
	log       *slog.Logger
	ok, bad   prometheus.Counter
}

// New makes a runtime without loops.
func New(config Config) (*Runtime, error) {
	if config.Transport == nil || config.Caches == nil {
		return nil, errors.New("loop: Config needs Transport and Caches")
	}
	if config.Clock == nil {
		config.Clock = clock.RealClock{}
	}
	if config.Log == nil {
		config.Log = slog.Default()
	}
	if config.Drain == 0 {
		config.Drain = 5 * time.Second
	}
	return &Runtime{config: config, metrics: newMetrics(config.Metrics)}, nil
}

// Add wires a loop by calling its Start. Errors: a bad or repeated name, a cache of something that the loop does not declare to read, a loop added
// after Run, or Start's own.
func (r *Runtime) Add(d Descriptor) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.check(d); err != nil {
		return err
	}
	g := newGuard(d, r.config.Transport(d.Name))
	log := r.config.Log.With("loop", d.Name)
	events := NewRecorder(RecorderConfig{Transport: r.config.Transport(d.Name), Component: d.Name + "-controller", Instance: r.config.Instance,
		Clock: r.config.Clock, Log: log})
	m := r.metrics.of(d.Name)
	l := &running{Descriptor: d, queue: newQueue(r.config.Clock, m), events: events, log: log, ok: m.ok, bad: m.failed}
	l.caches = r.config.Caches.View(func(gvr schema.GroupVersionResource, _ client.CacheOptions) error { return g.mayCache(gvr) })
	reconcile, err := d.Start(Inputs{Transport: g, Caches: l.caches, Enqueue: l.queue.add, EnqueueAfter: l.queue.addAfter, Event: events.Event,
		Clock: r.config.Clock, Log: log})
	if err != nil {
		return fmt.Errorf("loop %q: start: %w", d.Name, err)
	}
	if err := errors.Join(l.caches.Refused()...); err != nil {
		return err
	}
	l.reconcile = reconcile
	r.loops = append(r.loops, l)
	return nil
}

func (r *Runtime) check(d Descriptor) error {
	if d.Name == "" || d.Start == nil {
		return fmt.Errorf("loop %q: a descriptor needs a Name and a Start", d.Name)
	}
	if r.ran {
		return fmt.Errorf("loop %q: added after Run; add every loop first", d.Name)
	}
	for _, l := range r.loops {
		if l.Name == d.Name {
			return fmt.Errorf("loop %q: the name is taken by another loop", d.Name)
		}
	}
	return nil
}

// Run works until ctx ends, whenever this process leads. Then it hands out no more keys, gives running passes Config.Drain to end, cancels
// the rest, writes the Events that wait, and returns. When leadership is lost, passes are cancelled at once.
func (r *Runtime) Run(ctx context.Context) error {
	r.mu.Lock()
	if r.ran {
		r.mu.Unlock()
		return errors.New("loop: a runtime runs once")
	}
	r.ran = true
	r.mu.Unlock()
	if r.config.Elector == nil {
		r.work(ctx, context.WithoutCancel(ctx))
		return nil
	}
	return r.config.Elector.Lead(ctx, func(leading context.Context) {
		work, cancel := context.WithCancel(context.WithoutCancel(ctx))
		defer cancel()
		stop := context.AfterFunc(leading, func() {
			if ctx.Err() == nil {
				cancel() // leadership was lost: another process may be writing already
			}
		})
		defer stop()
		r.work(leading, work)
	})
}

// work runs all loops until stop ends; passes get the context work.
func (r *Runtime) work(stop, work context.Context) {
	work, cancel := context.WithCancel(work)
	defer cancel()
	var passes, events sync.WaitGroup
	eventsCtx, stopEvents := context.WithCancel(context.WithoutCancel(stop))
	defer stopEvents()
	for _, l := range r.loops {
		events.Go(func() { l.events.Run(eventsCtx) })
		passes.Go(func() { l.run(stop, work) })
	}
	<-stop.Done()
	ended := make(chan struct{})
	go func() { passes.Wait(); close(ended) }()
	timer := r.config.Clock.NewTimer(r.config.Drain)
	defer timer.Stop()
	select {
	case <-ended:
	case <-timer.C():
		r.config.Log.Warn("loops still busy at the end of their drain time; their passes are cancelled", "after", r.config.Drain)
		cancel()
		<-ended
	case <-work.Done():
		<-ended
	}
	stopEvents()
	events.Wait()
}

// run waits for the loop's caches and then works on its keys.
func (l *running) run(stop, work context.Context) {
	if err := l.caches.WaitSynced(stop); err != nil {
		return
	}
	closed := context.AfterFunc(stop, l.queue.close)
	defer closed()
	var all sync.WaitGroup
	all.Go(func() { l.queue.run(stop) })
	for range max(1, l.Workers) {
		all.Go(func() {
			for {
				key, ok := l.queue.take()
				if !ok {
					return
				}
				l.pass(work, key)
			}
		})
	}
	all.Wait()
}

// pass is one call of Reconcile and what follows from its result.
func (l *running) pass(ctx context.Context, key Key) {
	defer l.queue.done(key)
	result, err := l.safely(ctx, key)
	if err != nil {
		l.bad.Inc()
		wait := l.queue.retry(key, err)
		level := slog.LevelDebug // a conflict is part of the game
		if wait > time.Second {
			level = slog.LevelWarn
		}
		l.log.Log(ctx, level, "pass failed; again after back-off", "key", key.String(), "after", wait, "error", err)
		return
	}
	l.ok.Inc()
	l.queue.forget(key)
	if result.After > 0 {
		l.queue.addAfter(key, result.After)
	}
}

func (l *running) safely(ctx context.Context, key Key) (result Result, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
			l.log.Error("pass panicked", "key", key.String(), "panic", p, "stack", stack())
		}
	}()
	return l.reconcile(ctx, key)
}
