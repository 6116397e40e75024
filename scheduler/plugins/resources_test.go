package plugins

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/scheduler/framework"
)

// TestFit follows "Resource Management for Pods and Containers", KEP-753 (sidecars), KEP-688 (overhead), KEP-2837 (pod-level resources).
func TestFit(t *testing.T) {
	initial := func(r corev1.ResourceList, sidecar bool) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			c := corev1.Container{Image: "i", Resources: corev1.ResourceRequirements{Requests: r}}
			if sidecar {
				c.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
			}
			p.Spec.InitContainers = append(p.Spec.InitContainers, c)
		}
	}
	all := func(fs ...func(*corev1.Pod)) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			for _, f := range fs {
				f(p)
			}
		}
	}
	whole := func(r corev1.ResourceList) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Spec.Resources = &corev1.ResourceRequirements{Requests: r} }
	}
	overhead := func(r corev1.ResourceList) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Spec.Overhead = r } }
	const cpu, muchCPU = "Insufficient cpu", "!Insufficient cpu"
	for _, c := range []struct {
		name, args string
		pod        func(*corev1.Pod)
		want       string
	}{ // 3 of 4 CPUs and 9 of 10 GiB are free
		{"fits", "", asks(res("cpu", "3", "memory", "9Gi")), ok},
		{"too much with what is there", "", asks(res("cpu", "3500m")), cpu},
		{"more than the node has", "", asks(res("memory", "11Gi")), "!Insufficient memory"},
		{"several", "", asks(res("cpu", "3500m", "memory", "11Gi")), "!Insufficient cpu, Insufficient memory"},
		{"an unknown device", "", asks(res("example.com/gpu", "1")), "!Insufficient example.com/gpu"},
		{"none of an unknown device", "", asks(res("example.com/gpu", "0")), ok},
		{"that somebody else cares for", `{"ignoredResources": ["example.com/gpu"]}`, asks(res("example.com/gpu", "1")), ok},
		{"by group", `{"ignoredResourceGroups": ["example.com"]}`, asks(res("example.com/gpu", "1")), ok},
		{"another group", `{"ignoredResourceGroups": ["example.org"]}`, asks(res("example.com/gpu", "1")), "!Insufficient example.com/gpu"},
		{"resources of Kubernetes can't be ignored", `{"ignoredResources": ["hugepages-2Mi", "cpu"]}`, asks(res("hugepages-2Mi", "2Mi", "cpu", "3500m")), "!Insufficient cpu, Insufficient hugepages-2Mi"},
		{"ephemeral storage", "", asks(res("ephemeral-storage", "1Gi")), "!Insufficient ephemeral-storage"},
		{"an init container alone", "", all(asks(res("cpu", "1")), initial(res("cpu", "3"), false)), ok},
		{"an init container is not added", "", all(asks(res("cpu", "2")), initial(res("cpu", "3"), false)), ok},
		{"a large init container", "", all(asks(res("cpu", "1")), initial(res("cpu", "3500m"), false)), cpu},
		{"a sidecar is added", "", all(asks(res("cpu", "2")), initial(res("cpu", "1500m"), true)), cpu},
		{"a sidecar runs beside init containers after it", "", all(asks(res("cpu", "1")), initial(res("cpu", "1500m"), true), initial(res("cpu", "2"), false)), cpu},
		{"but not beside those before it", "", all(asks(res("cpu", "1")), initial(res("cpu", "2"), false), initial(res("cpu", "1500m"), true)), ok},
		{"overhead", "", all(asks(res("cpu", "2900m")), overhead(res("cpu", "200m"))), cpu},
		{"the pod's own request counts", "", all(asks(res("cpu", "100m")), whole(res("cpu", "3500m"))), cpu},
		{"and not its containers'", "", all(asks(res("cpu", "3500m")), whole(res("cpu", "3"))), ok},
		{"with overhead", "", all(asks(res("cpu", "1")), whole(res("cpu", "3")), overhead(res("cpu", "100m"))), cpu},
		{"of what it says nothing of, containers' do", "", all(asks(res("cpu", "3500m")), whole(res("memory", "1Gi"))), cpu},
		{"more than all", "", asks(res("cpu", "4001m")), muchCPU},
	} {
		f := newFixture(t, testNode("n"))
		f.on("n", f.pod("there", asks(res("cpu", "1", "memory", "1Gi"))))
		f.want(c.name, NodeResourcesFit, c.args, f.pod("p", c.pod), map[string]string{"n": c.want})
	}
	f := newFixture(t, testNode("n", func(n *corev1.Node) { n.Status.Allocatable["pods"] = res("pods", "2")["pods"] }))
	f.on("n", f.pod("a"))
	f.on("n", f.pod("b"))
	f.want("a full node", NodeResourcesFit, "", f.pod("p"), map[string]string{"n": "Too many pods"})
}

// TestResizedPods follows KEP-1287: while a resize is under way, the most of what is desired, granted and in use counts.
func TestResizedPods(t *testing.T) {
	resized := func(desired, allocated, actual string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.NodeName = "n"
			p.Spec.Containers[0].Name, p.Spec.Containers[0].Resources.Requests = "c", res("cpu", desired)
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", AllocatedResources: res("cpu", allocated), Resources: &corev1.ResourceRequirements{Requests: res("cpu", actual)}}}
		}
	}
	for _, c := range []struct {
		name   string
		there  func(*corev1.Pod)
		asks   string
		refuse bool
	}{
		{"growing", resized("3", "1", "1"), "1500m", true}, {"shrinking", resized("1", "3", "3"), "1500m", true}, {"shrunk", resized("1", "1", "1"), "1500m", false},
		{"shrinking, not done", resized("1", "1", "3"), "1500m", true},
	} {
		f := newFixture(t, testNode("n"))
		f.on("n", f.pod("there", c.there))
		want := ok
		if c.refuse {
			want = "Insufficient cpu"
		}
		f.want(c.name, NodeResourcesFit, "", f.pod("p", asks(res("cpu", c.asks))), map[string]string{"n": want})
	}
}

func TestIgnoredByExtender(t *testing.T) {
	f := newFixture(t, testNode("n"))
	h := f.handle()
	h.Ignored = []string{"example.com/x"}
	p, err := Registry()[NodeResourcesFit](nil, h)
	if err != nil {
		t.Fatal(err)
	}
	pod := f.pod("p", asks(res("example.com/x", "1")))
	if s := p.(framework.FilterPlugin).Filter(&framework.Cycle{Pod: pod, Nodes: f.nodes}, 0); !s.OK() {
		t.Errorf("a resource that an extender manages is missed: %s", s.Message())
	}
}

func TestScoringStrategies(t *testing.T) {
	gpu := func(n string) func(*corev1.Node) {
		return func(o *corev1.Node) { o.Status.Allocatable["example.com/gpu"] = res("g", n)["g"] }
	}
	for _, c := range []struct {
		name, args string
		pod        func(*corev1.Pod)
		want       int64
	}{ // 1 of 4 CPUs, 1 of 10 GiB and 1 of 4 GPUs are taken
		{"least", "", asks(res("cpu", "1", "memory", "1Gi")), (50 + 80) / 2},
		{"most", `{"scoringStrategy": {"type": "MostAllocated"}}`, asks(res("cpu", "1", "memory", "1Gi")), (50 + 20) / 2},
		{"weighed", `{"scoringStrategy": {"type": "LeastAllocated", "resources": [{"name": "cpu", "weight": 3}, {"name": "memory", "weight": 1}]}}`, asks(res("cpu", "1", "memory", "1Gi")), (3*50 + 80) / 4},
		{"a rising shape", `{"scoringStrategy": {"type": "RequestedToCapacityRatio", "requestedToCapacityRatio": {"shape": [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]}}}`,
			asks(res("cpu", "1", "memory", "1Gi")), (50 + 20) / 2},
		{"a bend", `{"scoringStrategy": {"type": "RequestedToCapacityRatio", "resources": [{"name": "cpu"}], "requestedToCapacityRatio": {"shape": [{"utilization": 0, "score": 10}, {"utilization": 40, "score": 4}, {"utilization": 60, "score": 0}]}}}`,
			asks(res("cpu", "1")), 20},
		{"scores of zero don't count", `{"scoringStrategy": {"type": "RequestedToCapacityRatio", "requestedToCapacityRatio": {"shape": [{"utilization": 30, "score": 0}, {"utilization": 50, "score": 8}]}}}`,
			asks(res("cpu", "1", "memory", "1Gi")), 80},
		{"rounded", `{"scoringStrategy": {"type": "RequestedToCapacityRatio", "resources": [{"name": "cpu"}, {"name": "memory", "weight": 2}], "requestedToCapacityRatio": {"shape": [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]}}}`,
			asks(res("cpu", "1", "memory", "1Gi")), 30},
		{"more than there is", "", asks(res("cpu", "9", "memory", "1Gi")), 80 / 2},
		{"more than there is, packed", `{"scoringStrategy": {"type": "MostAllocated"}}`, asks(res("cpu", "9", "memory", "1Gi")), (100 + 20) / 2},
		{"nothing asked counts a little", "", func(*corev1.Pod) {}, (100*2900/4000 + 100*(9<<30-200<<20)/(10<<30)) / 2},
		{"a device that is not asked for", `{"scoringStrategy": {"type": "LeastAllocated", "resources": [{"name": "cpu"}, {"name": "example.com/gpu"}]}}`, asks(res("cpu", "1")), 50},
		{"a device that is", `{"scoringStrategy": {"type": "LeastAllocated", "resources": [{"name": "cpu"}, {"name": "example.com/gpu"}]}}`, asks(res("cpu", "1", "example.com/gpu", "2")), (50 + 25) / 2},
		{"a resource that the node lacks", `{"scoringStrategy": {"type": "LeastAllocated", "resources": [{"name": "cpu"}, {"name": "example.org/nic"}]}}`, asks(res("cpu", "1", "example.org/nic", "1")), 50},
	} {
		f := newFixture(t, testNode("n", gpu("4")))
		f.on("n", f.pod("there", asks(res("cpu", "1", "memory", "1Gi", "example.com/gpu", "1"))))
		got := f.make(NodeResourcesFit, c.args).(framework.ScorePlugin).Score(&framework.Cycle{Pod: f.pod("p", c.pod), Nodes: f.nodes}, 0)
		if got != c.want {
			t.Errorf("%s: score %d, want %d", c.name, got, c.want)
		}
	}
}

// TestBalance: 75 where the pod changes nothing, more where it evens out what is used, less where it does the contrary.
func TestBalance(t *testing.T) {
	for _, c := range []struct {
		name, there, asks string // CPU, memory in GiB of 4 and 10
		args              string
		want              int64
	}{
		{"even on an empty node", "0/0", "2/5", "", 50 + (50+100-100)/2},
		{"uneven on an empty node", "0/0", "4/0", "", 50 + (50+50-100)/2},
		{"evens out", "4/0", "0/10", "", 50 + (50+100-50)/2},
		{"nothing asked", "1/1", "0/0", "", 0},
		{"three resources", "0/0", "4/10", `{"resources": [{"name": "cpu"}, {"name": "memory"}, {"name": "ephemeral-storage"}]}`, 50 + (50+52-100)/2},
		{"one resource", "0/0", "4/0", `{"resources": [{"name": "cpu"}]}`, 75},
	} {
		f := newFixture(t, testNode("n", func(n *corev1.Node) { n.Status.Allocatable["ephemeral-storage"] = res("x", "10Gi")["x"] }))
		amounts := func(s string) func(*corev1.Pod) {
			r := corev1.ResourceList{}
			if s[0] != '0' {
				r["cpu"] = res("x", s[:1])["x"]
			}
			if s[2:] != "0" {
				r["memory"] = res("x", s[2:]+"Gi")["x"]
			}
			return asks(r)
		}
		f.on("n", f.pod("there", amounts(c.there)))
		got := f.make(BalancedAllocation, c.args).(framework.ScorePlugin).Score(&framework.Cycle{Pod: f.pod("p", amounts(c.asks)), Nodes: f.nodes}, 0)
		if got != c.want {
			t.Errorf("%s: score %d, want %d", c.name, got, c.want)
		}
	}
}

func TestHintsOfFit(t *testing.T) {
	f := newFixture(t, testNode("small"), testNode("large", func(n *corev1.Node) { n.Status.Allocatable["cpu"] = res("x", "64")["x"] }))
	p := f.make(NodeResourcesFit, "").(framework.HintPlugin)
	big := f.pod("p", asks(res("cpu", "8")))
	for _, c := range []struct {
		name string
		e    framework.Event
		want bool
	}{
		{"a pod gone from a node that is too small", framework.Event{Kind: framework.PodRemoved, Slot: 0}, false},
		{"a pod gone from a large node", framework.Event{Kind: framework.PodRemoved, Slot: 1}, true},
		{"a small node", framework.Event{Kind: framework.NodeAdded, Slot: 0, Node: f.nodes.Object[0]}, false},
		{"a large node", framework.Event{Kind: framework.NodeAdded, Slot: 1, Node: f.nodes.Object[1]}, true},
		{"the pod itself", framework.Event{Kind: framework.SelfChanged, Slot: -1}, true},
	} {
		if got := p.Helps(big, &c.e); got != c.want {
			t.Errorf("%s: helps is %v, want %v", c.name, got, c.want)
		}
	}
	if p.Events()&framework.NodeTaints != 0 {
		t.Error("a taint is said to help")
	}
}
