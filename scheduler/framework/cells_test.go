package framework

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestTalliesFollow moves pods and nodes at random and compares tallies, by few domains and by many, with what counting anew gives; and that whoever follows a column hears of each change.
func TestTalliesFollow(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	n := NewNodes()
	times := func(p *Pod) int64 { return int64(len(p.Object.Labels["x"])) }
	include := func(i int) bool { return n.Object[i].Labels["out"] == "" }
	tallies := map[string]*Tally{"zone": n.NewTally("zone", times, nil), "name": n.NewTally("name", times, nil), "some": n.NewTally("name", times, include), "": n.NewTally("", times, nil)}
	numbers, read := map[string][]int64{}, map[string]uint64{}
	var pods []*Pod
	for step := range 3000 {
		name := fmt.Sprint("n", r.IntN(60))
		switch k := r.IntN(10); {
		case k < 5:
			p, err := NewPod(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(step), UID: types.UID(fmt.Sprint(step)), Labels: map[string]string{"x": "aaa"[:r.IntN(4)]}}}, n)
			if err != nil {
				t.Fatal(err)
			}
			n.AddPod(p, name)
			pods = append(pods, p)
		case k < 7 && len(pods) > 0:
			i := r.IntN(len(pods))
			n.RemovePod(pods[i])
			pods = slices.Delete(pods, i, i+1)
		case k < 9:
			node := testNode(name)
			if r.IntN(4) > 0 {
				node.Labels["zone"] = fmt.Sprint("z", r.IntN(3))
			}
			if r.IntN(4) == 0 {
				node.Labels["out"] = "yes"
			}
			if r.IntN(6) == 0 {
				delete(node.Labels, "name")
			}
			n.SetNode(node)
		default:
			n.RemoveNode(name)
		}
		if r.IntN(3) > 0 {
			continue
		}
		for what, tally := range tallies {
			tally.Sync()
			compareTally(t, n, tally, what, times, include)
			numbers[what], read[what] = heard(t, n, tally.Column(), what, numbers[what], read[what])
		}
	}
}

func compareTally(t *testing.T, n *Nodes, tally *Tally, what string, times func(*Pod) int64, include func(int) bool) {
	t.Helper()
	sums, some, want, got := map[int32]int64{}, map[int32]bool{}, map[int]int64{}, map[int]int64{}
	for i := range n.Valid.All() {
		var sum int64
		for _, p := range n.Pods[i] {
			sum += times(p)
		}
		if what == "some" && !include(i) {
			continue
		}
		if what == "" {
			want[i], got[i] = sum, tally.OnNode(i)
			continue
		}
		if v := tally.Domain(i); v != 0 {
			sums[v] += sum
			some[v] = true
		}
	}
	if what != "" {
		least, empty := int64(-1), true
		for i := range n.Valid.All() {
			want[i], got[i] = sums[tally.Domain(i)], tally.In(i)
		}
		for v := range some {
			empty = empty && sums[v] == 0
			if least < 0 || sums[v] < least {
				least = sums[v]
			}
		}
		if l, domains := tally.Least(); domains != len(some) || domains > 0 && l != least || tally.Empty() != empty {
			t.Fatalf("%s: the least of %d domains is %d, empty %v; want %d, %d, %v", what, domains, l, tally.Empty(), len(some), least, empty)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("%s: counts differ (-want +got): %s", what, diff)
	}
}

// heard checks that a column's journal, or that of nodes, names all slots whose number is another than before.
func heard(t *testing.T, n *Nodes, c *Column, what string, before []int64, from uint64) ([]int64, uint64) {
	t.Helper()
	now := make([]int64, n.Slots())
	for i := range n.Valid.All() {
		now[i] = c.At(i)
	}
	if c.changed == nil {
		return now, 0
	}
	changed, known := c.changed.since(from)
	objects, _ := n.objects.since(0)
	for i := range n.Valid.All() {
		if known && i < len(before) && before[i] != now[i] && !slices.Contains(changed, int32(i)) && !slices.Contains(objects, int32(i)) {
			t.Fatalf("%s: the number of slot %d went from %d to %d unheard", what, i, before[i], now[i])
		}
	}
	return now, c.changed.end()
}

// Selectors that select all and none are written alike; terms with them are not the same.
func TestTermsThatSelectAllAndNoneAreTwo(t *testing.T) {
	n := NewNodes()
	pod := func(s *metav1.LabelSelector) *Pod {
		return testPod(t, n, "p", corev1.PodSpec{Affinity: &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{
			{TopologyKey: "name", LabelSelector: s}}}}})
	}
	n.AddPod(pod(&metav1.LabelSelector{}), "a")
	n.AddPod(pod(nil), "a")
	if all := n.TermsAbout(testPod(t, n, "q", corev1.PodSpec{}), RequiredAntiAffinity); len(all) != 1 {
		t.Errorf("%d terms select a pod that one selects", len(all))
	}
}

// Pods of one template share what is known of them, until somebody selects by what tells them apart.
func TestNumbersTellPodsApartOnceTheyCount(t *testing.T) {
	n := NewNodes()
	indexed := func(index string) *Pod {
		p, err := NewPod(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: index, Labels: map[string]string{"apps.kubernetes.io/pod-index": index}}}, n)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	if indexed("0").template != indexed("1").template {
		t.Error("two pods of one template are of two")
	}
	testPod(t, n, "p", corev1.PodSpec{Affinity: &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{
		{TopologyKey: "name", LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"apps.kubernetes.io/pod-index": "1"}}}}}}})
	if indexed("0").template == indexed("1").template {
		t.Error("pods that a term tells apart share what is known of them")
	}
}
