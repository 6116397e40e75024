package simulate

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/scheduler"
)

// Options are what to try.
type Options struct {
	Manifest Manifest
	// Without are nodes that are lost: their pods that somebody makes anew look for another place.
	Without []string
	// Fit asks how many more pods like those of the manifest's only workload find a place: up to so many. Zero does not ask.
	Fit int
	// Like are nodes to add, one kind, until all pods have a place; nil adds none.
	Like *Shape
	// Profiles of the scheduler, from scheduler.LoadConfig; the zero value means the defaults. Extenders are asked, but bind nothing.
	Profiles scheduler.Profiles
	// Seed decides among nodes that are equally good.
	Seed uint64
	// Log hears what the scheduler logs; nil means nobody.
	Log *slog.Logger
}

// Run tries it. The error is for a manifest or a node that cannot be tried at all; a pod that is refused has a line in the report.
func Run(ctx context.Context, c *Cluster, o Options) (*Report, error) {
	ctx, cancel := context.WithCancel(ctx)
	r, err := start(ctx, c, o)
	if err != nil {
		cancel()
		return nil, err
	}
	defer r.caches.Wait()
	defer cancel()
	if err := r.all(); err != nil {
		return nil, err
	}
	return r.report()
}

// run is one simulation.
type run struct {
	ctx     context.Context
	options Options
	memory  *memory
	gate    *gate
	storage *storage
	trial   *scheduler.Trial
	caches  sync.WaitGroup

	notes     []string
	numbers   map[string]int // given, by prefix of the name
	workloads []*workload
	asked     []*subject
	moved     []*subject
	waiting   []*subject
	evicted   []*subject
	byUID     map[types.UID]*subject
	lost      []departed    // pods of lost nodes that come back
	victims   []departed    // evicted, but not gone yet
	leaving   []*corev1.Pod // they were being deleted already
	fit       *Fit
	added     *Nodes
}

// subject is a pod whose place is told.
type subject struct {
	workload string
	key      types.NamespacedName
	uid      types.UID
	from     string
	evicts   []string
	yields   string // to whom it makes room
	gone     string // why there is no such pod
}

// departed is a pod that lost its node.
type departed struct {
	*subject
	pod *corev1.Pod
}

func start(ctx context.Context, c *Cluster, o Options) (*run, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	r := &run{ctx: ctx, options: o, memory: newMemory(c.Taken), byUID: map[types.UID]*subject{}}
	for _, what := range c.Unread {
		r.notes = append(r.notes, "not read from the cluster: "+what)
	}
	r.storage = &storage{memory: r.memory}
	r.memory.written = r.storage.changed
	var err error
	if r.gate, err = newGate(r.memory, c.Taken); err != nil {
		return nil, err
	}
	profiles := o.Profiles
	profiles.Extenders = slices.Clone(profiles.Extenders)
	for k := range profiles.Extenders {
		profiles.Extenders[k].BindVerb = ""
	}
	caches := client.NewCaches(client.CachesConfig{Transport: r.memory, Log: o.Log})
	s, err := scheduler.New(scheduler.Config{Transport: r.memory, Caches: caches, Clock: clocktesting.NewFakeClock(c.Taken), Log: o.Log, Events: r.event,
		Profiles: profiles, Rand: rand.New(rand.NewPCG(o.Seed, o.Seed))})
	if err != nil {
		return nil, err
	}
	r.caches.Go(func() { caches.Run(ctx) })
	if r.trial, err = s.Try(ctx, r.memory.flush); err != nil {
		return nil, err
	}
	return r, r.fill(c)
}

// fill puts the cluster into the memory, resource by resource, so that the scheduler gets to know it in the same order each time.
func (r *run) fill(c *Cluster) error {
	lost := map[string]bool{}
	for _, name := range r.options.Without {
		lost[name] = true
	}
	var before client.Object
	for _, o := range r.shuffled(c.Objects) {
		if before != nil && resourceOf(before) != resourceOf(o) {
			r.memory.flush(r.ctx)
		}
		before = o
		switch o := o.(type) {
		case *corev1.Node:
			if lost[o.Name] {
				lost[o.Name] = false
				continue
			}
		case *corev1.Pod:
			if r.pod(o) {
				continue
			}
		}
		r.memory.fill(o)
	}
	for name, missing := range lost {
		if missing {
			return fmt.Errorf("node %q is not in the cluster", name)
		}
	}
	slices.SortFunc(r.moved, func(a, b *subject) int { return strings.Compare(a.key.String(), b.key.String()) })
	slices.SortFunc(r.lost, func(a, b departed) int { return strings.Compare(a.key.String(), b.key.String()) })
	r.storage.live = true
	return r.ctx.Err()
}

// shuffled has nodes and the pods on them in an order by the seed: where a preemption has a choice between equals, the scheduler takes what it got to know first, and a real
// one gets to know them in any order.
func (r *run) shuffled(objects []client.Object) []client.Object {
	var nodes, placed, rest, pods []client.Object
	for _, o := range objects {
		switch o := o.(type) {
		case *corev1.Node:
			nodes = append(nodes, o)
		case *corev1.Pod:
			if o.Spec.NodeName != "" {
				placed = append(placed, o)
			} else {
				pods = append(pods, o)
			}
		default:
			rest = append(rest, o)
		}
	}
	rng := rand.New(rand.NewPCG(r.options.Seed, 1))
	for _, list := range [][]client.Object{nodes, placed} {
		rng.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	}
	return slices.Concat(rest, nodes, placed, pods)
}

// pod looks at a pod of the cluster; true keeps it out of the simulation for now.
func (r *run) pod(p *corev1.Pod) bool {
	switch {
	case p.Spec.NodeName != "" && slices.Contains(r.options.Without, p.Spec.NodeName):
		r.lose(p)
		return true
	case ended(p):
		return true
	case p.DeletionTimestamp != nil:
		r.leaving = append(r.leaving, p)
	case p.Spec.NodeName == "":
		r.waiting = append(r.waiting, r.track(p, "", ""))
	}
	return false
}

// alone is said of a pod that nobody makes anew.
const alone = "it has no controller that makes it anew"

// lose notes a pod of a lost node.
func (r *run) lose(p *corev1.Pod) {
	owner := metav1.GetControllerOfNoCopy(p)
	if ended(p) || p.DeletionTimestamp != nil || owner != nil && (owner.Kind == "Node" || owner.Kind == "DaemonSet") {
		return // they go with the node
	}
	s := &subject{key: types.NamespacedName{Namespace: p.Namespace, Name: p.Name}, from: p.Spec.NodeName}
	r.moved = append(r.moved, s)
	if !replaced(p) {
		s.gone = alone
		return
	}
	r.lost = append(r.lost, departed{s, p})
}

func (r *run) track(p *corev1.Pod, workload, from string) *subject {
	s := &subject{workload: workload, key: types.NamespacedName{Namespace: p.Namespace, Name: p.Name}, uid: p.UID, from: from}
	r.byUID[p.UID] = s
	return s
}

// event learns from the scheduler's events who is evicted for whom.
func (r *run) event(about client.Object, _, reason, message string) {
	if reason != "Preempted" {
		return
	}
	p, ok := about.(*corev1.Pod)
	var by types.UID
	if _, err := fmt.Sscanf(message, "Preempted by pod %s", &by); !ok || err != nil {
		return
	}
	s := &subject{key: types.NamespacedName{Namespace: p.Namespace, Name: p.Name}, from: p.Spec.NodeName}
	if known := r.byUID[p.UID]; known != nil {
		s.workload = known.workload
	}
	if winner := r.byUID[by]; winner != nil {
		winner.evicts = append(winner.evicts, s.key.String())
		s.yields = winner.key.String()
	}
	r.evicted = append(r.evicted, s)
	r.victims = append(r.victims, departed{s, p})
}
