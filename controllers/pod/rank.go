package pod

import (
	"cmp"
	"math/bits"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// RankForDeletion orders pods, those to delete first in front, by the rules that the ReplicaSet documentation gives: unassigned before assigned,
// pending before unknown before running, not ready before ready, lower controller.kubernetes.io/pod-deletion-cost first, pods whose node has
// more of their peers first, those ready for a shorter time first, more restarts first, newer first. Times are compared by order of magnitude, so that
// old pods are chosen evenly. peers counts the related pods of a node.
func RankForDeletion(pods []*corev1.Pod, peers map[string]int, now time.Time) {
	slices.SortStableFunc(pods, func(a, b *corev1.Pod) int {
		return cmp.Or(
			falseFirst(a.Spec.NodeName != "", b.Spec.NodeName != ""),
			cmp.Compare(phaseRank(a), phaseRank(b)),
			falseFirst(Ready(a), Ready(b)),
			cmp.Compare(DeletionCost(a), DeletionCost(b)),
			cmp.Compare(peers[b.Spec.NodeName], peers[a.Spec.NodeName]),
			youngerFirst(readySince(a), readySince(b), now),
			cmp.Compare(Restarts(b), Restarts(a)),
			youngerFirst(a.CreationTimestamp.Time, b.CreationTimestamp.Time, now),
			cmp.Compare(a.UID, b.UID),
		)
	})
}

func falseFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case !a:
		return -1
	}
	return 1
}

func phaseRank(p *corev1.Pod) int {
	switch p.Status.Phase {
	case corev1.PodPending:
		return 0
	case corev1.PodUnknown:
		return 1
	}
	return 2
}

// DeletionCost is the pod-deletion-cost annotation's number; 0 if there is none or it is no 32-bit number.
func DeletionCost(p *corev1.Pod) int32 {
	n, err := strconv.ParseInt(p.Annotations[corev1.PodDeletionCost], 10, 32)
	if err != nil {
		return 0
	}
	return int32(n)
}

func readySince(p *corev1.Pod) time.Time {
	if c := Condition(p, corev1.PodReady); c != nil && c.Status == corev1.ConditionTrue {
		return c.LastTransitionTime.Time
	}
	return time.Time{}
}

func youngerFirst(a, b, now time.Time) int {
	if a.IsZero() || b.IsZero() {
		return falseFirst(!a.IsZero(), !b.IsZero()) // an unset time counts as newest
	}
	return cmp.Compare(magnitude(now.Sub(a)), magnitude(now.Sub(b)))
}

func magnitude(age time.Duration) int { return bits.Len64(uint64(max(age, 0))) }
