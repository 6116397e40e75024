package deployment

import (
	"cmp"
	"math"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// bounds resolves maxSurge (rounded up) and maxUnavailable (rounded down) for n replicas. Both may not be zero, or nothing could ever move: then one may be
// unavailable.
func bounds(d *appsv1.Deployment) (surge, unavailable int32) {
	r := d.Spec.Strategy.RollingUpdate
	if d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType || r == nil {
		return 0, 0
	}
	n := int(replicas(d))
	s, errS := intstr.GetScaledValueFromIntOrPercent(intstr.ValueOrDefault(r.MaxSurge, intstr.FromInt32(0)), n, true)
	u, errU := intstr.GetScaledValueFromIntOrPercent(intstr.ValueOrDefault(r.MaxUnavailable, intstr.FromInt32(0)), n, false)
	if errS != nil || errU != nil || s == 0 && u == 0 {
		u = max(u, 1)
	}
	return int32(s), int32(u)
}

func maxSurge(d *appsv1.Deployment) int32 {
	s, _ := bounds(d)
	return s
}

func maxUnavailable(d *appsv1.Deployment) int32 {
	_, u := bounds(d)
	return min(u, replicas(d))
}

// newSize is how big the current set may be now in a rolling update.
func (v *view) newSize() int32 {
	want, have := replicas(v.d), replicasOf(v.current)
	if have >= want {
		return want
	}
	var total int32
	for _, rs := range v.all() {
		total += replicasOf(rs)
	}
	return have + max(0, min(want+maxSurge(v.d)-total, want-have))
}

// resize sets a set's replicas and the annotations from which a later pass tells that the Deployment was scaled meanwhile.
func (v *view) resize(rs *appsv1.ReplicaSet, n int32) {
	if replicasOf(rs) != n {
		rs.Spec.Replicas = &n
		v.noteSize(rs)
	} else if n > 0 {
		v.noteSize(rs)
	}
}

func (v *view) noteSize(rs *appsv1.ReplicaSet) {
	annotate(rs, desiredReplicas, strconv.Itoa(int(replicas(v.d))))
	annotate(rs, maxReplicas, strconv.Itoa(int(replicas(v.d)+maxSurge(v.d))))
}

// scaling tells whether the Deployment's replicas changed since its sets were sized.
func (v *view) scaling() bool {
	for _, rs := range v.all() {
		if replicasOf(rs) == 0 {
			continue
		}
		if n, ok := number(rs.Annotations[desiredReplicas]); ok && n != replicas(v.d) {
			return true
		}
	}
	return false
}

// scale spreads a change of the Deployment's replicas over its sets without moving the rollout: in proportion to their sizes while it rolls.
func (v *view) scale() {
	active := slices.DeleteFunc(v.all(), func(rs *appsv1.ReplicaSet) bool { return replicasOf(rs) == 0 })
	switch {
	case len(active) <= 1:
		if only := v.activeOrLatest(active); only != nil {
			v.resize(only, replicas(v.d))
		}
	case v.saturated():
		for _, rs := range v.old {
			v.resize(rs, 0)
		}
	case v.d.Spec.Strategy.Type != appsv1.RecreateDeploymentStrategyType:
		v.scaleInProportion(active)
	}
}

func (v *view) activeOrLatest(active []*appsv1.ReplicaSet) *appsv1.ReplicaSet {
	if len(active) == 1 {
		return active[0]
	}
	if v.current != nil || len(v.old) == 0 {
		return v.current
	}
	return v.old[len(v.old)-1]
}

func (v *view) saturated() bool {
	if v.current == nil {
		return false
	}
	want := replicas(v.d)
	n, ok := number(v.current.Annotations[desiredReplicas])
	return ok && n == want && replicasOf(v.current) == want && v.current.Status.AvailableReplicas == want
}

func (v *view) scaleInProportion(active []*appsv1.ReplicaSet) {
	var total, allowed int32
	for _, rs := range active {
		total += replicasOf(rs)
	}
	if n := replicas(v.d); n > 0 {
		allowed = n + maxSurge(v.d)
	}
	add := allowed - total
	slices.SortStableFunc(active, func(a, b *appsv1.ReplicaSet) int { // biggest first; of equals the newer grows and the older shrinks first
		byAge := olderFirst(a, b)
		if add > 0 {
			byAge = -byAge
		}
		return cmp.Or(cmp.Compare(replicasOf(b), replicasOf(a)), byAge)
	})
	sizes := make([]int32, len(active))
	var added int32
	for i, rs := range active {
		share := v.share(rs)
		if add > 0 {
			share = min(share, add-added)
		} else {
			share = max(share, add-added)
		}
		if add == 0 || replicasOf(rs) == 0 {
			share = 0
		}
		sizes[i] = replicasOf(rs) + share
		added += share
	}
	sizes[0] = max(0, sizes[0]+add-added) // what rounding left over
	for i, rs := range active {
		v.resize(rs, sizes[i])
		v.noteSize(rs)
	}
}

// share is by how much a set grows (or shrinks, below zero) if it keeps its part of the whole.
func (v *view) share(rs *appsv1.ReplicaSet) int32 {
	if replicas(v.d) == 0 {
		return -replicasOf(rs)
	}
	before, ok := number(rs.Annotations[maxReplicas])
	if !ok {
		before = v.d.Status.Replicas
	}
	if before == 0 {
		return 0
	}
	size := float64(replicasOf(rs)) * float64(replicas(v.d)+maxSurge(v.d)) / float64(before)
	return int32(math.Round(size)) - replicasOf(rs)
}

func number(s string) (int32, bool) {
	n, err := strconv.ParseInt(s, 10, 32)
	return int32(n), err == nil
}
