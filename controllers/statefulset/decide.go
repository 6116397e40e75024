package statefulset

import (
	"slices"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/yare-project/yare/controllers/history"
	"github.com/yare-project/yare/controllers/pod"
)

// claimGetter finds a claim by name; a cache is one.
type claimGetter interface {
	Get(namespace, name string) (*corev1.PersistentVolumeClaim, bool)
}

// input is what a decision rests on.
type input struct {
	set             *appsv1.StatefulSet
	current, update revision
	pods            []*corev1.Pod
	claims          claimGetter
	now             time.Time
}

// revision is a template with its name.
type revision struct {
	name     string
	template *corev1.PodTemplateSpec
}

func inputOf(set *appsv1.StatefulSet, update *appsv1.ControllerRevision, all []*appsv1.ControllerRevision, pods []*corev1.Pod) (input, error) {
	in := input{set: set, update: revision{update.Name, &set.Spec.Template}, pods: pods}
	in.current = in.update
	for _, r := range all {
		if r.Name == set.Status.CurrentRevision && r.Name != update.Name {
			t, err := history.TemplateOf(r)
			if err != nil {
				return in, err
			}
			in.current = revision{r.Name, t}
		}
	}
	return in, nil
}

// plan is what one pass is to do.
type plan struct {
	claims              []*corev1.PersistentVolumeClaim // to create, or to update if they have a resourceVersion
	fix, create, remove []*corev1.Pod
	status              appsv1.StatefulSetStatus
	after               time.Duration
}

type view struct {
	input
	ordered   bool
	minReady  time.Duration
	first     int
	replicas  []*corev1.Pod // by number from first; nil where there is none
	condemned []*corev1.Pod // those beyond, highest number first
	plan      plan
}

func decide(in input) plan {
	v := &view{input: in, ordered: in.set.Spec.PodManagementPolicy != appsv1.ParallelPodManagement, first: firstNumber(in.set),
		minReady: time.Duration(in.set.Spec.MinReadySeconds) * time.Second}
	v.gather()
	v.status()
	if in.set.DeletionTimestamp != nil {
		return v.plan
	}
	if v.fill() {
		v.retain()
		if v.shrink() {
			v.roll()
		}
	}
	return v.plan
}

func (v *view) gather() {
	v.replicas = make([]*corev1.Pod, replicasOf(v.set))
	for _, p := range v.pods {
		_, n, ok := split(p.Name)
		switch i := n - v.first; {
		case !ok:
		case i >= 0 && i < len(v.replicas):
			v.replicas[i] = p
		default:
			v.condemned = append(v.condemned, p)
		}
	}
	number := func(p *corev1.Pod) int { _, n, _ := split(p.Name); return n }
	slices.SortFunc(v.condemned, func(a, b *corev1.Pod) int { return number(b) - number(a) })
}

func (v *view) available(p *corev1.Pod) bool {
	if p == nil || p.Status.Phase != corev1.PodRunning {
		return false
	}
	ok, wait := pod.Available(p, v.minReady, v.now)
	if wait > 0 && (v.plan.after == 0 || wait < v.plan.after) {
		v.plan.after = wait
	}
	return ok
}

// fill makes the pods that lack, with their claims. False: go no further now.
func (v *view) fill() bool {
	done := true
	for i, p := range v.replicas {
		if goOn := v.fillOne(i, p); !goOn {
			if v.ordered {
				return false
			}
			done = false
		}
	}
	return done
}

func (v *view) fillOne(i int, p *corev1.Pod) bool {
	number := v.first + i
	switch {
	case p == nil:
		if v.ensureClaims(number, nil) {
			r := v.revisionFor(number)
			v.plan.create = append(v.plan.create, newPod(v.set, r.template, r.name, number))
		}
		return false
	case pod.Finished(p):
		if p.DeletionTimestamp == nil {
			v.plan.remove = append(v.plan.remove, p) // whatever it ended with: a replica runs for ever
		}
		return false
	case v.ordered && (p.DeletionTimestamp != nil || !v.available(p)):
		if p.Status.Phase == corev1.PodPending {
			v.ensureClaims(number, nil)
		}
		return false
	}
	v.ensureClaims(number, nil)
	if !identified(p, number) {
		p = p.DeepCopy()
		p.Labels[appsv1.StatefulSetPodNameLabel], p.Labels[appsv1.PodIndexLabel] = p.Name, strconv.Itoa(number)
		v.plan.fix = append(v.plan.fix, p)
	}
	return true
}

// ensureClaims plans what a number's claims lack. False: one is being deleted, and a pod must not be made on it. condemned is the pod if it is to go.
func (v *view) ensureClaims(number int, condemned *corev1.Pod) bool {
	usable := true
	for i := range v.set.Spec.VolumeClaimTemplates {
		t := &v.set.Spec.VolumeClaimTemplates[i]
		have, ok := v.claims.Get(v.set.Namespace, claimName(v.set, t.Name, number))
		switch {
		case ok && have.DeletionTimestamp != nil:
			usable = false
		case ok:
			if want := withOwners(v.set, have, condemned); want != have {
				v.plan.claims = append(v.plan.claims, want)
			}
		case condemned == nil:
			v.plan.claims = append(v.plan.claims, withOwners(v.set, newClaim(v.set, t, number), nil))
		}
	}
	return usable
}

// revisionFor is the revision in which a missing pod comes back: the present one, unless a rolling update has not reached its number yet, because of the
// partition or because pods above it are still to be replaced or to become available (StatefulSet basics, "Rolling updates").
func (v *view) revisionFor(number int) revision {
	if v.set.Spec.UpdateStrategy.Type == appsv1.OnDeleteStatefulSetStrategyType {
		return v.update
	}
	i := number - v.first
	if i < v.partition() {
		return v.current
	}
	ahead := 0
	for _, p := range v.replicas[i+1:] {
		if p != nil && (p.Labels[appsv1.StatefulSetRevisionLabel] != v.update.name || !v.available(p)) {
			ahead++
		}
	}
	if ahead >= v.maxUnavailable() {
		return v.current
	}
	return v.update
}

func (v *view) partition() int {
	if r := v.set.Spec.UpdateStrategy.RollingUpdate; r != nil && r.Partition != nil {
		return int(*r.Partition)
	}
	return 0
}

// retain hands the claims of pods that are to go over to them, if the policy says so.
func (v *view) retain() {
	for _, p := range v.condemned {
		_, n, _ := split(p.Name)
		v.ensureClaims(n, p)
	}
}

// shrink deletes the pods beyond the number of replicas. False: wait before anything else.
func (v *view) shrink() bool {
	if len(v.condemned) == 0 {
		return true
	}
	if !v.ordered {
		for _, p := range v.condemned {
			if p.DeletionTimestamp == nil {
				v.plan.remove = append(v.plan.remove, p)
			}
		}
		return false
	}
	highest := v.condemned[0]
	if highest.DeletionTimestamp != nil {
		return false
	}
	// One that is in trouble itself may go; if a lower one is, going on could lose more.
	if v.available(highest) || v.firstInTrouble() == highest {
		v.plan.remove = append(v.plan.remove, highest)
	}
	return false
}

// firstInTrouble is the pod of lowest number that is not available.
func (v *view) firstInTrouble() *corev1.Pod {
	for _, p := range v.replicas {
		if !v.available(p) || p.DeletionTimestamp != nil {
			return p
		}
	}
	for _, p := range slices.Backward(v.condemned) {
		if !v.available(p) || p.DeletionTimestamp != nil {
			return p
		}
	}
	return nil
}

// roll deletes pods of an old revision, highest number first, so that they come back in the new one.
func (v *view) roll() {
	if v.set.Spec.UpdateStrategy.Type == appsv1.OnDeleteStatefulSetStrategyType {
		return
	}
	budget := v.maxUnavailable()
	for i := len(v.replicas) - 1; i >= v.partition() && budget > 0; i-- {
		p := v.replicas[i]
		switch {
		case p == nil, p.DeletionTimestamp != nil:
			budget--
		case p.Labels[appsv1.StatefulSetRevisionLabel] != v.update.name:
			v.plan.remove = append(v.plan.remove, p)
			budget--
		case !v.available(p):
			budget-- // a new pod that does not come up holds the rollout
		}
	}
}

func (v *view) maxUnavailable() int {
	r := v.set.Spec.UpdateStrategy.RollingUpdate
	if r == nil || r.MaxUnavailable == nil {
		return 1
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(r.MaxUnavailable, len(v.replicas), false)
	if err != nil {
		return 1
	}
	return max(1, n)
}

func (v *view) status() {
	s := *v.set.Status.DeepCopy()
	s.ObservedGeneration, s.CurrentRevision, s.UpdateRevision = v.set.Generation, v.current.name, v.update.name
	s.Replicas, s.ReadyReplicas, s.AvailableReplicas, s.CurrentReplicas, s.UpdatedReplicas = 0, 0, 0, 0, 0
	if s.CollisionCount == nil {
		s.CollisionCount = new(int32(0))
	}
	for _, p := range v.pods {
		s.Replicas++
		if p.Status.Phase == corev1.PodRunning && pod.Ready(p) {
			s.ReadyReplicas++
			if v.available(p) {
				s.AvailableReplicas++
			}
		}
		if p.DeletionTimestamp != nil {
			continue
		}
		if p.Labels[appsv1.StatefulSetRevisionLabel] == v.current.name {
			s.CurrentReplicas++
		}
		if p.Labels[appsv1.StatefulSetRevisionLabel] == v.update.name {
			s.UpdatedReplicas++
		}
	}
	n := int32(len(v.replicas))
	if v.set.Spec.UpdateStrategy.Type != appsv1.OnDeleteStatefulSetStrategyType && s.UpdatedReplicas == n && s.ReadyReplicas == n && s.Replicas == n {
		s.CurrentReplicas, s.CurrentRevision = s.UpdatedReplicas, s.UpdateRevision // the rollout is done
	}
	v.plan.status = s
}
