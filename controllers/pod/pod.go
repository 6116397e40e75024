// Package pod holds the facts about Pods that several controllers judge by: ready, available, active, and which to delete first.
// Everything but Evict is pure.
package pod

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/yare-project/yare/client"
)

// ByNode is the name of the cache index by NodeOf.
const ByNode = client.SharedIndex + "node"

// NodeOf is the node that a pod is bound to, as an index value.
func NodeOf(p *corev1.Pod) []string { return []string{p.Spec.NodeName} }

// Condition finds a condition; nil if the pod has none of the type.
func Condition(p *corev1.Pod, t corev1.PodConditionType) *corev1.PodCondition {
	for i := range p.Status.Conditions {
		if p.Status.Conditions[i].Type == t {
			return &p.Status.Conditions[i]
		}
	}
	return nil
}

// Ready tells whether the Ready condition is true.
func Ready(p *corev1.Pod) bool {
	c := Condition(p, corev1.PodReady)
	return c != nil && c.Status == corev1.ConditionTrue
}

// Finished tells whether the pod ended and will not run again.
func Finished(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// Terminating tells whether the pod was asked to go but still may run.
func Terminating(p *corev1.Pod) bool { return p.DeletionTimestamp != nil && !Finished(p) }

// Active tells whether the pod counts as a replica: it neither ended nor was deleted.
func Active(p *corev1.Pod) bool { return !Finished(p) && p.DeletionTimestamp == nil }

// Available tells whether the pod has been ready for minReady. If it is ready but not yet for long enough, wait is the time that it lacks.
func Available(p *corev1.Pod, minReady time.Duration, now time.Time) (available bool, wait time.Duration) {
	c := Condition(p, corev1.PodReady)
	if c == nil || c.Status != corev1.ConditionTrue {
		return false, 0
	}
	if minReady <= 0 {
		return true, 0
	}
	if c.LastTransitionTime.IsZero() {
		return false, 0
	}
	wait = c.LastTransitionTime.Add(minReady).Sub(now)
	return wait <= 0, max(wait, 0)
}

// Restarts is the highest restart count of the pod's containers, sidecars among them.
func Restarts(p *corev1.Pod) int32 {
	var n int32
	for _, s := range p.Status.ContainerStatuses {
		n = max(n, s.RestartCount)
	}
	for i, c := range p.Spec.InitContainers {
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways && i < len(p.Status.InitContainerStatuses) {
			n = max(n, p.Status.InitContainerStatuses[i].RestartCount)
		}
	}
	return n
}
