package disruption

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/yare-project/yare/controllers/pod"
)

type scaler func(p *corev1.Pod) (controller string, replicas int32, ok bool)

// decide computes a budget's status from the pods that it selects. unmanaged are pods whose controller's size is not known; wait is when an evicted pod
// that is still there must be looked at again.
func decide(b *policyv1.PodDisruptionBudget, pods []*corev1.Pod, scale scaler, now time.Time) (status policyv1.PodDisruptionBudgetStatus, unmanaged []string, wait time.Duration) {
	status = *b.Status.DeepCopy()
	status.DisruptedPods, wait = stillDisrupted(b.Status.DisruptedPods, pods, now)
	var expected, desired int32
	expected, desired, unmanaged = demands(b, pods, scale)
	var healthy int32
	for _, p := range pods {
		if _, evicted := status.DisruptedPods[p.Name]; !evicted && p.DeletionTimestamp == nil && pod.Ready(p) {
			healthy++
		}
	}
	status.ExpectedPods, status.DesiredHealthy, status.CurrentHealthy = expected, desired, healthy
	status.DisruptionsAllowed = max(0, healthy-desired)
	if expected <= 0 {
		status.DisruptionsAllowed = 0
	}
	status.ObservedGeneration = b.Generation
	status.Conditions = withCondition(status.Conditions, status.DisruptionsAllowed > 0, b.Generation, now)
	return status, unmanaged, wait
}

// stillDisrupted are the evicted pods that exist and may yet go.
func stillDisrupted(evicted map[string]metav1.Time, pods []*corev1.Pod, now time.Time) (map[string]metav1.Time, time.Duration) {
	var out map[string]metav1.Time
	var wait time.Duration
	for _, p := range pods {
		at, ok := evicted[p.Name]
		if !ok || p.DeletionTimestamp != nil {
			continue
		}
		left := at.Add(deletionWindow).Sub(now)
		if left <= 0 {
			continue
		}
		if out == nil {
			out = map[string]metav1.Time{}
		}
		out[p.Name] = at
		if wait == 0 || left < wait {
			wait = left
		}
	}
	return out, wait
}

// demands is how many pods a budget expects, and how many of them it wants healthy.
func demands(b *policyv1.PodDisruptionBudget, pods []*corev1.Pod, scale scaler) (expected, desired int32, unmanaged []string) {
	switch {
	case b.Spec.MaxUnavailable != nil:
		expected, unmanaged = total(pods, scale)
		most, err := intstr.GetScaledValueFromIntOrPercent(b.Spec.MaxUnavailable, int(expected), true)
		if err != nil {
			return expected, expected, unmanaged // none may go
		}
		return expected, max(0, expected-int32(most)), unmanaged
	case b.Spec.MinAvailable != nil && b.Spec.MinAvailable.Type == intstr.Int:
		return int32(len(pods)), b.Spec.MinAvailable.IntVal, nil
	case b.Spec.MinAvailable != nil:
		expected, unmanaged = total(pods, scale)
		least, err := intstr.GetScaledValueFromIntOrPercent(b.Spec.MinAvailable, int(expected), true)
		if err != nil {
			return expected, expected, unmanaged
		}
		return expected, int32(least), unmanaged
	}
	return int32(len(pods)), 0, nil
}

// total adds up what the pods' controllers are meant to have, each once.
func total(pods []*corev1.Pod, scale scaler) (n int32, unmanaged []string) {
	seen := map[string]bool{}
	for _, p := range pods {
		controller, replicas, ok := scale(p)
		switch {
		case !ok:
			unmanaged = append(unmanaged, p.Name)
		case !seen[controller]:
			seen[controller] = true
			n += replicas
		}
	}
	return n, unmanaged
}

func withCondition(conditions []metav1.Condition, allowed bool, generation int64, now time.Time) []metav1.Condition {
	c := metav1.Condition{Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionFalse, Reason: policyv1.InsufficientPodsReason,
		ObservedGeneration: generation, LastTransitionTime: metav1.NewTime(now)}
	if allowed {
		c.Status, c.Reason = metav1.ConditionTrue, policyv1.SufficientPodsReason
	}
	i := slices.IndexFunc(conditions, func(old metav1.Condition) bool { return old.Type == c.Type })
	if i < 0 {
		return append(conditions, c)
	}
	if conditions[i].Status == c.Status {
		c.LastTransitionTime = conditions[i].LastTransitionTime
	}
	conditions[i] = c
	return conditions
}
