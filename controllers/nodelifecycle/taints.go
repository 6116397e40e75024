package nodelifecycle

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func metaTime(t time.Time) metav1.Time { return metav1.NewTime(t) }

// conditionTaints maps a condition's bad states to the key of the NoSchedule taint that they make.
var conditionTaints = []struct {
	condition corev1.NodeConditionType
	status    corev1.ConditionStatus
	key       string
}{
	{corev1.NodeReady, corev1.ConditionFalse, corev1.TaintNodeNotReady},
	{corev1.NodeReady, corev1.ConditionUnknown, corev1.TaintNodeUnreachable},
	{corev1.NodeMemoryPressure, corev1.ConditionTrue, corev1.TaintNodeMemoryPressure},
	{corev1.NodeDiskPressure, corev1.ConditionTrue, corev1.TaintNodeDiskPressure},
	{corev1.NodeNetworkUnavailable, corev1.ConditionTrue, corev1.TaintNodeNetworkUnavailable},
	{corev1.NodePIDPressure, corev1.ConditionTrue, corev1.TaintNodePIDPressure},
}

// managed tells whether this loop alone decides about a taint.
func managed(t corev1.Taint) bool {
	switch t.Effect {
	case corev1.TaintEffectNoExecute:
		return t.Key == corev1.TaintNodeNotReady || t.Key == corev1.TaintNodeUnreachable
	case corev1.TaintEffectNoSchedule:
		return t.Key == corev1.TaintNodeUnschedulable || slices.ContainsFunc(conditionTaints, func(c struct {
			condition corev1.NodeConditionType
			status    corev1.ConditionStatus
			key       string
		}) bool {
			return c.key == t.Key
		})
	}
	return false
}

// noSchedule are the NoSchedule taints that a node's state asks for.
func noSchedule(n *corev1.Node) []string {
	var keys []string
	for _, t := range conditionTaints {
		if c := condition(n, t.condition); c != nil && c.Status == t.status {
			keys = append(keys, t.key)
		}
	}
	if n.Spec.Unschedulable {
		keys = append(keys, corev1.TaintNodeUnschedulable)
	}
	return keys
}

// noExecute is the key of the NoExecute taint that a node's state asks for, if any.
func noExecute(n *corev1.Node) string {
	switch readyStatus(n) {
	case corev1.ConditionFalse:
		return corev1.TaintNodeNotReady
	case corev1.ConditionUnknown:
		return corev1.TaintNodeUnreachable
	}
	return ""
}

func executes(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Effect == corev1.TaintEffectNoExecute && managed(t) })
}

// taint sets the taints that belong to a node's state. wait, if positive, is when a NoExecute taint that the zone's rate holds back may be tried again.
func (c *controller) taint(ctx context.Context, n *corev1.Node, now time.Time) (wait time.Duration, err error) {
	execute := noExecute(n)
	if execute != "" {
		verdict, later := c.zones.mayEvict(n, executes(n), now)
		if wait = later; verdict != evict {
			execute = ""
		}
	}
	want := wanted(n.Spec.Taints, noSchedule(n), execute, now)
	if slices.EqualFunc(want, n.Spec.Taints, func(a, b corev1.Taint) bool { return a.MatchTaint(&b) }) {
		return wait, nil
	}
	changed := n.DeepCopy()
	changed.Spec.Taints = want
	if _, err := c.api.Update(ctx, changed); err != nil {
		return 0, ignoreGone(fmt.Errorf("taint node: %w", err))
	}
	return wait, nil
}

// wanted is have with the managed taints as they should be; those that stay keep their time.
func wanted(have []corev1.Taint, schedule []string, execute string, now time.Time) []corev1.Taint {
	at := metaTime(now)
	var want []corev1.Taint
	for _, key := range schedule {
		want = append(want, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule, TimeAdded: &at})
	}
	if execute != "" {
		want = append(want, corev1.Taint{Key: execute, Effect: corev1.TaintEffectNoExecute, TimeAdded: &at})
	}
	var out []corev1.Taint
	for _, t := range have {
		i := slices.IndexFunc(want, func(w corev1.Taint) bool { return w.MatchTaint(&t) })
		if i >= 0 {
			want = slices.Delete(want, i, i+1)
		}
		if i >= 0 || !managed(t) {
			out = append(out, t)
		}
	}
	return append(out, want...)
}
