package gang_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// BenchmarkTopology decides about a gang of eight pods amid 5,000 nodes that must share a node, or one of 50 racks: where there is room, where pods that can't be made to leave
// have all, where such that can have, where something else than room is in the way on every node, where each node lacks one of eight GPUs, and where the members keep each other
// away from where they must be.
func BenchmarkTopology(b *testing.B) {
	for _, key := range []string{corev1.LabelHostname, "rack"} {
		for _, c := range []struct {
			name     string
			priority int32 // of who has all the room; 0: nobody
			change   func(*corev1.Pod)
			fits     bool
		}{{"fits", 0, nil, true}, {"full", 20, nil, false}, {"preempts", 5, nil, false}, {"elsewhere", 0, selecting, false}, {"gpus", 0, wantingGPU, false}, {"ports", 0, wantingPort, false}, {"apart", 0, apart, false}, {"spread", 0, evenly, false}} {
			if key == "rack" && (c.name == "gpus" || c.name == "ports" || c.name == "apart" || c.name == "spread") {
				continue // a rack has enough
			}
			b.Run(fmt.Sprintf("%s/%s", key, c.name), func(b *testing.B) {
				m := newModel(b, rand.New(rand.NewPCG(1, 2)))
				for i := range 5000 {
					m.node(fmt.Sprintf("n%d 8 rack=r%d %s=n%d", i, i%50, corev1.LabelHostname, i))
					if c.name == "gpus" {
						m.gpus(fmt.Sprint("n", i), 8)
						m.nodes.AddPod(m.pod(fmt.Sprint("old-", i), "0", 20, wantingGPU), fmt.Sprint("n", i))
					}
					if c.priority > 0 {
						m.nodes.AddPod(m.pod(fmt.Sprint("old-", i), "8", c.priority), fmt.Sprint("n", i))
					}
				}
				w := m.want(8, slicesOf("1", 8)...)
				for i := range w.Members {
					if c.change != nil {
						w.Members[i].Pod = m.pod(fmt.Sprint("g-", i), "1", 10, c.change)
					}
				}
				w.Topology = key
				b.ReportAllocs()
				for b.Loop() {
					p := m.decide(w)
					if p.Settled != c.fits || c.priority == 5 != (len(p.Victims()) > 0) {
						b.Fatal(p.Message, p.Settled, len(p.Victims()))
					}
					for _, at := range p.Placements {
						if p.Settled {
							m.nodes.RemovePod(w.Members[at.Member].Pod)
						}
					}
				}
			})
		}
	}
}

func selecting(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"disk": "ssd"} }

func wantingPort(p *corev1.Pod) {
	p.Spec.Containers[0].Ports = []corev1.ContainerPort{{HostPort: 80}}
}

func apart(p *corev1.Pod) {
	p.Labels = map[string]string{"app": "g"}
	p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
		TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: p.Labels}}}}}
}

func evenly(p *corev1.Pod) {
	p.Labels = map[string]string{"app": "g"}
	p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.DoNotSchedule,
		LabelSelector: &metav1.LabelSelector{MatchLabels: p.Labels}}}
}

func wantingGPU(p *corev1.Pod) {
	p.Spec.Containers[0].Resources.Requests["example.com/gpu"] = resource.MustParse("1")
}

// gpus gives a node GPUs.
func (m *model) gpus(name string, n int64) {
	slot, _ := m.nodes.Slot(name)
	o := m.nodes.Object[slot].DeepCopy()
	o.Status.Allocatable["example.com/gpu"] = *resource.NewQuantity(n, resource.DecimalSI)
	m.nodes.SetNode(o)
}
