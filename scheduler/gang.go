package scheduler

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yare-project/yare/scheduler/extender"
	"github.com/yare-project/yare/scheduler/framework"
	"github.com/yare-project/yare/scheduler/plugins"
)

// A group is decided on as a whole: its pods are placed one by one, each where the earlier ones leave it room, and all are taken back unless enough of them found a
// place. So two gangs never hold half of what both need.

// trial is one attempt to place a group's pods.
type trial struct {
	s       *Scheduler
	g       *group
	preempt bool
	keep    bool // nominations stay: the victims of an earlier attempt are still leaving
	done    []*placement
	// refused is the first pod for which there was no place, and why.
	refused *item
	cycle   *framework.Cycle
	why     *framework.Diagnosis
	plugins []string // all who refused one
	message string
}

// placement is a pod with its node, for the time being.
type placement struct {
	it      *item
	cycle   *framework.Cycle
	node    string
	victims []*framework.Pod // who must leave the node first
}

// scheduleGroup decides about a group, one of whose pods has its turn.
func (s *Scheduler) scheduleGroup(g *group, it *item) {
	start := s.now()
	if g.object == nil || g.pods() < g.least() {
		s.queue.admit(it, start) // which gates it
		s.tellGate(it)
		return
	}
	members := g.members()
	t, err := s.try(g, members)
	g.domain = nil
	switch {
	case err != nil:
		for _, m := range members {
			s.meter.attempt(m.profile.Name, "error", s.now().Sub(start))
			s.failed(m, err)
		}
		s.tellGroup(g, false, corev1.PodReasonSchedulerError, err.Error())
	case t.enough() && len(t.victims()) == 0:
		s.settleGroup(t, members, start)
	default:
		s.refuseGroup(t, members, start)
	}
}

// try finds the best places for a group: where all of it fits as things are, else where enough of it does, else where it would if others left.
func (s *Scheduler) try(g *group, members []*item) (*trial, error) {
	domains := s.domains(g, members)
	if len(domains) == 0 {
		return &trial{s: s, g: g, message: fmt.Sprintf("no node has the label %s that its pod group must share", g.topology())}, nil
	}
	var best *trial
	waits := s.leaving(g)
	for _, preempt := range []bool{false, true} {
		if preempt && waits > 0 {
			best.keep = true
			best.message = fmt.Sprintf("it waits until %d pods of lower priority have left", waits)
			break
		}
		for _, d := range domains {
			t := &trial{s: s, g: g, preempt: preempt}
			g.domain = d
			if err := t.run(members); err != nil {
				t.undo()
				return nil, err
			}
			if t.enough() && len(t.done) == len(members) {
				return t, nil
			}
			t.undo()
			if best == nil || t.better(best) {
				best = t
			}
		}
		if best.enough() || g.object.Spec.SchedulingPolicy.Gang == nil {
			break
		}
	}
	if !best.enough() {
		return best, nil
	}
	return best, best.redo()
}

// leaving counts the victims of an earlier attempt that are still there.
func (s *Scheduler) leaving(g *group) int {
	for uid := range g.victims {
		if s.placed[uid] == nil {
			delete(g.victims, uid)
		}
	}
	return len(g.victims)
}

// domains are the sets of nodes that the group may go to, the tightest first; one nil set stands for all.
func (s *Scheduler) domains(g *group, members []*item) []framework.Bits {
	key := g.topology()
	if key == "" {
		return []framework.Bits{nil}
	}
	return topologyDomains(s.nodes, key, g.placed, members)
}

// need is how many more pods must find a place.
func (t *trial) need() int { return t.g.least() - len(t.g.placed) }

func (t *trial) enough() bool { return len(t.done) > 0 && len(t.done) >= t.need() }

// better prefers more pods placed, then fewer victims.
func (t *trial) better(o *trial) bool {
	if t.enough() != o.enough() {
		return t.enough()
	}
	if t.enough() && len(t.victims()) != len(o.victims()) {
		return len(t.victims()) < len(o.victims())
	}
	return len(t.done) > len(o.done)
}

func (t *trial) victims() []*framework.Pod {
	var out []*framework.Pod
	for _, p := range t.done {
		out = append(out, p.victims...)
	}
	return out
}

// run places the pods, as long as enough of them can still find a place. The nodes' state is left as if they were there.
func (t *trial) run(members []*item) error {
	t.s.trial = t
	defer func() { t.s.trial = nil }()
	for i, it := range members {
		if len(t.done)+len(members)-i < t.need() {
			return nil
		}
		if err := t.place(it); err != nil {
			return err
		}
	}
	return nil
}

func (t *trial) place(it *item) error {
	c := it.profile.Begin(it.pod)
	d, why, err := it.profile.Decide(c)
	if err != nil {
		return err
	}
	if t.s.extenders != nil && extender.Asked(c) != nil {
		d, why = nil, &framework.Diagnosis{Nodes: 1, Verdicts: []*framework.Status{askedOfGang}}
	}
	p := &placement{it: it, cycle: c}
	switch {
	case d != nil:
		p.node = d.Node
	case t.preempt && t.makeRoom(p, why):
	default:
		t.refuse(it, c, why)
		return nil
	}
	t.s.nodes.AddPod(it.pod, p.node)
	t.done = append(t.done, p)
	for _, r := range it.profile.Reserve {
		if status := r.Reserve(c, p.node); !status.OK() {
			t.done = t.done[:len(t.done)-1]
			t.takeBack(p)
			if status.Is(framework.Failed) {
				return status.Err
			}
			t.refuse(it, c, &framework.Diagnosis{Nodes: 1, Verdicts: []*framework.Status{status}, Plugins: []string{status.Plugin}})
			return nil
		}
	}
	return nil
}

var askedOfGang = framework.Refuse(framework.Unresolvable, "", "an HTTP extender cares about this pod, and extenders are not asked about gangs")

// makeRoom finds pods of lower priority whose leaving would let a pod go, and takes them off the nodes for the time being.
func (t *trial) makeRoom(p *placement, why *framework.Diagnosis) bool {
	for _, post := range p.it.profile.PostFilter {
		chooser, ok := post.(framework.VictimChooser)
		if !ok {
			continue
		}
		choice, status := chooser.Choose(p.cycle, why)
		if !status.OK() {
			continue
		}
		p.node, p.victims = choice.Node, choice.Victims
		for _, v := range p.victims {
			t.s.nodes.RemovePod(v)
		}
		return true
	}
	return false
}

func (t *trial) refuse(it *item, c *framework.Cycle, why *framework.Diagnosis) {
	for _, name := range why.Plugins {
		if !slices.Contains(t.plugins, name) {
			t.plugins = append(t.plugins, name)
		}
	}
	if t.refused != nil {
		return
	}
	t.refused, t.cycle, t.why = it, c, why
	if t.message = why.Message(); why.Nodes == 0 && why.PreFilter == nil {
		t.message = "no nodes available to schedule pods"
	} else {
		t.message = t.s.suggest(it, c, why, t.message)
	}
}

// takeBack undoes one placement.
func (t *trial) takeBack(p *placement) {
	for k := len(p.it.profile.Reserve) - 1; k >= 0; k-- {
		p.it.profile.Reserve[k].Unreserve(p.cycle, p.node)
	}
	t.s.nodes.RemovePod(p.it.pod)
	for _, v := range p.victims {
		t.s.nodes.AddPod(v, p.node)
	}
}

// undo takes all back; who was placed where is still told.
func (t *trial) undo() {
	for k := len(t.done) - 1; k >= 0; k-- {
		t.takeBack(t.done[k])
	}
}

// redo places the pods again where they were.
func (t *trial) redo() error {
	for _, p := range t.done {
		for _, v := range p.victims {
			t.s.nodes.RemovePod(v)
		}
		t.s.nodes.AddPod(p.it.pod, p.node)
		for _, r := range p.it.profile.Reserve {
			if status := r.Reserve(p.cycle, p.node); !status.OK() {
				return fmt.Errorf("reserve what was free a moment ago: %s", status.Message())
			}
		}
	}
	return nil
}

// settleGroup binds the pods that found a place and parks the others.
func (s *Scheduler) settleGroup(t *trial, members []*item, start time.Time) {
	found := map[types.UID]bool{}
	for _, p := range t.done {
		found[p.it.pod.Object.UID] = true
		s.settle(p.it, p.node)
		s.proceed(p.it, p.cycle, p.node, start)
	}
	for _, it := range members {
		if !found[it.pod.Object.UID] {
			s.park(it, t, t.message, nil, start)
		}
	}
	s.tellGroup(t.g, true, "Scheduled", "")
}

// refuseGroup parks a group that can't be placed, after it had others leave if that helps.
func (s *Scheduler) refuseGroup(t *trial, members []*item, start time.Time) {
	message := fmt.Sprintf("pod group %q: ", t.g.key.Name)
	if !t.keep {
		message += fmt.Sprintf("%d of its pods find a place, and %d must at once: ", len(t.done)+len(t.g.placed), t.g.least())
	}
	message += t.message
	nodes := map[types.UID]string{}
	if t.enough() {
		message = fmt.Sprintf("pod group %q: it waits until %d pods of lower priority have left", t.g.key.Name, len(t.victims()))
		t.undo()
		for _, v := range t.victims() {
			t.g.victims[v.Object.UID] = true
		}
		for _, p := range t.done {
			nodes[p.it.pod.Object.UID] = p.node
			if len(p.victims) > 0 {
				s.preempt(p.it.pod, p.node, p.victims)
			}
		}
	}
	for _, it := range members {
		node := nodes[it.pod.Object.UID]
		nominate := &node
		if t.keep && !t.enough() {
			nominate = nil
		}
		s.park(it, t, message, nominate, start)
	}
	s.tellGroup(t.g, false, corev1.PodReasonUnschedulable, message)
}

func (s *Scheduler) park(it *item, t *trial, message string, nominate *string, start time.Time) {
	s.meter.attempt(it.profile.Name, "unschedulable", s.now().Sub(start))
	s.queue.refuse(it, t.plugins, s.now())
	if t.refused != nil {
		it.changes = t.refused.changes
	}
	if nominate != nil {
		s.nominate(it.pod, *nominate)
	}
	s.report(it, corev1.PodReasonUnschedulable, message, nominate)
}

// budgets are the PodDisruptionBudgets with what the trial under way has taken of them.
func (s *Scheduler) budgets() []*policyv1.PodDisruptionBudget {
	all := s.world.budgets()
	if s.trial == nil {
		return all
	}
	victims := s.trial.victims()
	if len(victims) == 0 {
		return all
	}
	return plugins.Charge(all, victims)
}
