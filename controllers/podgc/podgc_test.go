package podgc_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	ct "github.com/yare-project/yare/controllers/controllertest"
	"github.com/yare-project/yare/controllers/podgc"
)

func pod(name, node string, phase corev1.PodPhase, age time.Duration) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ct.Namespace, Name: name, CreationTimestamp: metav1.NewTime(ct.Start.Add(-age))},
		Spec: corev1.PodSpec{NodeName: node}, Status: corev1.PodStatus{Phase: phase}}
}

func names(s *ct.Stage) []string {
	out := []string{}
	for _, p := range ct.All[*corev1.Pod](s) {
		out = append(out, p.Name)
	}
	slices.Sort(out)
	return out
}

func TestPodsOfAGoneNode(t *testing.T) {
	s := ct.New(t, podgc.Descriptor(0)).Go()
	n := s.Put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}).(*corev1.Node)
	s.Put(pod("lost", "n", corev1.PodRunning, 0), pod("never", "ghost", corev1.PodPending, 0), pod("unbound", "", corev1.PodPending, 0))
	ct.Delete(s, n, metav1.DeleteOptions{})
	s.Settled()
	s.Clock.Step(39 * time.Second)
	s.Settled()
	if got := names(s); len(got) != 3 {
		t.Fatalf("pods %v within the quarantine, want all", got)
	}
	s.Clock.Step(2 * time.Second)
	ct.UntilEqual(s, "lost pods are removed", []string{"unbound"}, func() []string { return names(s) })
}

func TestNodeThatReturnsKeepsItsPods(t *testing.T) {
	s := ct.New(t, podgc.Descriptor(0)).Go()
	n := s.Put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}).(*corev1.Node)
	s.Put(pod("p", "n", corev1.PodRunning, 0))
	ct.Delete(s, n, metav1.DeleteOptions{})
	s.Settled()
	s.Put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
	s.Settled()
	s.Clock.Step(time.Minute)
	s.Settled()
	if got := names(s); len(got) != 1 {
		t.Errorf("pods %v, want the one whose node returned", got)
	}
}

func TestOldestFinishedGoFirst(t *testing.T) {
	s := ct.New(t, podgc.Descriptor(2)).Go()
	for i := range 4 {
		s.Put(pod(fmt.Sprintf("done%d", i), "", corev1.PodSucceeded, time.Duration(i)*time.Hour))
	}
	s.Put(pod("runs", "", corev1.PodRunning, 9*time.Hour))
	ct.UntilEqual(s, "two finished stay", []string{"done0", "done1", "runs"}, func() []string { return names(s) })
}

func TestUnscheduledTerminating(t *testing.T) {
	s := ct.New(t, podgc.Descriptor(0)).Go()
	p := pod("p", "", corev1.PodPending, 0)
	p.Finalizers = []string{"example.com/hold"}
	s.Put(p)
	ct.Delete(s, p, metav1.DeleteOptions{})
	ct.UntilEqual(s, "marked failed", corev1.PodFailed, func() corev1.PodPhase { return ct.Get[*corev1.Pod](s, "p").Status.Phase })
}
