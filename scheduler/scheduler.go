package scheduler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/scheduler/dra"
	"github.com/yare-project/yare/scheduler/explain"
	"github.com/yare-project/yare/scheduler/extender"
	"github.com/yare-project/yare/scheduler/framework"
	"github.com/yare-project/yare/scheduler/gang"
	"github.com/yare-project/yare/scheduler/plugins"
	"github.com/yare-project/yare/scheduler/policy"
)

// Config is what a scheduler needs.
type Config struct {
	// Transport reaches the API as the scheduler's own user: what it binds, writes and deletes goes through it.
	Transport client.Transport
	// Caches holds what it reads. Whoever made them runs them; New must come before that.
	Caches *client.Caches
	Clock  clock.WithTicker // nil means the real one
	Log    *slog.Logger     // nil means slog.Default()
	// Events records a Kubernetes Event; nil drops them. It must not block.
	Events func(about client.Object, kind, reason, message string)
	// Metrics collects numbers under the names that Kubernetes' scheduler uses; nil means that nobody does.
	Metrics prometheus.Registerer
	// Profiles, from LoadConfig; the zero value means the defaults.
	Profiles Profiles
	// Plugins are more plugins by name, for Profiles to enable. They can't replace those of scheduler/plugins.
	Plugins map[string]framework.Factory
	// WithoutPolicies is for an API server that does not serve scheduling.yare.io.
	WithoutPolicies bool
	// WithoutGroups is for an API server that does not serve PodGroups (scheduling.k8s.io/v1alpha2).
	WithoutGroups bool
	// Sources know numbers about nodes for SchedulingPolicies; nil means metrics.k8s.io, where it is served.
	Sources []policy.Source
	// Rand chooses among equally good nodes; nil means a random one.
	Rand *rand.Rand
}

const (
	patience  = 5 * time.Minute // how long a pod is parked at most without being tried again
	mostBinds = 256             // bindings under way at once
)

// Scheduler assigns pods to nodes. Make one with New.
type Scheduler struct {
	config Config
	inbox  inbox
	world  *world
	writer *statusWriter
	meter  *meters

	// What follows belongs to Run's goroutine.
	nodes     *framework.Nodes
	queue     *queue
	profiles  map[string]*framework.Profile
	placed    map[types.UID]*framework.Pod // on nodes or assumed to be
	nominated map[types.UID]nomination
	policies  *policy.Book
	devices   *dra.Book
	explained explain.Cache
	waiting   map[types.UID]*held // placed pods that Permit plugins hold back
	groups    *groups
	gangs     *gang.Decider
	untold    []untold // by time

	groupWrites inOrder
	extenders   *extender.Set // nil without

	binds chan struct{} // one token per binding under way
	asks  chan struct{} // one token per pod that extenders are asked about
	tasks tasks
	ctx   context.Context // of Run; for what it starts
}

type nomination struct {
	pod  *framework.Pod
	node string
}

// New makes a scheduler and registers it with the caches.
func New(c Config) (*Scheduler, error) {
	if c.Transport == nil || c.Caches == nil {
		return nil, errors.New("scheduler: Config needs Transport and Caches")
	}
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	if c.Events == nil {
		c.Events = func(client.Object, string, string, string) {}
	}
	if c.Sources == nil && !c.WithoutPolicies {
		c.Sources = []policy.Source{policy.Usage{Transport: c.Transport}}
	}
	if c.Rand == nil {
		c.Rand = rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	}
	if len(c.Profiles.Profiles) == 0 {
		var err error
		if c.Profiles, err = ParseConfig(nil); err != nil {
			return nil, err
		}
	}
	for _, note := range c.Profiles.Notes {
		c.Log.Warn("scheduler configuration: " + note)
	}
	s := &Scheduler{config: c, nodes: framework.NewNodes(), profiles: map[string]*framework.Profile{}, placed: map[types.UID]*framework.Pod{},
		nominated: map[types.UID]nomination{}, waiting: map[types.UID]*held{}, binds: make(chan struct{}, mostBinds), asks: make(chan struct{}, mostAsks), meter: newMeters(c.Metrics)}
	s.inbox.notify = make(chan struct{}, 1)
	s.groups = newGroups()
	s.groupWrites = inOrder{todo: map[types.NamespacedName]func(){}, run: func(f func()) { s.tasks.Go(f) }, tell: s.inbox.tell}
	s.policies = policy.NewBook(s.nodes)
	s.devices = s.newDevices()
	s.writer = newStatusWriter(c)
	s.world = newWorld(c, &s.inbox)
	if err := s.build(); err != nil {
		return nil, fmt.Errorf("scheduler: %w", err)
	}
	s.world.watch()
	return s, nil
}

func (s *Scheduler) build() error {
	factories := plugins.Registry()
	factories[policy.Name] = s.policies.Factory
	factories[dra.Name] = s.devices.Factory
	for name, f := range s.config.Plugins {
		if _, taken := factories[name]; taken {
			return fmt.Errorf("plugin %q can't be replaced", name)
		}
		factories[name] = f
	}
	handle := framework.Handle{Nodes: s.nodes, Bind: s.bindPod, Preempt: s.preempt, Budgets: s.budgets, Groups: s.groups, Siblings: s.world.siblings, Volumes: s.world, Capacity: s.world, Devices: s.devices,
		Ignored: extender.Ignored(s.config.Profiles.Extenders)}
	if list := s.config.Profiles.Extenders; len(list) > 0 {
		var err error
		if s.extenders, err = extender.New(list, s.config.Log); err != nil {
			return err
		}
		handle.Approve = s.approve
	}
	var sort framework.QueueSortPlugin
	for _, pc := range s.config.Profiles.Profiles {
		p, err := buildProfile(pc, factories, handle, s.config.Rand, s.extended)
		if err != nil {
			return err
		}
		if sort != nil && sort.Name() != p.QueueSort.Name() {
			return fmt.Errorf("profile %q: plugins.queueSort: must be the same for all profiles: it is %s, that of another %s", p.Name, p.QueueSort.Name(), sort.Name())
		}
		sort, s.profiles[p.Name] = p.QueueSort, p
	}
	s.queue = newQueue(sort.Less, s.config.Profiles.InitialBackoff, s.config.Profiles.MaxBackoff, patience)
	s.queue.added, s.queue.removed = s.groups.queue, s.groups.leave
	s.gangs = s.newGangs()
	s.groups.domain = s.gangs.Domain
	return nil
}

// SchedulerNames lists the values of spec.schedulerName that this scheduler serves.
func (s *Scheduler) SchedulerNames() []string {
	var out []string
	for name := range maps.Keys(s.profiles) {
		out = append(out, name)
	}
	return out
}

// Run schedules until ctx ends, then waits for the bindings under way.
func (s *Scheduler) Run(ctx context.Context) error {
	s.ctx = ctx
	s.tasks.Go(func() { s.writer.run(ctx) })
	for _, source := range s.config.Sources {
		wanted := s.policies.OnDemand()
		s.tasks.Go(func() { s.readSource(ctx, source, wanted) })
	}
	defer s.tasks.Wait()
	if err := s.world.wait(ctx); err != nil {
		return nil // ctx ended
	}
	for ctx.Err() == nil {
		s.drain()
		for it := s.queue.pop(s.now()); it != nil && ctx.Err() == nil; it = s.queue.pop(s.now()) {
			s.schedule(it)
			s.drain()
		}
		s.expireHeld(s.now())
		s.tellGates(s.now())
		s.meter.queue(s.queue)
		s.sleep(ctx)
	}
	return nil
}

func (s *Scheduler) now() time.Time { return s.config.Clock.Now() }

// sleep waits for news, the next due time, or the end of ctx.
func (s *Scheduler) sleep(ctx context.Context) {
	var timer <-chan time.Time
	at, ok := s.queue.due()
	for _, h := range s.waiting {
		if !ok || h.until.Before(at) {
			at, ok = h.until, true
		}
	}
	if len(s.untold) > 0 && (!ok || s.untold[0].at.Before(at)) {
		at, ok = s.untold[0].at, true
	}
	if ok {
		t := s.config.Clock.NewTimer(at.Sub(s.now()))
		defer t.Stop()
		timer = t.C()
	}
	select {
	case <-ctx.Done():
	case <-s.inbox.notify:
	case <-timer:
	}
}

// schedule decides about one pod and has the decision carried out.
func (s *Scheduler) schedule(it *item) {
	if g := s.groups.of(it.pod); g != nil && (g.object == nil || g.gang()) {
		s.scheduleGroup(g, it)
		return
	}
	s.scheduleFollowing(it, nil)
}

// scheduleFollowing is schedule with what extenders said about the pod.
func (s *Scheduler) scheduleFollowing(it *item, a *extender.Answer) {
	start := s.now()
	c := it.profile.Begin(it.pod)
	if a != nil {
		extender.Follow(c, a)
	}
	d, why, err := it.profile.Decide(c)
	if s.extenders != nil && err == nil {
		if q := extender.Asked(c); q != nil {
			s.ask(it, q)
			return
		}
	}
	switch {
	case err != nil:
		s.meter.attempt(it.profile.Name, "error", s.now().Sub(start))
		s.failed(it, err)
	case d == nil:
		s.meter.attempt(it.profile.Name, "unschedulable", s.now().Sub(start))
		s.unschedulable(it, c, why)
	default:
		s.assume(it, c, d.Node, start)
	}
}

// failed puts off a pod for whom something went wrong that is nobody's decision.
func (s *Scheduler) failed(it *item, err error) {
	s.config.Log.Error("pod not scheduled; it will be retried", "pod", it.pod.Key(), "error", err)
	s.queue.fail(it, s.now())
	s.nominateUID(it.pod.Object.UID, nil, "")
	s.report(it, corev1.PodReasonSchedulerError, err.Error(), new(string))
}

// unschedulable parks a pod that fits nowhere, after the PostFilter plugins had their chance.
func (s *Scheduler) unschedulable(it *item, c *framework.Cycle, why *framework.Diagnosis) {
	nominate := s.postFilter(it, c, why)
	s.queue.refuse(it, why.Plugins, s.now())
	if nominate != nil {
		s.nominate(it.pod, *nominate)
	}
	message := why.Message()
	if why.Nodes == 0 && why.PreFilter == nil {
		message = "no nodes available to schedule pods"
	} else if nominate == nil || *nominate == "" { // preemption makes no room either
		message = s.suggest(it, c, why, message)
	}
	s.report(it, corev1.PodReasonUnschedulable, message, nominate)
	if g := s.groups.of(it.pod); g != nil && g.object != nil && len(g.placed) == 0 {
		s.tellGroup(g, false, corev1.PodReasonUnschedulable, message)
	}
}

func (s *Scheduler) postFilter(it *item, c *framework.Cycle, why *framework.Diagnosis) *string {
	if why.Nodes == 0 {
		return nil
	}
	for _, p := range it.profile.PostFilter {
		node, keep, status := p.PostFilter(c, why)
		why.PostFilter = status.Message()
		if status.Is(framework.Failed) {
			s.config.Log.Error("post filter failed", "plugin", p.Name(), "pod", it.pod.Key(), "error", status.Message())
		}
		if !keep || status.OK() {
			return &node
		}
	}
	return nil
}

// report tells the pod's user why it is not scheduled: by an event each time, and by its condition. A nil nominate leaves the nomination as it is.
func (s *Scheduler) report(it *item, reason, message string, nominate *string) {
	it.said = message
	text := message
	if len(text) > 1024 {
		text = text[:1020] + " ..."
	}
	s.config.Events(it.pod.Object, corev1.EventTypeWarning, "FailedScheduling", text)
	s.writer.write(it.pod.Object, reason, message, nominate)
}
