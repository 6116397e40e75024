package scheduler

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yare-project/yare/scheduler/framework"
	"github.com/yare-project/yare/scheduler/gang"
	"github.com/yare-project/yare/scheduler/plugins"
)

// newGangs makes what decides about groups.
func (s *Scheduler) newGangs() *gang.Decider {
	return &gang.Decider{Nodes: s.nodes, Explain: func(i int, c *framework.Cycle, why *framework.Diagnosis, message string) string {
		return s.suggest(s.groups.members[i], c, why, message)
	}}
}

// scheduleGroup decides about a group, one of whose pods has its turn.
func (s *Scheduler) scheduleGroup(g *group, it *item) {
	switch {
	case g.inquiry != nil: // it came while extenders are asked about the others
		s.queue.leave(it)
		it.place = asking
	case g.object == nil || g.pods() < g.least():
		s.queue.admit(it, s.now()) // which gates it
		s.tellGate(it)
	default:
		s.decideGroup(g, &inquiry{answers: map[types.UID]answered{}})
	}
}

// decideGroup decides on the state of the moment, by what extenders said so far.
func (s *Scheduler) decideGroup(g *group, q *inquiry) {
	start := s.now()
	members := g.members()
	if s.inquire(g, members, q) {
		s.askGroup(g, members, q)
		return
	}
	plan, err := s.plan(g, members, q)
	if err == nil && plan.Open {
		s.askGroup(g, members, q)
		return
	}
	s.meter.group(members[0].profile.Name, plan, err, s.now().Sub(start))
	switch {
	case err != nil:
		s.failGroup(g, members, err, start)
	case plan.Settled:
		s.settleGroup(g, plan, members, start)
	default:
		s.refuseGroup(g, plan, members, start)
	}
}

// failGroup puts off a group for which something went wrong that is nobody's decision.
func (s *Scheduler) failGroup(g *group, members []*item, err error, start time.Time) {
	for _, m := range members {
		s.meter.attempt(m.profile.Name, "error", s.now().Sub(start))
		s.failed(m, err)
	}
	s.tellGroup(g, false, corev1.PodReasonSchedulerError, err.Error())
}

// plan finds the best places for a group. While the victims of an earlier plan are leaving, nobody else has to.
func (s *Scheduler) plan(g *group, members []*item, q *inquiry) (*gang.Plan, error) {
	w := &gang.Want{Least: g.least() - len(g.placed), Topology: g.topology(), Preempt: s.leaving(g) == 0, Final: q.rounds >= mostRounds}
	for _, it := range members {
		w.Members = append(w.Members, gang.Member{Pod: it.pod, Profile: it.profile})
	}
	if w.Topology != "" {
		for _, p := range g.placed {
			w.Placed = append(w.Placed, p)
		}
	}
	if ready := len(members) + len(g.placed); ready < g.least() {
		return &gang.Plan{Refused: -1, Plugins: []string{plugins.GangScheduling}, Message: fmt.Sprintf("%d more are held back, by scheduling gates or for want of something they name", g.pods()-ready)}, nil
	}
	s.groups.deciding, s.groups.members = g, members
	defer func() { s.groups.deciding, s.groups.members = nil, nil }()
	if s.extenders != nil {
		s.gangs.Ask = q
	}
	return s.gangs.Decide(w)
}

// leaving counts the victims of an earlier plan that are still there.
func (s *Scheduler) leaving(g *group) int {
	for uid := range g.victims {
		if s.placed[uid] == nil {
			delete(g.victims, uid)
		}
	}
	return len(g.victims)
}

// settleGroup binds the pods that found a place. The others are tried again, each for itself: room may be made for them.
func (s *Scheduler) settleGroup(g *group, plan *gang.Plan, members []*item, start time.Time) {
	found := make([]bool, len(members))
	for _, p := range plan.Placements {
		found[p.Member] = true
		s.settle(members[p.Member], p.Node)
	}
	for _, p := range plan.Placements {
		s.proceed(members[p.Member], p.Cycle, p.Node, start)
	}
	for i, it := range members {
		if !found[i] {
			s.queue.activate(it, s.now())
		}
	}
	s.tellGroup(g, true, "Scheduled", "")
}

// refuseGroup parks a group that can't be placed, after it had others leave if that helps.
func (s *Scheduler) refuseGroup(g *group, plan *gang.Plan, members []*item, start time.Time) {
	keep := len(g.victims) > 0 // nominations stay: the victims of an earlier plan are still leaving
	message := fmt.Sprintf("pod group %q: ", g.key.Name)
	nodes := map[types.UID]string{}
	switch victims := plan.Victims(); {
	case keep:
		message += leave(len(g.victims))
	case plan.Enough():
		message += leave(len(victims))
		for _, v := range victims {
			g.victims[v.Object.UID] = true
		}
		for _, p := range plan.Placements {
			it := members[p.Member]
			if nodes[it.pod.Object.UID] = p.Node; len(p.Victims) > 0 {
				s.preempt(it.pod, p.Node, p.Victims)
			}
		}
	case plan.Refused < 0:
		message += fmt.Sprintf("%d of its pods must be placed at once: %s", g.least(), plan.Message)
	case len(g.placed) >= g.least():
		message += fmt.Sprintf("%d of its pods are placed, and there is no place for more: %s", len(g.placed), plan.Message)
	default:
		message += fmt.Sprintf("%d of its pods find a place, and %d must at once: %s", len(plan.Placements)+len(g.placed), g.least(), plan.Message)
	}
	for _, it := range members {
		nominate := new(string)
		if *nominate = nodes[it.pod.Object.UID]; keep {
			nominate = nil
		}
		s.meter.attempt(it.profile.Name, "unschedulable", s.now().Sub(start))
		s.queue.refuse(it, plan.Plugins, s.now())
		if plan.Refused >= 0 {
			it.changes = members[plan.Refused].changes
		}
		if nominate != nil {
			s.nominate(it.pod, *nominate)
		}
		s.report(it, corev1.PodReasonUnschedulable, message, nominate)
	}
	s.tellGroup(g, false, corev1.PodReasonUnschedulable, message)
}

func leave(n int) string { return fmt.Sprintf("it waits until %d pods of lower priority have left", n) }

// budgets are the PodDisruptionBudgets with what the plan under decision has taken of them.
func (s *Scheduler) budgets() []*policyv1.PodDisruptionBudget {
	all := s.world.budgets()
	if victims := s.gangs.Victims(); len(victims) > 0 {
		return plugins.Charge(all, victims)
	}
	return all
}
