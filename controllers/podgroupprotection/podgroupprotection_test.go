package podgroupprotection_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	schedulingv1alpha2 "k8s.io/api/scheduling/v1alpha2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/controllers/controllertest"
	"github.com/yare-project/yare/controllers/podgroupprotection"
)

func group(name string, more ...string) *schedulingv1alpha2.PodGroup {
	return &schedulingv1alpha2.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: controllertest.Namespace, Name: name, Finalizers: append([]string{"scheduling.k8s.io/podgroup-protection"}, more...)}}
}

func member(name, group string, phase corev1.PodPhase) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: controllertest.Namespace, Name: name},
		Spec: corev1.PodSpec{SchedulingGroup: &corev1.PodSchedulingGroup{PodGroupName: &group}}, Status: corev1.PodStatus{Phase: phase}}
}

func TestAGroupGoesWhenItsLastPodIsDone(t *testing.T) {
	s := controllertest.New(t, podgroupprotection.Descriptor()).Go()
	s.Put(group("free"), group("done"), group("waiting"), group("running"), group("kept"), group("else", "example.org/else"))
	s.Put(member("d", "done", corev1.PodSucceeded))
	waiting := s.Put(member("w", "waiting", corev1.PodPending)).(*corev1.Pod)
	running := s.Put(member("r", "running", corev1.PodRunning)).(*corev1.Pod)
	for _, g := range controllertest.All[*schedulingv1alpha2.PodGroup](s) {
		if g.Name != "kept" {
			controllertest.Delete(s, g, metav1.DeleteOptions{})
		}
	}
	left := func() (out []string) {
		for _, g := range controllertest.All[*schedulingv1alpha2.PodGroup](s) {
			out = append(out, g.Name)
		}
		return out
	}
	controllertest.UntilEqual(s, "groups", []string{"else", "kept", "running", "waiting"}, left)
	s.Settled()
	if diff := cmp.Diff([]string{"else", "kept", "running", "waiting"}, left()); diff != "" {
		t.Fatalf("groups (-want +got)\n%s", diff)
	}
	if g := controllertest.Get[*schedulingv1alpha2.PodGroup](s, "else"); len(g.Finalizers) != 1 || g.Finalizers[0] != "example.org/else" {
		t.Errorf("the finalizers of another: %v", g.Finalizers)
	}
	controllertest.Change(s, running, func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })
	controllertest.Delete(s, waiting, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)})
	controllertest.UntilEqual(s, "groups", []string{"else", "kept"}, left)
}
