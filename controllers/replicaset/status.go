package replicaset

import (
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/yare-project/yare/controllers/pod"
)

// statusOf describes the pods as they are. wait, if positive, is when a ready pod becomes available by the passage of time alone.
func statusOf(rs *appsv1.ReplicaSet, pods []*corev1.Pod, f failure, now time.Time) (status appsv1.ReplicaSetStatus, wait time.Duration) {
	status = *rs.Status.DeepCopy()
	status.Replicas, status.FullyLabeledReplicas, status.ReadyReplicas, status.AvailableReplicas = 0, 0, 0, 0
	var terminating int32
	full := labels.SelectorFromSet(rs.Spec.Template.Labels)
	minReady := time.Duration(rs.Spec.MinReadySeconds) * time.Second
	for _, p := range pods {
		if pod.Terminating(p) {
			terminating++
		}
		if !pod.Active(p) {
			continue
		}
		status.Replicas++
		if full.Matches(labels.Set(p.Labels)) {
			status.FullyLabeledReplicas++
		}
		if !pod.Ready(p) {
			continue
		}
		status.ReadyReplicas++
		available, lacks := pod.Available(p, minReady, now)
		if available {
			status.AvailableReplicas++
		} else if lacks > 0 && (wait == 0 || lacks < wait) {
			wait = lacks
		}
	}
	status.TerminatingReplicas = &terminating
	status.ObservedGeneration = rs.Generation
	status.Conditions = withFailure(status.Conditions, f, now)
	return status, wait
}

// withFailure sets or removes the ReplicaFailure condition.
func withFailure(conditions []appsv1.ReplicaSetCondition, f failure, now time.Time) []appsv1.ReplicaSetCondition {
	i := slices.IndexFunc(conditions, func(c appsv1.ReplicaSetCondition) bool { return c.Type == appsv1.ReplicaSetReplicaFailure })
	switch {
	case f.err == nil && i < 0, f.err != nil && i >= 0:
		return conditions // an older failure keeps its time and text, or nothing fails
	case f.err == nil:
		return slices.Delete(conditions, i, i+1)
	}
	return append(conditions, appsv1.ReplicaSetCondition{Type: appsv1.ReplicaSetReplicaFailure, Status: corev1.ConditionTrue,
		LastTransitionTime: metav1.NewTime(now), Reason: f.reason, Message: f.err.Error()})
}
