package plugins

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/scheduler/framework"
)

func tolerating(list ...corev1.Toleration) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.Tolerations = list }
}

// TestToleration follows the API documentation of Toleration.
func TestToleration(t *testing.T) {
	const refused = "!node(s) had untolerated taint(s)"
	for _, c := range []struct {
		name        string
		effect      corev1.TaintEffect
		tolerations []corev1.Toleration
		want        string
	}{
		{"NoSchedule keeps away", corev1.TaintEffectNoSchedule, nil, refused},
		{"NoExecute too", corev1.TaintEffectNoExecute, nil, refused},
		{"PreferNoSchedule does not", corev1.TaintEffectPreferNoSchedule, nil, ok},
		{"equal key, value and effect", corev1.TaintEffectNoSchedule, []corev1.Toleration{{Key: "team", Value: "a", Effect: corev1.TaintEffectNoSchedule}}, ok},
		{"said in words", corev1.TaintEffectNoSchedule, []corev1.Toleration{{Key: "team", Operator: corev1.TolerationOpEqual, Value: "a", Effect: corev1.TaintEffectNoSchedule}}, ok},
		{"another value", corev1.TaintEffectNoSchedule, []corev1.Toleration{{Key: "team", Value: "b", Effect: corev1.TaintEffectNoSchedule}}, refused},
		{"another effect", corev1.TaintEffectNoSchedule, []corev1.Toleration{{Key: "team", Value: "a", Effect: corev1.TaintEffectNoExecute}}, refused},
		{"an empty effect is any", corev1.TaintEffectNoExecute, []corev1.Toleration{{Key: "team", Value: "a"}}, ok},
		{"Exists needs no value", corev1.TaintEffectNoSchedule, []corev1.Toleration{{Key: "team", Operator: corev1.TolerationOpExists}}, ok},
		{"Exists without a key is all", corev1.TaintEffectNoSchedule, []corev1.Toleration{{Operator: corev1.TolerationOpExists}}, ok},
		{"one of several", corev1.TaintEffectNoSchedule, []corev1.Toleration{{Key: "x", Operator: corev1.TolerationOpExists}, {Key: "team", Operator: corev1.TolerationOpExists}}, ok},
		{"operators that are off in 1.36", corev1.TaintEffectNoSchedule, []corev1.Toleration{{Key: "team", Operator: corev1.TolerationOpGt, Value: "1"}}, refused},
	} {
		f := newFixture(t, testNode("n", taint("team", "a", c.effect)))
		f.want(c.name, TaintToleration, "", f.pod("p", tolerating(c.tolerations...)), map[string]string{"n": c.want})
	}
	f := newFixture(t, testNode("none"), testNode("one", taint("a", "", corev1.TaintEffectPreferNoSchedule)),
		testNode("two", taint("a", "", corev1.TaintEffectPreferNoSchedule), taint("b", "", corev1.TaintEffectPreferNoSchedule)))
	f.wantScores("the fewest soft taints", TaintToleration, "", f.pod("p"), map[string]int64{"none": 100, "one": 50, "two": 0})
	f.wantScores("all tolerated", TaintToleration, "", f.pod("p", tolerating(corev1.Toleration{Operator: corev1.TolerationOpExists})), map[string]int64{"none": 100, "one": 100, "two": 100})
	f.wantScores("some tolerated", TaintToleration, "", f.pod("p", tolerating(corev1.Toleration{Key: "a", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectPreferNoSchedule})),
		map[string]int64{"none": 100, "one": 100, "two": 0})
}

func TestCordon(t *testing.T) {
	f := newFixture(t, testNode("on"), testNode("off", func(n *corev1.Node) { n.Spec.Unschedulable = true }))
	f.want("a cordoned node", NodeUnschedulable, "", f.pod("p"), map[string]string{"on": ok, "off": "!node(s) were unschedulable"})
	f.want("tolerated", NodeUnschedulable, "", f.pod("p", tolerating(corev1.Toleration{Key: corev1.TaintNodeUnschedulable, Operator: corev1.TolerationOpExists})), map[string]string{"on": ok, "off": ok})
	f.want("something else tolerated", NodeUnschedulable, "", f.pod("p", tolerating(corev1.Toleration{Key: "x", Operator: corev1.TolerationOpExists})), map[string]string{"on": ok, "off": "!node(s) were unschedulable"})
}

func TestNodeName(t *testing.T) {
	f := newFixture(t, testNode("a"), testNode("b"))
	f.want("no name", NodeName, "", f.pod("p"), map[string]string{"a": ok, "b": ok})
	f.want("a name", NodeName, "", f.pod("p", func(p *corev1.Pod) { p.Spec.NodeName = "b" }), map[string]string{"a": "!node(s) didn't match the requested node name", "b": ok})
}

func TestHostPorts(t *testing.T) {
	const taken = "node(s) didn't have free ports for the requested pod ports"
	port := func(ip string, protocol corev1.Protocol, n int32) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Containers[0].Ports = []corev1.ContainerPort{{HostIP: ip, Protocol: protocol, HostPort: n}}
		}
	}
	starting := func(always bool) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			c := corev1.Container{Image: "i", Ports: []corev1.ContainerPort{{HostPort: 80}}}
			if always {
				c.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
			}
			p.Spec.InitContainers = []corev1.Container{c}
		}
	}
	for _, c := range []struct {
		name        string
		there, asks func(*corev1.Pod)
		want        string
	}{
		{"same", port("", "TCP", 80), port("", "TCP", 80), taken},
		{"no protocol is TCP", port("", "", 80), port("", "TCP", 80), taken},
		{"another port", port("", "TCP", 80), port("", "TCP", 81), ok},
		{"another protocol", port("", "TCP", 80), port("", "UDP", 80), ok},
		{"another address", port("10.0.0.1", "TCP", 80), port("10.0.0.2", "TCP", 80), ok},
		{"the same address", port("10.0.0.1", "TCP", 80), port("10.0.0.1", "TCP", 80), taken},
		{"one of all addresses", port("0.0.0.0", "TCP", 80), port("10.0.0.2", "TCP", 80), taken},
		{"all addresses, one taken", port("10.0.0.2", "TCP", 80), port("", "TCP", 80), taken},
		{"no host port", port("", "TCP", 0), port("", "TCP", 0), ok},
		{"a sidecar's", starting(true), port("", "TCP", 80), taken},
		{"an init container's, which ends", starting(false), port("", "TCP", 80), ok},
	} {
		f := newFixture(t, testNode("n"))
		f.on("n", f.pod("there", c.there))
		f.want(c.name, NodePorts, "", f.pod("p", c.asks), map[string]string{"n": c.want})
	}
}

func TestGates(t *testing.T) {
	f := newFixture(t)
	g := f.make(SchedulingGates, "").(framework.PreEnqueuePlugin)
	if s := g.PreEnqueue(f.pod("p")); !s.OK() {
		t.Errorf("a pod without gates waits: %s", s.Message())
	}
	s := g.PreEnqueue(f.pod("p", func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "a"}, {Name: "b"}} }))
	if !s.Is(framework.Unresolvable) || s.Message() != "waiting for scheduling gates: [a b]" {
		t.Errorf("a gated pod is told %+v", s)
	}
}

func TestOrderOfTheQueue(t *testing.T) {
	f := newFixture(t)
	at := func(v int32, second int64) framework.QueueItem {
		return framework.QueueItem{Pod: f.pod("p", prio(v)), Since: time.Unix(second, 0)}
	}
	sort := f.make(PrioritySort, "").(framework.QueueSortPlugin)
	for _, c := range []struct {
		name        string
		first, then framework.QueueItem
	}{{"higher priority", at(2, 9), at(1, 1)}, {"longer wait", at(1, 1), at(1, 2)}, {"priority zero before a negative one", at(0, 9), at(-1, 1)}} {
		if !sort.Less(c.first, c.then) || sort.Less(c.then, c.first) {
			t.Errorf("%s does not come first", c.name)
		}
	}
}

func TestDeclaredFeatures(t *testing.T) {
	f := newFixture(t, testNode("new", func(n *corev1.Node) { n.Status.DeclaredFeatures = []string{"RestartAllContainersOnContainerExits"} }), testNode("old"))
	restarts := func(p *corev1.Pod) {
		p.Spec.Containers[0].RestartPolicyRules = []corev1.ContainerRestartRule{{Action: corev1.ContainerRestartRuleActionRestartAllContainers}}
	}
	f.want("a pod that needs nothing", NodeDeclaredFeatures, "", f.pod("p"), map[string]string{"new": ok, "old": ok})
	f.want("a pod that needs something", NodeDeclaredFeatures, "", f.pod("p", restarts), map[string]string{"new": ok, "old": "!node(s) didn't match Pod's required features"})
	f.want("nobody has it", NodeDeclaredFeatures, "", f.pod("p", func(p *corev1.Pod) { p.Spec.HostNetwork, p.Spec.HostUsers = true, ptr.To(false) }),
		map[string]string{"new": "!node(s) didn't match Pod's required features", "old": "!node(s) didn't match Pod's required features"})
}
