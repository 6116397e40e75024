package pod_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yare-project/yare/controllers/pod"
)

func TestRankForDeletion(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	mk := func(name string, change func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(now.Add(-10 * time.Hour))},
			Spec: corev1.PodSpec{NodeName: "lonely"},
			Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{}},
				Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(now.Add(-10 * time.Hour))}}}}
		change(p)
		return p
	}
	want := []*corev1.Pod{
		mk("unassigned", func(p *corev1.Pod) { p.Spec.NodeName = "" }),
		mk("pending", func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending }),
		mk("unknown", func(p *corev1.Pod) { p.Status.Phase = corev1.PodUnknown }),
		mk("unready", func(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionFalse }),
		mk("cheap", func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.PodDeletionCost: "-5"} }),
		mk("crowded", func(p *corev1.Pod) { p.Spec.NodeName = "crowded" }),
		mk("ready a minute", func(p *corev1.Pod) { p.Status.Conditions[0].LastTransitionTime = metav1.NewTime(now.Add(-time.Minute)) }),
		mk("restarted", func(p *corev1.Pod) { p.Status.ContainerStatuses[0].RestartCount = 3 }),
		mk("young", func(p *corev1.Pod) { p.CreationTimestamp = metav1.NewTime(now.Add(-time.Minute)) }),
		mk("ordinary", func(*corev1.Pod) {}),
		mk("dear", func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.PodDeletionCost: "5"} }),
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	got := slices.Clone(want)
	r.Shuffle(len(got), func(i, j int) { got[i], got[j] = got[j], got[i] })
	pod.RankForDeletion(got, map[string]int{"crowded": 2, "lonely": 1}, now)
	name := func(pods []*corev1.Pod) (out []string) {
		for _, p := range pods {
			out = append(out, p.Name)
		}
		return out
	}
	if diff := cmp.Diff(name(want), name(got)); diff != "" {
		t.Errorf("order of deletion (-want +got):\n%s", diff)
	}
}
