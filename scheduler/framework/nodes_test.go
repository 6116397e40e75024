package framework

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func testNode(name string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: map[string]string{"name": name}},
		Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{"cpu": resource.MustParse("4"), "pods": resource.MustParse("9")}}}
}

func testPod(t *testing.T, n *Nodes, name string, spec corev1.PodSpec) *Pod {
	t.Helper()
	p, err := NewPod(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)}, Spec: spec}, n)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func container(cpu string) corev1.Container {
	return corev1.Container{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse(cpu)}}}
}

// The rules of the Pod API for what a pod takes of its node.
func TestPodRequests(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	sidecar := container("100m")
	sidecar.RestartPolicy = &always
	for _, c := range []struct {
		name string
		spec corev1.PodSpec
		want int64
	}{
		{"containers add up", corev1.PodSpec{Containers: []corev1.Container{container("100m"), container("200m")}}, 300},
		{"the largest init container counts", corev1.PodSpec{InitContainers: []corev1.Container{container("500m"), container("400m")}, Containers: []corev1.Container{container("100m")}}, 500},
		{"sidecars run beside the containers", corev1.PodSpec{InitContainers: []corev1.Container{sidecar}, Containers: []corev1.Container{container("200m")}}, 300},
		{"and beside later init containers", corev1.PodSpec{InitContainers: []corev1.Container{sidecar, container("500m")}, Containers: []corev1.Container{container("200m")}}, 600},
		{"overhead", corev1.PodSpec{Overhead: corev1.ResourceList{"cpu": resource.MustParse("50m")}, Containers: []corev1.Container{container("200m")}}, 250},
		{"pod-level requests replace the sum", corev1.PodSpec{Resources: &corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("1")}},
			Containers: []corev1.Container{container("200m")}}, 1000},
	} {
		if got := testPod(t, NewNodes(), "p", c.spec).Request(CPU); got != c.want {
			t.Errorf("%s: %d thousandths of a CPU, want %d", c.name, got, c.want)
		}
	}
}

func TestUnsetRequestsHaveDefaultsInScoresOnly(t *testing.T) {
	p := testPod(t, NewNodes(), "p", corev1.PodSpec{Containers: []corev1.Container{container("300m"), {}}})
	if p.Request(CPU) != 300 || p.NonZeroCPU != 400 || p.Request(Memory) != 0 || p.NonZeroMem != 2*DefaultMemory {
		t.Errorf("requests %d and %d, for scores %d and %d", p.Request(CPU), p.Request(Memory), p.NonZeroCPU, p.NonZeroMem)
	}
}

func TestPodsMayComeBeforeTheirNode(t *testing.T) {
	n := NewNodes()
	p := testPod(t, n, "p", corev1.PodSpec{Containers: []corev1.Container{container("1")}})
	n.AddPod(p, "late")
	if n.Len() != 0 {
		t.Fatal("a name with a pod is not a node")
	}
	n.SetNode(testNode("late"))
	i, ok := n.Lookup("late")
	if !ok || n.Used[CPU][i] != 1000 {
		t.Fatalf("the node does not count the pod: %v", n.Used[CPU])
	}
	n.RemoveNode("late")
	n.RemovePod(p)
	if _, ok := n.Slot("late"); ok {
		t.Error("nothing is left of the node, but its slot is taken")
	}
}

func TestSlotsAreReused(t *testing.T) {
	n := NewNodes()
	column := n.Label("name")
	for k := range 50 {
		name := fmt.Sprint("n", k)
		n.SetNode(testNode(name))
		if i, _ := n.Lookup(name); column.Value[i] == 0 {
			t.Fatal("the label column misses the node")
		}
		n.RemoveNode(name)
	}
	if n.Slots() != 1 {
		t.Errorf("%d slots for one node at a time", n.Slots())
	}
}

// TestColumnsAreTheSumOfTheirPods changes nodes and pods at random and recounts.
func TestColumnsAreTheSumOfTheirPods(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	n := NewNodes()
	var pods []*Pod
	where := map[*Pod]string{}
	for k := range 2000 {
		name := fmt.Sprint("n", r.IntN(6))
		switch {
		case r.IntN(3) > 0:
			p := testPod(t, n, fmt.Sprint("p", k), corev1.PodSpec{Containers: []corev1.Container{{Ports: []corev1.ContainerPort{{HostPort: int32(1 + r.IntN(3))}},
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": *resource.NewMilliQuantity(int64(1+r.IntN(9)), resource.DecimalSI)}}}}})
			n.AddPod(p, name)
			pods, where[p] = append(pods, p), name
		case r.IntN(2) == 0 && len(pods) > 0:
			i := r.IntN(len(pods))
			n.RemovePod(pods[i])
			delete(where, pods[i])
			pods = append(pods[:i], pods[i+1:]...)
		case r.IntN(2) == 0:
			n.SetNode(testNode(name))
		default:
			n.RemoveNode(name)
		}
	}
	want, got := map[string]int64{}, map[string]int64{}
	ports, gotPorts := map[string]int{}, map[string]int{}
	for p, name := range where {
		want[name] += p.Request(CPU)
		ports[name]++
	}
	for i, name := range n.Name {
		if n.Used[CPU][i] != 0 {
			got[name] = n.Used[CPU][i]
		}
		for _, k := range n.Ports[i] {
			gotPorts[name] += k
		}
	}
	if diff := cmp.Diff(want, got) + cmp.Diff(ports, gotPorts); diff != "" {
		t.Errorf("columns differ from the sum of their pods (-want +got): %s", diff)
	}
}

func TestJournalTellsWhenItForgot(t *testing.T) {
	var j journal[int]
	start := j.end()
	for i := range 3 * journalKeeps {
		j.add(i)
	}
	if _, ok := j.since(start); ok {
		t.Error("a journal claims to know changes that it dropped")
	}
	recent := j.end() - 10
	if got, ok := j.since(recent); !ok || len(got) != 10 || got[9] != 3*journalKeeps-1 {
		t.Errorf("the last ten changes are %v, %v", got, ok)
	}
}
