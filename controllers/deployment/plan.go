package deployment

import (
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// plan is what one pass is to do.
type plan struct {
	create   *appsv1.ReplicaSet
	changes  []change
	remove   []*appsv1.ReplicaSet // old revisions beyond the history limit
	revision string               // of the present template; empty if it has none yet
	status   appsv1.DeploymentStatus
	after    time.Duration // when the progress deadline must be looked at again
}

type change struct{ from, to *appsv1.ReplicaSet }

// view is a pass's picture of a Deployment: its sets as they will be once the plan is carried out.
type view struct {
	d        *appsv1.Deployment
	current  *appsv1.ReplicaSet   // of the present template; nil if there is none
	old      []*appsv1.ReplicaSet // the others, oldest first
	original map[string]*appsv1.ReplicaSet
	now      time.Time
	plan     plan
}

// decide is one pass. pods tells whether a set still has pods that are not finished.
func decide(d *appsv1.Deployment, sets []*appsv1.ReplicaSet, pods func(*appsv1.ReplicaSet) bool, now time.Time) plan {
	v := newView(d, sets, now)
	switch {
	case d.DeletionTimestamp != nil:
		v.plan.status = v.statusOf()
		return v.plan
	case d.Spec.Paused:
		v.revise(false)
		v.scale()
		v.cleanUp()
	case v.scaling():
		v.revise(false)
		v.scale()
	case d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType:
		v.recreate(pods)
	default:
		v.roll()
	}
	return v.finish()
}

func newView(d *appsv1.Deployment, sets []*appsv1.ReplicaSet, now time.Time) *view {
	v := &view{d: d, original: map[string]*appsv1.ReplicaSet{}, now: now}
	sorted := slices.Clone(sets)
	slices.SortFunc(sorted, olderFirst)
	for _, rs := range sorted {
		v.original[rs.Name] = rs
		rs = rs.DeepCopy()
		if v.current == nil && sameTemplate(&rs.Spec.Template, &d.Spec.Template) {
			v.current = rs
		} else {
			v.old = append(v.old, rs)
		}
	}
	return v
}

func olderFirst(a, b *appsv1.ReplicaSet) int {
	if c := a.CreationTimestamp.Time.Compare(b.CreationTimestamp.Time); c != 0 {
		return c
	}
	return strings.Compare(a.Name, b.Name)
}

// all lists every set, the current one last.
func (v *view) all() []*appsv1.ReplicaSet {
	out := slices.Clone(v.old)
	if v.current != nil {
		out = append(out, v.current)
	}
	return out
}

// finish gathers the changed sets and the status.
func (v *view) finish() plan {
	for _, rs := range v.all() {
		from := v.original[rs.Name]
		if from == nil || slices.Contains(v.plan.remove, from) {
			continue
		}
		if replicasOf(from) != replicasOf(rs) || !maps.Equal(from.Annotations, rs.Annotations) || from.Spec.MinReadySeconds != rs.Spec.MinReadySeconds {
			v.plan.changes = append(v.plan.changes, change{from, rs})
		}
	}
	v.plan.status, v.plan.after = v.rolloutStatus()
	return v.plan
}

// recreate stops every old pod before it makes a new one.
func (v *view) recreate(pods func(*appsv1.ReplicaSet) bool) {
	stopped := true
	for _, rs := range v.old {
		if replicasOf(rs) > 0 {
			v.resize(rs, 0)
			stopped = false
		} else if pods(rs) {
			stopped = false
		}
	}
	if v.revise(stopped); stopped && v.current != nil {
		v.resize(v.current, replicas(v.d))
	}
	v.cleanUpWhenComplete()
}

// roll takes the new set up and the old ones down as far as the bounds allow.
func (v *view) roll() {
	v.revise(true)
	before := replicasOf(v.current)
	v.resize(v.current, v.newSize())
	if v.original[v.current.Name] == nil || replicasOf(v.current) != before {
		return // the old sets' turn comes when this change is seen
	}
	v.shrinkOld()
	v.cleanUpWhenComplete()
}

// shrinkOld takes old sets down: first pods that are not available anyway, then as many available ones as the new set has made up for.
func (v *view) shrinkOld() {
	var total, available int32
	for _, rs := range v.all() {
		total += replicasOf(rs)
		available += rs.Status.AvailableReplicas
	}
	minimum := replicas(v.d) - maxUnavailable(v.d)
	newLacks := replicasOf(v.current) - v.current.Status.AvailableReplicas
	budget := total - minimum - newLacks
	for _, rs := range v.old {
		if n := min(budget, replicasOf(rs)-rs.Status.AvailableReplicas); n > 0 {
			v.resize(rs, replicasOf(rs)-n)
			budget -= n
		}
	}
	spare := available - minimum
	for _, rs := range v.old {
		if n := min(budget, spare, replicasOf(rs)); n > 0 {
			v.resize(rs, replicasOf(rs)-n)
			budget, spare = budget-n, spare-n
		}
	}
}

// cleanUpWhenComplete forgets old revisions, but not while a rollout could still need them.
func (v *view) cleanUpWhenComplete() {
	if s := v.statusOf(); complete(v.d, &s) {
		v.cleanUp()
	}
}

// cleanUp removes the oldest revisions beyond revisionHistoryLimit that have no pods.
func (v *view) cleanUp() {
	if v.d.Spec.RevisionHistoryLimit == nil {
		return
	}
	byRevision := slices.DeleteFunc(slices.Clone(v.old), func(rs *appsv1.ReplicaSet) bool { return rs.DeletionTimestamp != nil })
	slices.SortStableFunc(byRevision, func(a, b *appsv1.ReplicaSet) int { return int(revision(a.Annotations) - revision(b.Annotations)) })
	excess := len(byRevision) - int(*v.d.Spec.RevisionHistoryLimit)
	for _, rs := range byRevision[:max(excess, 0)] {
		if rs.Status.Replicas == 0 && replicasOf(rs) == 0 && rs.Generation <= rs.Status.ObservedGeneration && v.original[rs.Name].Spec.Replicas != nil && *v.original[rs.Name].Spec.Replicas == 0 {
			v.plan.remove = append(v.plan.remove, v.original[rs.Name])
		}
	}
}

func replicas(d *appsv1.Deployment) int32 {
	if d.Spec.Replicas == nil {
		return 1
	}
	return *d.Spec.Replicas
}

func replicasOf(rs *appsv1.ReplicaSet) int32 {
	if rs.Spec.Replicas == nil {
		return 1
	}
	return *rs.Spec.Replicas
}

func hasDeadline(d *appsv1.Deployment) bool {
	return d.Spec.ProgressDeadlineSeconds != nil && *d.Spec.ProgressDeadlineSeconds < 1<<31-1
}

func condition(t appsv1.DeploymentConditionType, status corev1.ConditionStatus, reason, message string, now time.Time) appsv1.DeploymentCondition {
	at := metaTime(now)
	return appsv1.DeploymentCondition{Type: t, Status: status, Reason: reason, Message: message, LastUpdateTime: at, LastTransitionTime: at}
}
