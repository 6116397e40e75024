package statefulset_test

import (
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	ct "github.com/yare-project/yare/controllers/controllertest"
	"github.com/yare-project/yare/controllers/statefulset"
)

func set(replicas int32, change ...func(*appsv1.StatefulSet)) *appsv1.StatefulSet {
	l := map[string]string{"app": "db"}
	limit := int32(2)
	s := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: ct.Namespace, Name: "db"}, Spec: appsv1.StatefulSetSpec{
		Replicas: &replicas, ServiceName: "peers", Selector: &metav1.LabelSelector{MatchLabels: l}, RevisionHistoryLimit: &limit,
		PodManagementPolicy:  appsv1.OrderedReadyPodManagement,
		UpdateStrategy:       appsv1.StatefulSetUpdateStrategy{Type: appsv1.RollingUpdateStatefulSetStrategyType},
		VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}}},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: l}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "v1"}},
			Volumes: []corev1.Volume{{Name: "data"}, {Name: "tmp"}}}}}}
	for _, f := range change {
		f(s)
	}
	return s
}

type scene struct{ *ct.Stage }

func play(t *testing.T, s *appsv1.StatefulSet) *scene {
	c := &scene{ct.New(t, statefulset.Descriptor()).Go()}
	c.Put(s)
	return c
}

func (s *scene) set() *appsv1.StatefulSet { return ct.Get[*appsv1.StatefulSet](s.Stage, "db") }

// pods lists "name=image", with "!" for pods that are not ready.
func (s *scene) pods() []string {
	out := []string{}
	for _, p := range ct.All[*corev1.Pod](s.Stage) {
		line := p.Name + "=" + p.Spec.Containers[0].Image
		if !slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Status == corev1.ConditionTrue }) {
			line = "!" + line
		}
		out = append(out, line)
	}
	slices.Sort(out)
	return out
}

func (s *scene) expect(what string, want ...string) {
	s.Helper()
	if want == nil {
		want = []string{}
	}
	slices.Sort(want)
	ct.UntilEqual(s.Stage, what, want, s.pods)
	s.Settled()
	if got := s.pods(); !slices.Equal(got, want) {
		s.Fatalf("%s: settled at %v, want %v", what, got, want)
	}
}

func (s *scene) ready(names ...string) {
	s.Helper()
	for _, n := range names {
		ct.SetReady(s.Stage, true, ct.Get[*corev1.Pod](s.Stage, n))
	}
}

func (s *scene) claims() []string {
	out := []string{}
	for _, c := range ct.All[*corev1.PersistentVolumeClaim](s.Stage) {
		out = append(out, c.Name)
	}
	slices.Sort(out)
	return out
}

func (s *scene) change(f func(*appsv1.StatefulSet)) { ct.Change(s.Stage, s.set(), f) }
func (s *scene) image(v string) {
	s.change(func(x *appsv1.StatefulSet) { x.Spec.Template.Spec.Containers[0].Image = v })
}
func (s *scene) scale(n int32) { s.change(func(x *appsv1.StatefulSet) { x.Spec.Replicas = &n }) }

func TestPodsComeAndGoInOrder(t *testing.T) {
	s := play(t, set(2))
	s.expect("first alone", "!db-0=v1")
	s.ready("db-0")
	s.expect("then the second", "db-0=v1", "!db-1=v1")
	s.ready("db-1")
	s.expect("both", "db-0=v1", "db-1=v1")
	if got := s.claims(); !slices.Equal(got, []string{"data-db-0", "data-db-1"}) {
		t.Errorf("claims %v", got)
	}
	p := ct.Get[*corev1.Pod](s.Stage, "db-1")
	if p.Spec.Hostname != "db-1" || p.Spec.Subdomain != "peers" || p.Labels["apps.kubernetes.io/pod-index"] != "1" ||
		p.Labels["statefulset.kubernetes.io/pod-name"] != "db-1" || len(p.Spec.Volumes) != 2 || p.Spec.Volumes[0].PersistentVolumeClaim.ClaimName != "data-db-1" {
		t.Errorf("pod db-1 is %+v %+v", p.ObjectMeta, p.Spec)
	}
	ct.UntilEqual(s.Stage, "status", [4]int32{2, 2, 2, 2}, func() [4]int32 {
		st := s.set().Status
		return [4]int32{st.Replicas, st.ReadyReplicas, st.CurrentReplicas, st.UpdatedReplicas}
	})

	ct.Delete(s.Stage, ct.Get[*corev1.Pod](s.Stage, "db-0"), metav1.DeleteOptions{})
	s.expect("replaced under its own name", "!db-0=v1", "db-1=v1")
	s.scale(1)
	s.expect("no scaling down while a lower one is in trouble", "!db-0=v1", "db-1=v1")
	s.ready("db-0")
	s.expect("highest goes", "db-0=v1")
	if got := s.claims(); len(got) != 2 {
		t.Errorf("claims %v after scaling down, want both kept", got)
	}
}

func TestParallel(t *testing.T) {
	s := play(t, set(3, func(s *appsv1.StatefulSet) {
		s.Spec.PodManagementPolicy = appsv1.ParallelPodManagement
		s.Spec.Ordinals = &appsv1.StatefulSetOrdinals{Start: 5}
	}))
	s.expect("all at once, from the first number", "!db-5=v1", "!db-6=v1", "!db-7=v1")
	s.scale(1)
	s.expect("all at once", "!db-5=v1")
}

func TestRollingUpdateFromTheTop(t *testing.T) {
	s := play(t, set(3))
	for _, n := range []string{"db-0", "db-1", "db-2"} {
		s.Settled()
		s.ready(n)
	}
	s.Settled()
	s.image("v2")
	s.expect("highest first", "db-0=v1", "db-1=v1", "!db-2=v2")
	s.ready("db-2")
	s.expect("then the next", "db-0=v1", "!db-1=v2", "db-2=v2")
	ct.Delete(s.Stage, ct.Get[*corev1.Pod](s.Stage, "db-0"), metav1.DeleteOptions{})
	s.expect("one that the update has not reached comes back as it was", "!db-0=v1", "!db-1=v2", "db-2=v2")
	s.ready("db-0", "db-1")
	s.expect("the last", "!db-0=v2", "db-1=v2", "db-2=v2")
	s.ready("db-0")
	ct.UntilEqual(s.Stage, "revisions are one", true, func() bool {
		st := s.set().Status
		return st.CurrentRevision == st.UpdateRevision && st.CurrentReplicas == 3
	})
	s.image("v1")
	s.expect("rollback", "db-0=v2", "db-1=v2", "!db-2=v1")
	if n := len(ct.All[*appsv1.ControllerRevision](s.Stage)); n != 2 {
		t.Errorf("%d revisions, want the two templates", n)
	}
}

func TestPartitionAndOnDelete(t *testing.T) {
	one := int32(1)
	s := play(t, set(2, func(s *appsv1.StatefulSet) {
		s.Spec.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateStatefulSetStrategy{Partition: &one}
		s.Spec.PodManagementPolicy = appsv1.ParallelPodManagement
	}))
	s.expect("two", "!db-0=v1", "!db-1=v1")
	s.ready("db-0", "db-1")
	s.image("v2")
	s.expect("only above the partition", "db-0=v1", "!db-1=v2")
	s.ready("db-1")
	s.change(func(s *appsv1.StatefulSet) {
		s.Spec.UpdateStrategy = appsv1.StatefulSetUpdateStrategy{Type: appsv1.OnDeleteStatefulSetStrategyType}
	})
	s.image("v3")
	s.expect("nothing by itself", "db-0=v1", "db-1=v2")
	ct.Delete(s.Stage, ct.Get[*corev1.Pod](s.Stage, "db-0"), metav1.DeleteOptions{})
	s.expect("the deleted one", "!db-0=v3", "db-1=v2")
}

func TestFailedPodIsReplaced(t *testing.T) {
	s := play(t, set(1))
	s.expect("one", "!db-0=v1")
	old := ct.Get[*corev1.Pod](s.Stage, "db-0").UID
	ct.Change(s.Stage, ct.Get[*corev1.Pod](s.Stage, "db-0"), func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })
	ct.UntilEqual(s.Stage, "another of the name", true, func() bool {
		p := ct.Get[*corev1.Pod](s.Stage, "db-0")
		return p != nil && p.UID != old
	})
}

func TestClaimRetention(t *testing.T) {
	s := play(t, set(2, func(s *appsv1.StatefulSet) {
		s.Spec.PodManagementPolicy = appsv1.ParallelPodManagement
		s.Spec.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
			WhenDeleted: appsv1.DeletePersistentVolumeClaimRetentionPolicyType, WhenScaled: appsv1.DeletePersistentVolumeClaimRetentionPolicyType}
	}))
	s.expect("two", "!db-0=v1", "!db-1=v1")
	owner := func(claim string) string {
		c := ct.Get[*corev1.PersistentVolumeClaim](s.Stage, claim)
		if c == nil || len(c.OwnerReferences) != 1 {
			return ""
		}
		return c.OwnerReferences[0].Kind + "/" + c.OwnerReferences[0].Name
	}
	ct.UntilEqual(s.Stage, "owned by the set", "StatefulSet/db", func() string { return owner("data-db-1") })
	s.scale(1)
	s.expect("one", "!db-0=v1")
	ct.UntilEqual(s.Stage, "handed to the pod that went", "Pod/db-1", func() string { return owner("data-db-1") })
	ct.UntilEqual(s.Stage, "the other stays the set's", "StatefulSet/db", func() string { return owner("data-db-0") })
}
