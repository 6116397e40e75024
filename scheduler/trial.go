package scheduler

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/yare-project/yare/internal/workers"
)

// tasks are what runs beside the decisions; in a Trial it runs between them.
type tasks struct {
	wait    sync.WaitGroup
	workers *workers.Pool[func()]

	mu    sync.Mutex
	trial bool
	todo  []task
}

type task struct {
	run   func()
	ready func() bool // nil means that it is
}

// Go starts f.
func (t *tasks) Go(f func()) { t.when(nil, f) }

// when starts f, which itself waits for ready: a Trial starts it only then.
func (t *tasks) when(ready func() bool, f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.trial {
		t.todo = append(t.todo, task{f, ready})
		return
	}
	t.wait.Add(1)
	if t.workers == nil {
		t.workers = workers.New(idleWorkers, func(f func()) { defer t.wait.Done(); f() })
	}
	t.workers.Run(f)
}

// idleWorkers is how many goroutines are kept for the next tasks: more than there are bindings at once in a busy cluster.
const idleWorkers = 64

// Wait returns once all have ended.
func (t *tasks) Wait() {
	t.wait.Wait()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.workers != nil {
		t.workers.Release()
	}
}

// next takes the first that may run; nil if there is none.
func (t *tasks) next() func() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for k, one := range t.todo {
		if one.ready == nil || one.ready() {
			t.todo = slices.Delete(t.todo, k, k+1)
			return one.run
		}
	}
	return nil
}

// Trial is a scheduler that is moved by hand in place of Run, for simulations: all that follows from a decision has happened before the next one is made, so that
// the same changes lead to the same decisions. Of pods'
// status it writes where they wait for room, and it does not watch the clock: what waits for a time waits for ever, but for the conditions of devices, which a pod is bound without. It
// belongs to one goroutine.
type Trial struct {
	s     *Scheduler
	ctx   context.Context
	flush func(context.Context)
}

// Try begins a trial; it returns once the caches, which must run, are synced. flush returns once the caches hold, and have told of, all that was written so far.
func (s *Scheduler) Try(ctx context.Context, flush func(context.Context)) (*Trial, error) {
	s.ctx, s.tasks.trial = ctx, true
	if err := s.world.wait(ctx); err != nil {
		return nil, err
	}
	t := &Trial{s, ctx, flush}
	t.settle()
	return t, nil
}

// Measure reads the numbers about nodes that policies ask for, which Run does now and then.
func (t *Trial) Measure() {
	t.settle()
	for _, source := range t.s.config.Sources {
		if t.s.policies.Demand() {
			t.s.readOnce(t.ctx, source)
		}
	}
}

// settle has all happen that follows from what was done.
func (t *Trial) settle() {
	for t.ctx.Err() == nil {
		if f := t.s.tasks.next(); f != nil {
			f()
			continue
		}
		for _, c := range t.s.writer.nominations() {
			t.s.writer.send(t.ctx, c)
		}
		t.flush(t.ctx)
		if !t.s.inbox.some() {
			return
		}
		t.s.drain()
	}
}

// Rest takes in what was written, and decides until no pod is left to decide on.
func (t *Trial) Rest() error {
	t.settle()
	for it := t.s.queue.pop(t.s.now()); it != nil && t.ctx.Err() == nil; it = t.s.queue.pop(t.s.now()) {
		t.s.schedule(it)
		t.settle()
	}
	return t.ctx.Err()
}

// Retry has the pods that fit nowhere tried once more, as Run does now and then; Rest decides on them.
func (t *Trial) Retry() {
	q := t.s.queue
	for front := q.parked.Front(); front != nil; front = q.parked.Front() {
		q.activate(front.Value.(*item), t.s.now())
	}
}

// Unplaced is a pod that found no node in a Trial.
type Unplaced struct {
	Pod *corev1.Pod
	Waiting
}

// Unplaced lists the pods without a node, by namespace and name.
func (t *Trial) Unplaced() []Unplaced {
	var out []Unplaced
	for _, it := range t.s.queue.items {
		u := Unplaced{it.pod.Object, t.s.describe(it)}
		if it.place == gated && u.Message == "" {
			u.Message = fmt.Sprintf("held back by plugin %s", strings.Join(it.plugins, ", "))
		}
		out = append(out, u)
	}
	slices.SortFunc(out, func(a, b Unplaced) int {
		return strings.Compare(a.Pod.Namespace+"/"+a.Pod.Name, b.Pod.Namespace+"/"+b.Pod.Name)
	})
	return out
}

// Due is when time alone next lets a pod be decided on: at the end of its back-off, or of the longest time that it is parked. ok is false if never. Whoever has a Trial's
// clock turns it there and calls Rest.
func (t *Trial) Due() (at time.Time, ok bool) { return t.s.queue.due() }

// nominations takes what waits to be written, and keeps of it what decisions depend on: where pods wait for room.
func (w *statusWriter) nominations() []*statusChange {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []*statusChange
	for _, uid := range w.order {
		c := w.pending[uid]
		delete(w.pending, uid)
		if c != nil && c.nominate != nil && *c.nominate != c.pod.Status.NominatedNodeName {
			out = append(out, c)
		}
	}
	w.order = w.order[:0]
	return out
}
