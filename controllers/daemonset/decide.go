package daemonset

import (
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/yare-project/yare/controllers/pod"
)

// input is what a decision rests on.
type input struct {
	set   *appsv1.DaemonSet
	nodes []*corev1.Node
	pods  []*corev1.Pod // the set's own
	hash  string        // of the present template
	now   time.Time
	// pause says how long a failed pod on a node must stay before it may be replaced; asking when it is zero counts as doing so.
	pause func(ds *appsv1.DaemonSet, node string) time.Duration
}

// plan is what one pass is to do.
type plan struct {
	create []string // names of nodes
	remove []*corev1.Pod
	status appsv1.DaemonSetStatus
	events []event
	after  time.Duration
}

type event struct{ kind, reason, message string }

// spot is one node with the set's pods on it.
type spot struct {
	node      string
	known     bool // the node exists
	run, stay bool
	pods      []*corev1.Pod // oldest first
}

type view struct {
	input
	spots    []*spot
	minReady time.Duration
	surge    int
	unavail  int
	plan     plan
}

func decide(in input) plan {
	v := &view{input: in, minReady: time.Duration(in.set.Spec.MinReadySeconds) * time.Second}
	v.gather()
	desired := 0
	for _, s := range v.spots {
		if s.run {
			desired++
		}
	}
	v.bounds(desired)
	for _, s := range v.spots {
		v.keep(s)
	}
	if in.set.Spec.UpdateStrategy.Type != appsv1.OnDeleteDaemonSetStrategyType && len(v.plan.create)+len(v.plan.remove) == 0 {
		if v.surge > 0 {
			v.rollWithSurge()
		} else {
			v.roll()
		}
	}
	v.status(desired)
	return v.plan
}

func (v *view) gather() {
	byNode := map[string]*spot{}
	model := modelOf(v.set)
	at := func(name string) *spot {
		s := byNode[name]
		if s == nil {
			s = &spot{node: name}
			byNode[name] = s
			v.spots = append(v.spots, s)
		}
		return s
	}
	for _, n := range v.nodes {
		s := at(n.Name)
		s.known = true
		s.run, s.stay = belongs(model, n)
	}
	for _, p := range v.pods {
		s := at(nodeOf(p))
		s.pods = append(s.pods, p)
	}
	slices.SortFunc(v.spots, func(a, b *spot) int { return strings.Compare(a.node, b.node) })
	for _, s := range v.spots {
		slices.SortFunc(s.pods, func(a, b *corev1.Pod) int {
			if bound := (a.Spec.NodeName != "") != (b.Spec.NodeName != ""); bound {
				if a.Spec.NodeName != "" {
					return -1
				}
				return 1
			}
			if t := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); t != 0 {
				return t
			}
			return strings.Compare(a.Name, b.Name)
		})
	}
}

// bounds resolves maxSurge and maxUnavailable, both rounded up; when surge is off, at least one pod may be unavailable.
func (v *view) bounds(desired int) {
	r := v.set.Spec.UpdateStrategy.RollingUpdate
	v.unavail = 1
	if r == nil {
		return
	}
	if n, err := intstr.GetScaledValueFromIntOrPercent(intstr.ValueOrDefault(r.MaxSurge, intstr.FromInt32(0)), desired, true); err == nil {
		v.surge = n
	}
	if n, err := intstr.GetScaledValueFromIntOrPercent(intstr.ValueOrDefault(r.MaxUnavailable, intstr.FromInt32(1)), desired, true); err == nil {
		v.unavail = n
	}
	if v.surge == 0 {
		v.unavail = max(v.unavail, 1)
	}
}

// keep brings one node to one pod, or to none.
func (v *view) keep(s *spot) {
	if !s.known {
		return // the pod garbage collector takes the pods of nodes that are gone
	}
	var running []*corev1.Pod
	for _, p := range s.pods {
		switch {
		case p.DeletionTimestamp != nil:
		case !s.stay:
			v.plan.remove = append(v.plan.remove, p)
		case pod.Finished(p):
			v.replace(s, p)
		default:
			running = append(running, p)
		}
	}
	if s.run && len(s.pods) == 0 {
		v.plan.create = append(v.plan.create, s.node)
		return
	}
	if !s.stay || len(running) < 2 {
		return
	}
	keep := running[:1]
	if v.surge > 0 { // one of each template may run side by side
		fresh, old := v.split(running)
		keep = slices.Concat(fresh[:min(1, len(fresh))], old[:min(1, len(old))])
		if len(old) > 0 && len(fresh) > 0 && !v.available(old[0]) {
			keep = fresh[:1]
		}
	}
	for _, p := range running {
		if !slices.Contains(keep, p) {
			v.plan.remove = append(v.plan.remove, p)
		}
	}
}

// replace deletes a pod that ended, so that the next pass makes another: after a pause if it failed.
func (v *view) replace(s *spot, p *corev1.Pod) {
	what := event{corev1.EventTypeNormal, "SucceededDaemonPod", fmt.Sprintf("Found succeeded daemon pod %s/%s on node %s, will try to delete it", p.Namespace, p.Name, s.node)}
	if p.Status.Phase == corev1.PodFailed {
		if wait := v.pause(v.set, s.node); wait > 0 {
			if v.plan.after == 0 || wait < v.plan.after {
				v.plan.after = wait
			}
			return
		}
		what = event{corev1.EventTypeWarning, "FailedDaemonPod", fmt.Sprintf("Found failed daemon pod %s/%s on node %s, will try to kill it", p.Namespace, p.Name, s.node)}
	}
	v.plan.remove = append(v.plan.remove, p)
	v.plan.events = append(v.plan.events, what)
}

func (v *view) split(pods []*corev1.Pod) (fresh, old []*corev1.Pod) {
	for _, p := range pods {
		if p.Labels[appsv1.DefaultDaemonSetUniqueLabelKey] == v.hash {
			fresh = append(fresh, p)
		} else {
			old = append(old, p)
		}
	}
	return fresh, old
}

func (v *view) available(p *corev1.Pod) bool {
	ok, wait := pod.Available(p, v.minReady, v.now)
	if wait > 0 && (v.plan.after == 0 || wait < v.plan.after) {
		v.plan.after = wait
	}
	return ok
}

// active lists a spot's pods that are not on their way out.
func (s *spot) active() []*corev1.Pod {
	return slices.DeleteFunc(slices.Clone(s.pods), func(p *corev1.Pod) bool { return p.DeletionTimestamp != nil })
}

// roll deletes old pods as far as maxUnavailable allows: those that are not available anyway first.
func (v *view) roll() {
	unavailable := 0
	var free, candidates []*corev1.Pod
	for _, s := range v.spots {
		if !s.known || !s.run && len(s.pods) == 0 {
			continue
		}
		fresh, old := v.split(s.active())
		switch {
		case len(fresh) == 0 && len(old) == 0, len(fresh) > 0 && len(old) > 0:
			unavailable++
		case len(fresh) > 0:
			if !v.available(fresh[0]) {
				unavailable++
			}
		case !v.available(old[0]):
			unavailable++
			free = append(free, old[0])
		default:
			candidates = append(candidates, old[0])
		}
	}
	v.plan.remove = append(v.plan.remove, free...)
	v.plan.remove = append(v.plan.remove, candidates[:min(max(0, v.unavail-unavailable), len(candidates))]...)
}

// rollWithSurge makes new pods beside old ones, as many at once as maxSurge says, and deletes an old one when its successor is available.
func (v *view) rollWithSurge() {
	surging := 0
	var free, candidates []string
	for _, s := range v.spots {
		fresh, old := v.split(s.active())
		switch {
		case !s.known || len(old) == 0:
		case len(fresh) == 0 && !v.available(old[0]):
			if s.run {
				free = append(free, s.node)
			} else {
				v.plan.remove = append(v.plan.remove, old[0])
			}
		case len(fresh) == 0 && s.run:
			candidates = append(candidates, s.node)
		case len(fresh) == 0:
		case v.available(fresh[0]):
			v.plan.remove = append(v.plan.remove, old[0])
		default:
			surging++
		}
	}
	v.plan.create = append(v.plan.create, free...)
	v.plan.create = append(v.plan.create, candidates[:min(max(0, v.surge-surging), len(candidates))]...)
}

func (v *view) status(desired int) {
	st := *v.set.Status.DeepCopy()
	st.ObservedGeneration, st.DesiredNumberScheduled = v.set.Generation, int32(desired)
	st.CurrentNumberScheduled, st.NumberMisscheduled, st.NumberReady, st.UpdatedNumberScheduled, st.NumberAvailable = 0, 0, 0, 0, 0
	for _, s := range v.spots {
		if len(s.pods) == 0 || !s.known {
			continue
		}
		if !s.run {
			st.NumberMisscheduled++
			continue
		}
		st.CurrentNumberScheduled++
		newest := s.pods[len(s.pods)-1]
		oldest := s.pods[0]
		if pod.Ready(oldest) || pod.Ready(newest) {
			st.NumberReady++
			if v.available(oldest) || v.available(newest) {
				st.NumberAvailable++
			}
		}
		if newest.Labels[appsv1.DefaultDaemonSetUniqueLabelKey] == v.hash {
			st.UpdatedNumberScheduled++
		}
	}
	st.NumberUnavailable = int32(desired) - st.NumberAvailable
	v.plan.status = st
}
