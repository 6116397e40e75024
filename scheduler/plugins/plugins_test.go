package plugins

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yare-project/yare/scheduler/framework"
)

type fixture struct {
	t     *testing.T
	nodes *framework.Nodes
}

func newFixture(t *testing.T, nodes ...*corev1.Node) *fixture {
	f := &fixture{t, framework.NewNodes()}
	for _, n := range nodes {
		f.nodes.SetNode(n)
	}
	return f
}

func (f *fixture) pod(name string, change ...func(*corev1.Pod)) *framework.Pod {
	f.t.Helper()
	obj := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Image: "web"}}}}
	for _, c := range change {
		c(obj)
	}
	p, err := framework.NewPod(obj, f.nodes)
	if err != nil {
		f.t.Fatal(err)
	}
	return p
}

func (f *fixture) make(name, args string) framework.Plugin {
	f.t.Helper()
	p, err := Registry()[name]([]byte(args), &framework.Handle{Nodes: f.nodes})
	if err != nil {
		f.t.Fatal(err)
	}
	return p
}

func (f *fixture) cycle(p *framework.Pod) *framework.Cycle {
	return &framework.Cycle{Pod: p, Nodes: f.nodes}
}

func testNode(name string, change ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}, Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{
		"cpu": resource.MustParse("4"), "memory": resource.MustParse("10Gi"), "pods": resource.MustParse("2")}}}
	for _, c := range change {
		c(n)
	}
	return n
}

func asks(r corev1.ResourceList) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Requests = r }
}

func res(kv ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := 0; i < len(kv); i += 2 {
		out[corev1.ResourceName(kv[i])] = resource.MustParse(kv[i+1])
	}
	return out
}

func TestToleration(t *testing.T) {
	taint := func(effect corev1.TaintEffect) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "team", Value: "a", Effect: effect}} }
	}
	tol := func(x corev1.Toleration) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Spec.Tolerations = []corev1.Toleration{x} }
	}
	none := func(*corev1.Pod) {}
	for _, c := range []struct {
		name   string
		effect corev1.TaintEffect
		pod    func(*corev1.Pod)
		fits   bool
	}{
		{"NoSchedule keeps away", corev1.TaintEffectNoSchedule, none, false},
		{"NoExecute too", corev1.TaintEffectNoExecute, none, false},
		{"PreferNoSchedule does not", corev1.TaintEffectPreferNoSchedule, none, true},
		{"equal key, value and effect", corev1.TaintEffectNoSchedule, tol(corev1.Toleration{Key: "team", Value: "a", Effect: corev1.TaintEffectNoSchedule}), true},
		{"another value", corev1.TaintEffectNoSchedule, tol(corev1.Toleration{Key: "team", Value: "b", Effect: corev1.TaintEffectNoSchedule}), false},
		{"another effect", corev1.TaintEffectNoSchedule, tol(corev1.Toleration{Key: "team", Value: "a", Effect: corev1.TaintEffectNoExecute}), false},
		{"an empty effect is any", corev1.TaintEffectNoExecute, tol(corev1.Toleration{Key: "team", Value: "a"}), true},
		{"Exists needs no value", corev1.TaintEffectNoSchedule, tol(corev1.Toleration{Key: "team", Operator: corev1.TolerationOpExists}), true},
		{"Exists without a key is all", corev1.TaintEffectNoSchedule, tol(corev1.Toleration{Operator: corev1.TolerationOpExists}), true},
	} {
		f := newFixture(t, testNode("n", taint(c.effect)))
		s := f.make(TaintToleration, "").(framework.FilterPlugin).Filter(f.cycle(f.pod("p", c.pod)), 0)
		if s.OK() != c.fits {
			t.Errorf("%s: fits is %v, want %v", c.name, s.OK(), c.fits)
		}
	}
}

func TestFitReasons(t *testing.T) {
	for _, c := range []struct {
		name string
		ask  corev1.ResourceList
		code framework.Code
		want string
		args string
	}{
		{"fits", res("cpu", "1"), framework.Success, "", ""},
		{"too much with what is there", res("cpu", "3500m"), framework.Unschedulable, "Insufficient cpu", ""},
		{"more than the node has", res("memory", "11Gi"), framework.Unresolvable, "Insufficient memory", ""},
		{"several", res("cpu", "9", "memory", "11Gi"), framework.Unresolvable, "Insufficient cpu, Insufficient memory", ""},
		{"an unknown device", res("example.com/gpu", "1"), framework.Unresolvable, "Insufficient example.com/gpu", ""},
		{"that somebody else cares for", res("example.com/gpu", "1"), framework.Success, "", `{"ignoredResources": ["example.com/gpu"]}`},
		{"by group", res("example.com/gpu", "1"), framework.Success, "", `{"ignoredResourceGroups": ["example.com"]}`},
		{"ephemeral storage", res("ephemeral-storage", "1Gi"), framework.Unresolvable, "Insufficient ephemeral-storage", ""},
	} {
		f := newFixture(t, testNode("n"))
		f.nodes.AddPod(f.pod("there", asks(res("cpu", "1"))), "n")
		s := f.make(NodeResourcesFit, c.args).(framework.FilterPlugin).Filter(f.cycle(f.pod("p", asks(c.ask))), 0)
		if !s.Is(c.code) || s.Message() != c.want {
			t.Errorf("%s: got %+v, want code %d with %q", c.name, s, c.code, c.want)
		}
	}
	f := newFixture(t, testNode("n"))
	f.nodes.AddPod(f.pod("a"), "n")
	f.nodes.AddPod(f.pod("b"), "n")
	if s := f.make(NodeResourcesFit, "").(framework.FilterPlugin).Filter(f.cycle(f.pod("c")), 0); s.Message() != "Too many pods" {
		t.Errorf("a full node says %q", s.Message())
	}
}

func TestScoringStrategies(t *testing.T) {
	for _, c := range []struct {
		args string
		want int64
	}{ // 2 of 4 CPUs and 2 of 10 GiB with the pod
		{"", (50 + 80) / 2},
		{`{"scoringStrategy": {"type": "MostAllocated"}}`, (50 + 20) / 2},
		{`{"scoringStrategy": {"type": "LeastAllocated", "resources": [{"name": "cpu", "weight": 3}, {"name": "memory", "weight": 1}]}}`, (3*50 + 80) / 4},
		{`{"scoringStrategy": {"type": "RequestedToCapacityRatio", "requestedToCapacityRatio": {"shape": [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]}}}`, (50 + 20) / 2},
	} {
		f := newFixture(t, testNode("n"))
		f.nodes.AddPod(f.pod("there", asks(res("cpu", "1", "memory", "1Gi"))), "n")
		got := f.make(NodeResourcesFit, c.args).(framework.ScorePlugin).Score(f.cycle(f.pod("p", asks(res("cpu", "1", "memory", "1Gi")))), 0)
		if got != c.want {
			t.Errorf("%s: score %d, want %d", c.args, got, c.want)
		}
	}
}

func TestHostPorts(t *testing.T) {
	port := func(ip string, p corev1.Protocol, n int32) func(*corev1.Pod) {
		return func(o *corev1.Pod) {
			o.Spec.Containers[0].Ports = []corev1.ContainerPort{{HostIP: ip, Protocol: p, HostPort: n}}
		}
	}
	for _, c := range []struct {
		name        string
		there, want func(*corev1.Pod)
		fits        bool
	}{
		{"same", port("", "TCP", 80), port("", "TCP", 80), false},
		{"another port", port("", "TCP", 80), port("", "TCP", 81), true},
		{"another protocol", port("", "TCP", 80), port("", "UDP", 80), true},
		{"another address", port("10.0.0.1", "TCP", 80), port("10.0.0.2", "TCP", 80), true},
		{"one of all addresses", port("0.0.0.0", "TCP", 80), port("10.0.0.2", "TCP", 80), false},
	} {
		f := newFixture(t, testNode("n"))
		f.nodes.AddPod(f.pod("there", c.there), "n")
		s := f.make(NodePorts, "").(framework.FilterPlugin).Filter(f.cycle(f.pod("p", c.want)), 0)
		if s.OK() != c.fits {
			t.Errorf("%s: fits is %v, want %v", c.name, s.OK(), c.fits)
		}
	}
}

func TestAddedAffinity(t *testing.T) {
	f := newFixture(t, testNode("in", func(n *corev1.Node) { n.Labels["pool"] = "a" }), testNode("out"))
	p := f.make(NodeAffinity, `{"addedAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "pool", "operator": "Exists"}]}]}}}`).(framework.FilterPlugin)
	if s := p.Filter(f.cycle(f.pod("p")), 0); !s.OK() {
		t.Errorf("a node of the profile's pool is refused: %s", s.Message())
	}
	if s := p.Filter(f.cycle(f.pod("p")), 1); s.Message() != "node(s) didn't match scheduler-enforced node affinity" {
		t.Errorf("another says %q", s.Message())
	}
}

func TestPreemptionOrder(t *testing.T) {
	f := newFixture(t)
	pods := func(priorities ...int32) (out []*framework.Pod) {
		for _, v := range priorities {
			out = append(out, f.pod("p", func(p *corev1.Pod) { p.Spec.Priority = &v }))
		}
		return out
	}
	for _, c := range []struct {
		name         string
		better, than candidate
	}{
		{"no broken budget", candidate{victims: pods(9)}, candidate{victims: pods(1), violations: 1}},
		{"a less important first victim", candidate{victims: pods(1, 1, 1)}, candidate{victims: pods(2)}},
		{"a lower sum", candidate{victims: pods(5, 1)}, candidate{victims: pods(5, 5)}},
		{"fewer, also of negative priority", candidate{victims: pods(-5)}, candidate{victims: pods(-5, -5)}},
	} {
		if compare(c.better, c.than) >= 0 || compare(c.than, c.better) <= 0 {
			t.Errorf("%s does not come first", c.name)
		}
	}
}

func TestBudgetsAreUsedUp(t *testing.T) {
	f := newFixture(t)
	labelled := func(p *corev1.Pod) { p.Labels = map[string]string{"app": "db"} }
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "default"}, Spec: policyv1.PodDisruptionBudgetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}}, Status: policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: 1}}
	protected, free := splitByBudget([]*framework.Pod{f.pod("a", labelled), f.pod("b", labelled), f.pod("c")}, []*policyv1.PodDisruptionBudget{budget})
	if len(protected) != 1 || protected[0].Object.Name != "b" || len(free) != 2 {
		t.Errorf("%d are protected and %d free; want b alone protected", len(protected), len(free))
	}
}
