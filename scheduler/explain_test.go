package scheduler

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yare-project/yare/scheduler/explain"
	"github.com/yare-project/yare/scheduler/framework"
	"github.com/yare-project/yare/scheduler/plugins"
)

// refusal is a cluster and a pod that fits nowhere in it.
type refusal struct {
	nodes []*corev1.Node
	on    []*corev1.Pod // with spec.nodeName
	pod   *corev1.Pod
}

func explainNode(name, cpu string, change ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}},
		Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{"cpu": resource.MustParse(cpu), "memory": resource.MustParse("4Gi"), "pods": resource.MustParse("10")}}}
	for _, f := range change {
		f(n)
	}
	return n
}

func explainPod(name, node, cpu string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name), Labels: map[string]string{"app": name}},
		Spec: corev1.PodSpec{NodeName: node, SchedulerName: "test", Containers: []corev1.Container{{Name: "c",
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse(cpu)}}}}}}
	for _, f := range change {
		f(p)
	}
	return p
}

// refused decides about the pod; a nil diagnosis means that it fits.
func (r refusal) refused(t *testing.T) (*framework.Cycle, *framework.Diagnosis) {
	t.Helper()
	nodes := framework.NewNodes()
	profile, err := buildProfile(ProfileConfig{SchedulerName: "test"}, plugins.Registry(), testHandle(nodes, func(*corev1.Pod) labels.Selector { return nil }), rand.New(rand.NewPCG(1, 1)))
	if err != nil {
		t.Fatal(err)
	}
	nodes.SetNamespace("default", labels.Set{})
	for _, n := range r.nodes {
		nodes.SetNode(n)
	}
	parse := func(o *corev1.Pod) *framework.Pod {
		p, err := framework.NewPod(o, nodes)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	for _, o := range r.on {
		nodes.AddPod(parse(o), o.Spec.NodeName)
	}
	c := profile.Begin(parse(r.pod))
	_, d, err := profile.Decide(c)
	if err != nil {
		t.Fatal(err)
	}
	return c, d
}

func TestSmallestChange(t *testing.T) {
	apart := func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
			TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "other"}}}}}}
	}
	tainted := func(n *corev1.Node) {
		n.Spec.Taints = []corev1.Taint{{Key: "for", Value: "gpu", Effect: corev1.TaintEffectNoSchedule}}
	}
	cordoned := func(n *corev1.Node) { n.Spec.Unschedulable = true }
	ssd := func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"disk": "ssd"} }
	priority := func(v int32) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Spec.Priority = &v } }
	port := func(p *corev1.Pod) { p.Spec.Containers[0].Ports = []corev1.ContainerPort{{HostPort: 80}} }
	for name, c := range map[string]struct {
		refusal
		want   string
		follow func(*refusal) // does what the first suggestion says
	}{
		"the node that lacks least": {refusal{[]*corev1.Node{explainNode("a", "1"), explainNode("b", "2")}, nil, explainPod("p", "", "2500m")},
			"smallest change: 500m more cpu on node b (2 free of 2).", func(r *refusal) { r.nodes[1] = explainNode("b", "2500m") }},
		"a taint": {refusal{[]*corev1.Node{explainNode("a", "1", tainted)}, nil, explainPod("p", "", "1")},
			"smallest change: tolerate taint for=gpu:NoSchedule of node a.", func(r *refusal) {
				r.pod.Spec.Tolerations = []corev1.Toleration{{Key: "for", Value: "gpu", Effect: corev1.TaintEffectNoSchedule}}
			}},
		"a taint and too little": {refusal{[]*corev1.Node{explainNode("a", "1", tainted)}, nil, explainPod("p", "", "2")},
			"smallest change: tolerate taint for=gpu:NoSchedule of node a and 1 more cpu on node a (1 free of 1).", func(r *refusal) {
				r.nodes[0] = explainNode("a", "2", tainted)
				r.pod.Spec.Tolerations = []corev1.Toleration{{Key: "for", Operator: corev1.TolerationOpExists}}
			}},
		"a label": {refusal{[]*corev1.Node{explainNode("a", "1")}, nil, explainPod("p", "", "1", ssd)},
			"smallest change: label disk=ssd on node a.", func(r *refusal) { r.nodes[0].Labels["disk"] = "ssd" }},
		"a cordon": {refusal{[]*corev1.Node{explainNode("a", "1", cordoned)}, nil, explainPod("p", "", "1")},
			"smallest change: uncordon node a.", func(r *refusal) { r.nodes[0].Spec.Unschedulable = false }},
		"anti-affinity": {refusal{[]*corev1.Node{explainNode("a", "4")}, []*corev1.Pod{explainPod("other", "a", "1", priority(9))}, explainPod("p", "", "1", apart)},
			"smallest change: no anti-affinity to pod default/other where kubernetes.io/hostname=a; or a priority above 9 (it has 0), to preempt default/other on node a.",
			func(r *refusal) { r.pod.Spec.Affinity = nil }},
		"a host port": {refusal{[]*corev1.Node{explainNode("a", "4")}, []*corev1.Pod{explainPod("web", "a", "1", port)}, explainPod("p", "", "1", port)},
			"smallest change: host port 80/TCP of node a, which pod default/web has; or a priority above 0 (it has 0), to preempt default/web on node a.",
			func(r *refusal) { r.on = nil }},
		"no change is known": {refusal{[]*corev1.Node{explainNode("a", "1")}, nil, explainPod("p", "", "1", func(p *corev1.Pod) {
			p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: "elsewhere"}
		})}, "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			cycle, why := c.refused(t)
			if why == nil {
				t.Fatal("the pod fits")
			}
			first, again := explain.Message(explain.Pod(cycle, why)), explain.Message(explain.Pod(cycle, why))
			if diff := cmp.Diff([]string{c.want, c.want}, []string{first, again}); diff != "" {
				t.Errorf("want -, got +:\n%s", diff)
			}
			if c.follow == nil {
				return
			}
			c.follow(&c.refusal)
			if _, why := c.refused(t); why != nil {
				t.Errorf("the change is made, and still: %s", why.Message())
			}
		})
	}
}

// TestOneExplanationPerClass counts how often plugins are asked.
func TestOneExplanationPerClass(t *testing.T) {
	r := refusal{pod: explainPod("p", "", "2")}
	for k := range 100 {
		r.nodes = append(r.nodes, explainNode(fmt.Sprint("n", k), "1"))
	}
	c, d := r.refused(t)
	var cache explain.Cache
	first := cache.Pod(c, d)
	if again := cache.Pod(c, d); len(first) == 0 || &again[0] != &first[0] {
		t.Error("the same class was explained twice though nothing changed")
	}
	c.Nodes.SetNode(explainNode("n7", "1900m"))
	if now := cache.Pod(c, d); len(now) == 0 || now[0].String() != "100m more cpu on node n7 (1900m free of 1900m)" {
		t.Errorf("after node n7 grew: %v", now)
	}
}
