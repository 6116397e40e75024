package why

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	schedulingv1alpha2 "k8s.io/api/scheduling/v1alpha2"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// podGroup explains a PodGroup by its condition and its pods.
func podGroup(f Facts, g *schedulingv1alpha2.PodGroup) Report {
	r := Report{Object: "podgroup/" + g.Name, Steps: append([]Step{created(g)}, eventSteps(f.Events)...)}
	placed := 0
	for _, p := range f.Pods {
		if p.Spec.NodeName != "" {
			placed++
		}
	}
	r.State = fmt.Sprintf("%d of %d pods have a node", placed, len(f.Pods))
	least := 1
	if gang := g.Spec.SchedulingPolicy.Gang; gang != nil {
		least = int(gang.MinCount)
		r.State += fmt.Sprintf(", and %d must go at once", least)
	}
	c := meta.FindStatusCondition(g.Status.Conditions, schedulingv1alpha2.PodGroupScheduled)
	if c != nil && c.Status == metav1.ConditionTrue {
		r.Steps = append(r.Steps, Step{At: c.LastTransitionTime.Time, By: "scheduler", What: "placed the group"})
	}
	switch {
	case g.DeletionTimestamp != nil && holds(f.Pods) > 0:
		deleted(&r, g, f.Now)
		r.Waits = []Wait{{Loop: "podgroup protection controller", For: fmt.Sprintf("its pods to end or go: %d have not", holds(f.Pods))}}
	case g.DeletionTimestamp != nil:
		deleted(&r, g, f.Now)
	case len(f.Pods) < least:
		r.Waits = []Wait{{Loop: "whoever makes its pods", For: fmt.Sprintf("%d more pods with spec.schedulingGroup.podGroupName %q: none of the gang is placed before there are %d", least-len(f.Pods), g.Name, least)}}
	case c != nil && c.Status == metav1.ConditionFalse:
		w := Wait{Loop: "scheduler", Since: &c.LastTransitionTime.Time}
		w.For, w.Changes = splitChanges(c.Message)
		r.Waits = []Wait{w}
	default:
		r.Waits = podGroups(f)
	}
	return r
}

// holds counts the pods that are not done.
func holds(pods []*corev1.Pod) (n int) {
	for _, p := range pods {
		if p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
			n++
		}
	}
	return n
}

// members reads the pods of a group, and what is said about them.
func (g *gatherer) members(name string) {
	mine := map[types.UID]bool{}
	for _, p := range g.pods(nil) {
		if group := p.Spec.SchedulingGroup; group != nil && group.PodGroupName != nil && *group.PodGroupName == name {
			g.f.Pods, mine[p.UID] = append(g.f.Pods, p), true
		}
	}
	list, err := g.API.CoreV1().Events(g.namespace).List(g.ctx, metav1.ListOptions{})
	if !g.note("events of its pods", err) {
		return
	}
	g.f.Parts = slices.DeleteFunc(list.Items, func(e corev1.Event) bool { return !mine[e.InvolvedObject.UID] })
	sortEvents(g.f.Parts)
}
