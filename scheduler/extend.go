package scheduler

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yare-project/yare/scheduler/extender"
	"github.com/yare-project/yare/scheduler/framework"
	"github.com/yare-project/yare/scheduler/plugins"
)

// mostAsks is how many pods extenders are asked about at once.
const mostAsks = 64

// extended makes the extenders a part of a profile.
func (s *Scheduler) extended(set framework.Set) framework.Set {
	if s.extenders == nil {
		return set
	}
	p := s.extenders.Plugin()
	set.PreFilter, set.Filter = append(set.PreFilter, p), append(set.Filter, p)
	set.PreScore, set.Score = append(set.PreScore, p), append(set.Score, framework.WeightedScore{ScorePlugin: p, Weight: 1})
	set.Bind = append([]framework.BindPlugin{p}, set.Bind...)
	return set
}

// ask puts a question to the extenders while other pods are decided on, and decides on this one again once they answered.
func (s *Scheduler) ask(it *item, q *extender.Question) {
	s.queue.leave(it)
	it.place = asking
	s.tasks.Go(func() {
		select {
		case s.asks <- struct{}{}:
		case <-s.ctx.Done():
			return
		}
		a := s.extenders.Ask(s.ctx, q)
		<-s.asks
		s.inbox.tell(func(s *Scheduler) { s.answered(it, q, a) })
	})
}

func (s *Scheduler) answered(it *item, q *extender.Question, a *extender.Answer) {
	if s.queue.items[q.Pod.UID] != it || it.place != asking || s.ctx.Err() != nil {
		return // it is gone, or bound by somebody else
	}
	it.place = nowhere
	switch {
	case selfChanged(q.Pod, it.pod.Object):
		s.queue.activate(it, s.now()) // what was asked about is no more
	case a.Err != nil:
		s.failed(it, a.Err)
	default:
		s.scheduleFollowing(it, a)
	}
}

// approve has extenders say who may be preempted for a pod; false if none wants to.
func (s *Scheduler) approve(pod *framework.Pod, choices []framework.Choice) bool {
	if !s.extenders.Preempts(pod.Object) {
		return false
	}
	offered, present := map[string]extender.Victims{}, map[string]map[types.UID]*corev1.Pod{}
	for _, c := range choices {
		v := extender.Victims{Violations: c.Violations}
		for _, p := range c.Victims {
			v.Pods = append(v.Pods, p.Object)
		}
		offered[c.Node], present[c.Node] = v, map[types.UID]*corev1.Pod{}
		if i, ok := s.nodes.Slot(c.Node); ok {
			for _, p := range s.nodes.Pods[i] {
				present[c.Node][p.Object.UID] = p.Object
			}
		}
	}
	s.tasks.Go(func() {
		left, err := s.extenders.Preempt(s.ctx, pod.Object, offered, present)
		s.inbox.tell(func(s *Scheduler) { s.approved(pod.Object, left, err) })
	})
	return true
}

// approved carries out the least harmful of the choices that the extenders left, if the pod still waits.
func (s *Scheduler) approved(pod *corev1.Pod, left map[string]extender.Victims, err error) {
	it := s.queue.items[pod.UID]
	if it == nil || it.place != parked || selfChanged(pod, it.pod.Object) || s.ctx.Err() != nil {
		return
	}
	if err != nil {
		s.failed(it, fmt.Errorf("preemption: %w", err))
		return
	}
	var choices []framework.Choice
	for node, v := range left {
		c := framework.Choice{Node: node, Violations: v.Violations}
		for _, victim := range v.Pods {
			if now := s.placed[victim.UID]; now != nil && s.nodes.Name[now.Node()] == node && now.Priority < it.pod.Priority {
				c.Victims = append(c.Victims, now)
			}
		}
		if len(c.Victims) > 0 {
			choices = append(choices, c)
		}
	}
	if len(choices) == 0 {
		if len(left) > 0 { // the victims left by themselves meanwhile
			s.queue.ready(it, s.now())
		}
		return
	}
	best := plugins.LeastHarm(choices)
	s.preempt(it.pod, best.Node, best.Victims)
	s.nominate(it.pod, best.Node)
	s.writer.write(it.pod.Object, corev1.PodReasonUnschedulable, it.said, &best.Node)
}
