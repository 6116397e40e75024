package scheduler

import (
	"fmt"
	"math/rand/v2"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yare-project/yare/scheduler/explain"
	"github.com/yare-project/yare/scheduler/framework"
	"github.com/yare-project/yare/scheduler/plugins"
)

// BenchmarkRefusal measures a decision that finds no node among many, whose pods change in between, and its explanation beside it.
func BenchmarkRefusal(b *testing.B) {
	for _, explained := range []bool{false, true} {
		b.Run(fmt.Sprintf("nodes=5000/explained=%v", explained), func(b *testing.B) { refuse(b, explained) })
	}
}

func refuse(b *testing.B, explained bool) {
	nodes := framework.NewNodes()
	profile, err := buildProfile(ProfileConfig{SchedulerName: "bench"}, plugins.Registry(), testHandle(nodes, func(*corev1.Pod) labels.Selector { return nil }), rand.New(rand.NewPCG(1, 1)))
	if err != nil {
		b.Fatal(err)
	}
	make := func(name, cpu string) *framework.Pod {
		p, err := framework.NewPod(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Image: "web:1", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse(cpu)}}}}}}, nodes)
		if err != nil {
			b.Fatal(err)
		}
		return p
	}
	for i := range 5000 {
		name := fmt.Sprintf("node-%d", i)
		nodes.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}},
			Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{"cpu": resource.MustParse("4"), "memory": resource.MustParse("16Gi"), "pods": resource.MustParse("110")}}})
		nodes.AddPod(make("busy-"+name, "3"), name)
	}
	big, other := make("big", "2"), make("other", "10m")
	var cache explain.Cache
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		nodes.AddPod(other, fmt.Sprintf("node-%d", i%5000)) // what was known of a class no longer holds
		c := profile.Begin(big)
		d, why, err := profile.Decide(c)
		if d != nil || err != nil {
			b.Fatal(d, err)
		}
		if explained && len(cache.Pod(c, why)) == 0 {
			b.Fatal("nothing helps")
		}
		nodes.RemovePod(other)
	}
}
