package daemonset_test

import (
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	ct "github.com/yare-project/yare/controllers/controllertest"
	"github.com/yare-project/yare/controllers/daemonset"
)

func set(change ...func(*appsv1.DaemonSet)) *appsv1.DaemonSet {
	l := map[string]string{"app": "log"}
	limit := int32(2)
	ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: ct.Namespace, Name: "log"}, Spec: appsv1.DaemonSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: l}, RevisionHistoryLimit: &limit,
		UpdateStrategy: appsv1.DaemonSetUpdateStrategy{Type: appsv1.RollingUpdateDaemonSetStrategyType},
		Template:       corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: l}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "v1"}}}}}}
	for _, f := range change {
		f(ds)
	}
	return ds
}

func node(name string, change ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"disk": "ssd"}}}
	for _, f := range change {
		f(n)
	}
	return n
}

type scene struct{ *ct.Stage }

func play(t *testing.T, ds *appsv1.DaemonSet, nodes ...*corev1.Node) *scene {
	s := &scene{ct.New(t, daemonset.Descriptor()).Go()}
	for _, n := range nodes {
		s.Put(n)
	}
	s.Put(ds)
	return s
}

func target(p *corev1.Pod) string {
	return p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchFields[0].Values[0]
}

// pods lists "node=image" of the pods that are not going, with "!" for those that are not ready.
func (s *scene) pods() []string {
	out := []string{}
	for _, p := range ct.All[*corev1.Pod](s.Stage) {
		line := target(p) + "=" + p.Spec.Containers[0].Image
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

func (s *scene) ready() {
	s.Helper()
	for _, p := range ct.All[*corev1.Pod](s.Stage) {
		ct.SetReady(s.Stage, true, p)
	}
	s.Settled()
}

func (s *scene) set() *appsv1.DaemonSet { return ct.Get[*appsv1.DaemonSet](s.Stage, "log") }

func TestOnePodOnEachMatchingNode(t *testing.T) {
	s := play(t, set(func(ds *appsv1.DaemonSet) { ds.Spec.Template.Spec.NodeSelector = map[string]string{"disk": "ssd"} }),
		node("a"), node("b", func(n *corev1.Node) { n.Labels = nil }), node("c", func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: "mine", Effect: corev1.TaintEffectNoSchedule}}
		}), node("d", func(n *corev1.Node) {
			n.Spec.Unschedulable = true
			n.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}, {Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoExecute}}
		}))
	s.expect("matching and tolerated", "!a=v1", "!d=v1")
	s.ready()
	ct.UntilEqual(s.Stage, "status", [4]int32{2, 2, 2, 2}, func() [4]int32 {
		st := s.set().Status
		return [4]int32{st.DesiredNumberScheduled, st.CurrentNumberScheduled, st.NumberReady, st.UpdatedNumberScheduled}
	})
	s.Put(node("e"))
	s.expect("a new node", "a=v1", "d=v1", "!e=v1")
	nodes := ct.AllIn[*corev1.Node](s.Stage, "")
	ct.Change(s.Stage, nodes[0], func(n *corev1.Node) { n.Labels = map[string]string{} })
	s.expect("a node that no longer matches", "d=v1", "!e=v1")
	ct.Change(s.Stage, nodes[3], func(n *corev1.Node) {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "later", Effect: corev1.TaintEffectNoSchedule})
	})
	s.expect("a later NoSchedule taint removes nothing", "d=v1", "!e=v1")
	ct.UntilEqual(s.Stage, "but the pod is misplaced", int32(1), func() int32 { return s.set().Status.NumberMisscheduled })
}

func TestRollingUpdate(t *testing.T) {
	s := play(t, set(), node("a"), node("b"), node("c"))
	s.expect("all", "!a=v1", "!b=v1", "!c=v1")
	s.ready()
	ct.Change(s.Stage, s.set(), func(ds *appsv1.DaemonSet) { ds.Spec.Template.Spec.Containers[0].Image = "v2" })
	s.expect("one at a time", "!a=v2", "b=v1", "c=v1")
	s.ready()
	s.expect("the next", "a=v2", "!b=v2", "c=v1")
	s.ready()
	s.ready()
	s.expect("all", "a=v2", "b=v2", "c=v2")
	if n := len(ct.All[*appsv1.ControllerRevision](s.Stage)); n != 2 {
		t.Errorf("%d revisions, want 2", n)
	}
}

func TestRollingUpdateWithSurge(t *testing.T) {
	one, none := intstr.FromInt32(1), intstr.FromInt32(0)
	s := play(t, set(func(ds *appsv1.DaemonSet) {
		ds.Spec.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateDaemonSet{MaxSurge: &one, MaxUnavailable: &none}
	}), node("a"), node("b"))
	s.expect("all", "!a=v1", "!b=v1")
	s.ready()
	ct.Change(s.Stage, s.set(), func(ds *appsv1.DaemonSet) { ds.Spec.Template.Spec.Containers[0].Image = "v2" })
	s.expect("beside the old one", "!a=v2", "a=v1", "b=v1")
	s.ready()
	s.expect("the old one goes, the next comes", "a=v2", "!b=v2", "b=v1")
	s.ready()
	s.expect("all", "a=v2", "b=v2")
}

func TestOnDelete(t *testing.T) {
	s := play(t, set(func(ds *appsv1.DaemonSet) { ds.Spec.UpdateStrategy.Type = appsv1.OnDeleteDaemonSetStrategyType }), node("a"))
	s.expect("one", "!a=v1")
	ct.Change(s.Stage, s.set(), func(ds *appsv1.DaemonSet) { ds.Spec.Template.Spec.Containers[0].Image = "v2" })
	s.expect("nothing by itself", "!a=v1")
	ct.Delete(s.Stage, ct.All[*corev1.Pod](s.Stage)[0], metav1.DeleteOptions{})
	s.expect("the deleted one", "!a=v2")
}

func TestFailedPodsAreReplacedEverMoreSlowly(t *testing.T) {
	s := play(t, set(), node("a"))
	s.expect("one", "!a=v1")
	fail := func() {
		ct.Change(s.Stage, ct.All[*corev1.Pod](s.Stage)[0], func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })
		s.Settled()
	}
	phase := func() corev1.PodPhase { return ct.All[*corev1.Pod](s.Stage)[0].Status.Phase }
	fail()
	s.expect("the first failure is replaced at once", "!a=v1")
	if phase() != corev1.PodPending {
		t.Fatal("the failed pod is still there")
	}
	fail()
	if phase() != corev1.PodFailed {
		t.Fatal("the second failure was replaced without a pause")
	}
	s.Clock.Step(time.Second)
	ct.UntilEqual(s.Stage, "after a second", corev1.PodPending, func() corev1.PodPhase {
		if all := ct.All[*corev1.Pod](s.Stage); len(all) == 1 {
			return all[0].Status.Phase
		}
		return ""
	})
}
