package scheduler

import (
	"fmt"
	"log/slog"
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1alpha2 "k8s.io/api/scheduling/v1alpha2"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/client/fake"
	"github.com/yare-project/yare/scheduler/framework"
)

// BenchmarkGang decides about gangs of 100 pods amid 5,000 nodes: one that fits, which then ends, and one that lacks a place for its last pod.
func BenchmarkGang(b *testing.B) {
	for _, c := range []struct {
		name  string
		nodes int
	}{{"Fits", 5000}, {"LacksOne", 99}} {
		b.Run(c.name, func(b *testing.B) {
			s, g, members := gangOf(b, c.nodes)
			b.ReportAllocs()
			for b.Loop() {
				plan, err := s.plan(g, members, &inquiry{})
				if err != nil {
					b.Fatal(err)
				}
				if plan.Settled != (c.nodes == 5000) {
					b.Fatalf("fits: %v", plan.Settled)
				}
				if plan.Settled {
					for _, m := range members {
						s.nodes.RemovePod(m.pod)
					}
				}
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "gangs/s")
		})
	}
}

// gangOf makes a gang of 100 pods, each of which takes a node's whole processor, amid 5,000 nodes, of which some have one.
func gangOf(b *testing.B, able int) (*Scheduler, *group, []*item) {
	api := fake.New(nil)
	log := slog.New(slog.DiscardHandler)
	s, err := New(Config{Transport: api, Caches: client.NewCaches(client.CachesConfig{Transport: api, Log: log}), Log: log})
	if err != nil {
		b.Fatal(err)
	}
	for i := range 5000 {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n", i)}}
		cpu := "500m"
		if i < able {
			cpu = "1"
		}
		n.Status.Allocatable = corev1.ResourceList{"cpu": resource.MustParse(cpu), "memory": resource.MustParse("8Gi"), "pods": resource.MustParse("110")}
		s.nodes.SetNode(n)
	}
	object := &schedulingv1alpha2.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "g"}}
	object.Spec.SchedulingPolicy.Gang = &schedulingv1alpha2.GangSchedulingPolicy{MinCount: 100}
	s.groupChanged(object, types.NamespacedName{Namespace: "default", Name: "g"})
	name := "g"
	for i := range 100 {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("p", i), UID: types.UID(fmt.Sprint(i))}}
		p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: &name}
		p.Spec.Containers = []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("1")}}}}
		pod, err := framework.NewPod(p, s.nodes)
		if err != nil {
			b.Fatal(err)
		}
		it := &item{pod: pod, profile: s.profiles[corev1.DefaultSchedulerName]}
		s.queue.add(it, s.now())
		s.joined(it)
	}
	g := s.groups.named(types.NamespacedName{Namespace: "default", Name: "g"})
	return s, g, g.members()
}
