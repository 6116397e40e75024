package scheduler

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yare-project/yare/scheduler/framework"
	"github.com/yare-project/yare/scheduler/plugins"
)

// BenchmarkSchedule measures decisions alone: find a node among many, count the pod there; parsing the pod is included.
func BenchmarkSchedule(b *testing.B) {
	for _, kind := range []struct {
		name   string
		change func(*corev1.Pod)
	}{{"plain", func(*corev1.Pod) {}}, {"spread", benchSpread}, {"antiaffinity", benchApart}} {
		for _, n := range []int{1000, 5000} {
			b.Run(fmt.Sprintf("%s/nodes=%d", kind.name, n), func(b *testing.B) { benchmark(b, n, kind.change) })
		}
	}
}

func benchSpread(p *corev1.Pod) {
	p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.DoNotSchedule,
		LabelSelector: &metav1.LabelSelector{MatchLabels: p.Labels}}}
}

func benchApart(p *corev1.Pod) {
	p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{Weight: 1,
		PodAffinityTerm: corev1.PodAffinityTerm{TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: p.Labels}}}}}}
}

func benchmark(b *testing.B, n int, change func(*corev1.Pod)) {
	nodes := framework.NewNodes()
	profile, err := buildProfile(ProfileConfig{SchedulerName: "bench"}, plugins.Registry(), testHandle(nodes, func(*corev1.Pod) labels.Selector { return nil }), rand.New(rand.NewPCG(1, 1)))
	if err != nil {
		b.Fatal(err)
	}
	for i := range n {
		name := fmt.Sprintf("node-%d", i)
		nodes.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name, corev1.LabelTopologyZone: fmt.Sprint("z", i%3)}},
			Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{"cpu": resource.MustParse("32"), "memory": resource.MustParse("128Gi"), "pods": resource.MustParse("100000")}}})
	}
	var placed []*framework.Pod
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		obj := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: strconv.Itoa(i), UID: types.UID(strconv.Itoa(i)), Labels: map[string]string{"app": "web"}},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Image: "web:1", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
				"cpu": *resource.NewMilliQuantity(100, resource.DecimalSI), "memory": *resource.NewQuantity(256<<20, resource.BinarySI)}}}}}}
		change(obj)
		p, err := framework.NewPod(obj, nodes)
		if err != nil {
			b.Fatal(err)
		}
		d, why, err := profile.Decide(profile.Begin(p))
		if d == nil {
			b.Fatal(why, err)
		}
		nodes.AddPod(p, d.Node)
		if placed = append(placed, p); len(placed) > 10*n { // keep the cluster at ten pods a node
			nodes.RemovePod(placed[0])
			placed = placed[1:]
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "decisions/s")
}
