package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/scheduler"
	"github.com/yare-project/yare/simulate"
)

// began is when virtual time begins.
var began = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// Run carries out a run until all pods have arrived and have been placed, or a rule is broken, or ctx ends.
func Run(ctx context.Context, c Config) (Report, error) {
	started := time.Now()
	ctx, cancel := context.WithCancel(ctx)
	w, err := newWorld(ctx, c.withDefaults())
	if err != nil {
		cancel()
		return Report{}, err
	}
	defer w.caches.Wait()
	defer cancel()
	err = w.play()
	w.report.Failed, w.report.Digest = w.transport.failed, w.ledger.digest
	w.report.Virtual, w.report.Wall = w.clock.Now().Sub(began), time.Since(started)
	return w.report, err
}

// world is a run under way.
type world struct {
	Config
	ctx       context.Context
	clock     *clocktesting.FakeClock
	random    *rand.Rand
	agenda    agenda
	ledger    *ledger
	api       *simulate.API
	transport *faulty
	trial     *scheduler.Trial
	caches    sync.WaitGroup
	report    Report

	nextNode, nextPod int
	names             []string // of the nodes, to draw from
	bound             []*corev1.Pod
	waiting           map[string]*resident
	gangs             map[string]int // that got nodes lately, and how many pods they have
	broken            error
}

func newWorld(ctx context.Context, c Config) (*world, error) {
	w := &world{Config: c, ctx: ctx, clock: clocktesting.NewFakeClock(began), random: rand.New(rand.NewPCG(c.Seed, 1)), ledger: newLedger(), waiting: map[string]*resident{}, gangs: map[string]int{}}
	w.api = simulate.NewAPI(began, w.written)
	w.transport = &faulty{Transport: w.api.Transport(), faults: c.Faults, random: rand.New(rand.NewPCG(c.Seed, 2))}
	caches := client.NewCaches(client.CachesConfig{Transport: w.transport, Log: c.Log})
	s, err := scheduler.New(scheduler.Config{Transport: w.transport, Caches: caches, Clock: w.clock, Log: c.Log, Rand: rand.New(rand.NewPCG(c.Seed, 3)), WithoutPolicies: true})
	if err != nil {
		return nil, err
	}
	w.caches.Go(func() { caches.Run(ctx) })
	w.api.Put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	for range c.Nodes {
		w.addNode()
	}
	w.trial, err = s.Try(ctx, w.api.Flush)
	return w, err
}

func (w *world) addNode() {
	n := node(w.nextNode)
	w.nextNode++
	w.names = append(w.names, n.Name)
	w.ledger.addNode(n)
	w.api.Put(n)
}

// written hears of every change that the API takes.
func (w *world) written(old, new client.Object) {
	p, ok := new.(*corev1.Pod)
	if !ok || p.Spec.NodeName == "" {
		return
	}
	if was, ok := old.(*corev1.Pod); ok && was.Spec.NodeName == p.Spec.NodeName {
		return
	}
	if err := w.ledger.bind(p); err != nil && w.broken == nil {
		w.broken = err
	}
	w.bound = append(w.bound, p)
}

// play lets things happen until nothing is left to happen.
func (w *world) play() error {
	w.plan()
	for w.ctx.Err() == nil && w.broken == nil {
		now := w.clock.Now()
		for do := w.agenda.due(now); do != nil; do = w.agenda.due(now) {
			do()
		}
		if err := w.trial.Rest(); err != nil {
			return err
		}
		w.start(now)
		if err := w.rest(now); err != nil {
			return err
		}
		at, ok := w.agenda.next()
		if !ok && len(w.waiting) == 0 {
			return nil
		}
		if due, waits := w.trial.Due(); waits && (!ok || due.Before(at)) {
			at, ok = due, true
		}
		if !ok {
			return fmt.Errorf("%s waits, and nothing will happen any more", w.anyWaiting())
		}
		if at.After(now) {
			w.clock.SetTime(at)
		} else {
			w.clock.Step(time.Millisecond)
		}
	}
	if w.broken != nil {
		return w.broken
	}
	return w.ctx.Err()
}

// plan enters the arrival of pods, group by group, and the loss of nodes.
func (w *world) plan() {
	for i := 0; i < w.Pods; {
		s := shapeOf(i, w.Pods, w.random.IntN)
		at := began.Add(time.Duration(float64(w.Arrival) * float64(i) / float64(w.Pods)))
		w.agenda.enter(at, func() {
			if s.kind == ganged {
				w.api.Put(s.podGroup())
			}
			for range s.pods {
				w.arrive(s)
			}
		})
		i += s.pods
	}
	for range w.Faults.Nodes {
		w.agenda.enter(began.Add(time.Duration(w.random.Int64N(int64(w.Arrival)))), w.loseNode)
	}
}

func (w *world) arrive(s shape) {
	name := "pod-" + strconv.Itoa(w.nextPod)
	w.nextPod++
	r := &resident{name: name, shape: s, arrived: w.clock.Now()}
	w.ledger.pods[name], w.waiting[name] = r, r
	w.api.Put(s.pod(name))
}

// loseNode takes a node away with all its pods. Whoever made them makes them anew; a node like it comes later.
func (w *world) loseNode() {
	i := w.random.IntN(len(w.names))
	name := w.names[i]
	w.names = slices.Delete(w.names, i, i+1)
	m := w.ledger.nodes[name]
	var lost []*resident
	for _, r := range m.pods {
		lost = append(lost, r)
	}
	slices.SortFunc(lost, func(a, b *resident) int { return cmpNames(a.name, b.name) })
	w.api.Drop(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
	for _, r := range lost {
		w.drop(r)
		w.report.Again++
		w.arrive(r.shape)
	}
	delete(w.ledger.nodes, name)
	w.agenda.enter(w.clock.Now().Add(time.Minute), w.addNode)
}

// cmpNames orders names with numbers at their end by these.
func cmpNames(a, b string) int {
	if len(a) != len(b) {
		return len(a) - len(b)
	}
	if a < b {
		return -1
	}
	return 1
}

func (w *world) drop(r *resident) {
	w.ledger.end(r.name)
	w.api.Drop(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: r.name}})
}

// start has the pods run that got a node, and end in their time.
func (w *world) start(now time.Time) {
	for _, p := range w.bound {
		r := w.ledger.pods[p.Name]
		delete(w.waiting, p.Name)
		if r.shape.kind == ganged {
			w.gangs[r.shape.group] = r.shape.pods
		}
		w.report.Bound++
		w.report.Longest = max(w.report.Longest, now.Sub(r.arrived))
		if w.Life > 0 && r.shape.kind != ganged { // a gang whose pods end one by one could not be made whole again
			life := time.Duration(w.random.ExpFloat64() * float64(w.Life))
			w.agenda.enter(now.Add(life), func() {
				if w.ledger.pods[r.name] == r {
					w.report.Ended++
					w.drop(r)
				}
			})
		}
	}
	w.bound = w.bound[:0]
}

// rest holds the cluster, while nothing is left to decide, to what must be true then.
func (w *world) rest(now time.Time) error {
	for group, pods := range w.gangs { // where nothing fails, a gang is never there in part
		if n := w.ledger.gangs[group]; n != pods && w.Faults == (Faults{}) {
			return fmt.Errorf("%d pods of %s are bound, which has %d", n, group, pods)
		}
	}
	clear(w.gangs)
	for name, r := range w.waiting {
		if now.Sub(r.arrived) > w.Patience {
			return fmt.Errorf("pod %s (%s) has waited since %v", name, r.shape.group, now.Sub(r.arrived))
		}
	}
	return nil
}

func (w *world) anyWaiting() string {
	for name := range w.waiting {
		return "pod " + name
	}
	return "no pod"
}
