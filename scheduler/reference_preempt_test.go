package scheduler

import (
	"cmp"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/yare-project/yare/scheduler/framework"
)

// modelBudget is a PodDisruptionBudget: how many pods with a label may go.
type modelBudget struct {
	namespace, label, value string
	allowed                 int
}

// loss is who would have to leave a node for a pod.
type loss struct {
	victims []*corev1.Pod // the most important first
	broken  int           // budgets
}

// losses are the nodes that preemption could make room on, each with the least loss.
func (m *model) losses(p *corev1.Pod) map[string]loss {
	out := map[string]loss{}
	if never := p.Spec.PreemptionPolicy; never != nil && *never == corev1.PreemptNever || !m.schedulable(p) {
		return out
	}
	if m.waits(p) {
		return out
	}
	for name, n := range m.nodes {
		if m.verdict(p, n) != framework.Unschedulable {
			continue
		}
		if l := m.lossOn(p, n); len(l.victims) > 0 {
			out[name] = l
		}
	}
	return out
}

// waits tells whether pods are leaving the node already that the pod is nominated for.
func (m *model) waits(p *corev1.Pod) bool {
	n := m.nodes[p.Status.NominatedNodeName]
	if n == nil || m.verdict(p, n) == framework.Unresolvable {
		return false
	}
	for _, o := range m.podsOn(n.Name) {
		for _, c := range o.Status.Conditions {
			if o.DeletionTimestamp != nil && *o.Spec.Priority < *p.Spec.Priority && c.Type == corev1.DisruptionTarget && c.Reason == corev1.PodReasonPreemptionByScheduler {
				return true
			}
		}
	}
	return false
}

// moreImportant orders pods by falling priority, then by age.
func moreImportant(a, b *corev1.Pod) int {
	return cmp.Or(cmp.Compare(*b.Spec.Priority, *a.Spec.Priority), a.Status.StartTime.Compare(b.Status.StartTime.Time))
}

// lossOn takes all pods of lower priority off the node, and puts back as many as it can: first those that budgets protect, and of both sorts the most important
// first.
func (m *model) lossOn(p *corev1.Pod, n *corev1.Node) (l loss) {
	var lower, present []*corev1.Pod
	for _, o := range m.pods {
		if o.Spec.NodeName == n.Name && *o.Spec.Priority < *p.Spec.Priority {
			lower = append(lower, o)
		} else {
			present = append(present, o)
		}
	}
	if len(lower) == 0 || m.with(present).verdict(p, n) != framework.Success {
		return loss{}
	}
	slices.SortFunc(lower, moreImportant)
	protected, others := m.protected(lower)
	for k, o := range slices.Concat(protected, others) {
		if m.with(append(slices.Clone(present), o)).verdict(p, n) == framework.Success {
			present = append(slices.Clone(present), o)
			continue
		}
		l.victims = append(l.victims, o)
		if k < len(protected) {
			l.broken++
		}
	}
	slices.SortFunc(l.victims, moreImportant)
	return l
}

// protected are the pods whose leaving would break a budget, if all left in this order.
func (m *model) protected(pods []*corev1.Pod) (protected, others []*corev1.Pod) {
	left := map[int]int{}
	for _, p := range pods {
		broken := false
		for k, b := range m.budgets {
			if b.namespace == p.Namespace && b.value == p.Labels[b.label] && !broken {
				left[k]++
				broken = left[k] > b.allowed
			}
		}
		if broken {
			protected = append(protected, p)
		} else {
			others = append(others, p)
		}
	}
	return protected, others
}

// compareLoss is negative if a does less harm than b: fewer broken budgets, a less important first victim, a lower sum of priorities, fewer victims, a later
// start of the first to start of the most important.
func compareLoss(a, b loss) int {
	sum := func(l loss) (sum int64) {
		for _, v := range l.victims {
			sum += int64(*v.Spec.Priority) + math.MaxInt32 + 1
		}
		return sum
	}
	first := func(l loss) int64 {
		start := int64(math.MaxInt64)
		for _, v := range l.victims {
			if *v.Spec.Priority == *l.victims[0].Spec.Priority {
				start = min(start, v.Status.StartTime.Unix())
			}
		}
		return start
	}
	return cmp.Or(cmp.Compare(a.broken, b.broken), cmp.Compare(*a.victims[0].Spec.Priority, *b.victims[0].Spec.Priority), cmp.Compare(sum(a), sum(b)),
		cmp.Compare(len(a.victims), len(b.victims)), cmp.Compare(first(b), first(a)))
}
