package plugins

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/yare-project/yare/scheduler/framework"
)

func expr(key string, op corev1.NodeSelectorOperator, values ...string) corev1.NodeSelectorRequirement {
	return corev1.NodeSelectorRequirement{Key: key, Operator: op, Values: values}
}

func requiring(terms ...corev1.NodeSelectorTerm) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms}}}
	}
}

func all(list ...corev1.NodeSelectorRequirement) corev1.NodeSelectorTerm {
	return corev1.NodeSelectorTerm{MatchExpressions: list}
}

func called(names ...string) (t corev1.NodeSelectorTerm) {
	for _, n := range names {
		t.MatchFields = append(t.MatchFields, expr("metadata.name", corev1.NodeSelectorOpIn, n))
	}
	return t
}

// TestNodeAffinity follows "Assigning Pods to Nodes".
func TestNodeAffinity(t *testing.T) {
	const no = "!node(s) didn't match Pod's node affinity/selector"
	nodes := func() []*corev1.Node {
		return []*corev1.Node{testNode("a", label("disk", "ssd", "cores", "16")), testNode("b", label("disk", "hdd", "cores", "4")), testNode("c", label("cores", "many"))}
	}
	for _, c := range []struct {
		name    string
		pod     func(*corev1.Pod)
		a, b, c string
	}{
		{"nothing", func(*corev1.Pod) {}, ok, ok, ok},
		{"selector", func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"disk": "ssd"} }, ok, no, no},
		{"In", requiring(all(expr("disk", corev1.NodeSelectorOpIn, "ssd", "nvme"))), ok, no, no},
		{"NotIn matches where the label is missing", requiring(all(expr("disk", corev1.NodeSelectorOpNotIn, "hdd"))), ok, no, ok},
		{"Exists", requiring(all(expr("disk", corev1.NodeSelectorOpExists))), ok, ok, no},
		{"DoesNotExist", requiring(all(expr("disk", corev1.NodeSelectorOpDoesNotExist))), no, no, ok},
		{"Gt, and what is no number", requiring(all(expr("cores", corev1.NodeSelectorOpGt, "8"))), ok, no, no},
		{"Lt", requiring(all(expr("cores", corev1.NodeSelectorOpLt, "8"))), no, ok, no},
		{"expressions are all needed", requiring(all(expr("disk", corev1.NodeSelectorOpExists), expr("cores", corev1.NodeSelectorOpLt, "8"))), no, ok, no},
		{"terms are alternatives", requiring(all(expr("disk", corev1.NodeSelectorOpIn, "ssd")), all(expr("disk", corev1.NodeSelectorOpDoesNotExist))), ok, no, ok},
		{"an empty term matches nothing", requiring(corev1.NodeSelectorTerm{}), no, no, no},
		{"selector and affinity are both needed", func(p *corev1.Pod) {
			requiring(all(expr("disk", corev1.NodeSelectorOpExists)))(p)
			p.Spec.NodeSelector = map[string]string{"cores": "4"}
		}, no, ok, no},
		{"a name", requiring(called("b")), no, ok, no},
		{"two names", requiring(called("b"), called("c")), no, ok, ok},
		{"a name or a label", requiring(called("b"), all(expr("disk", corev1.NodeSelectorOpIn, "ssd"))), ok, ok, no},
		{"two names at once", requiring(called("a", "b")), "!pod affinity terms conflict", "!pod affinity terms conflict", "!pod affinity terms conflict"},
	} {
		f := newFixture(t, nodes()...)
		f.want(c.name, NodeAffinity, "", f.pod("p", c.pod), map[string]string{"a": c.a, "b": c.b, "c": c.c})
	}
	const pool = `{"addedAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "disk", "operator": "Exists"}]}]}}}`
	f := newFixture(t, nodes()...)
	f.want("of the profile", NodeAffinity, pool, f.pod("p", requiring(all(expr("cores", corev1.NodeSelectorOpNotIn, "4")))),
		map[string]string{"a": ok, "b": no, "c": "!node(s) didn't match scheduler-enforced node affinity"})
}

func TestPodThatNamesNodesIsJudgedThere(t *testing.T) {
	f := newFixture(t, testNode("a"), testNode("b"), testNode("c"))
	profile := f.profile(f.make(NodeAffinity, ""), f.make(NodeUnschedulable, ""))
	_, why, err := profile.Decide(profile.Begin(f.pod("p", requiring(called("gone")))))
	if err != nil || why.Message() != "0/3 nodes are available: 3 node(s) didn't satisfy plugin(s) [NodeAffinity]." {
		t.Errorf("told %q (%v)", why.Message(), err)
	}
	d, _, err := profile.Decide(profile.Begin(f.pod("p", requiring(called("b"), called("gone")))))
	if err != nil || d == nil || d.Node != "b" {
		t.Errorf("decided %+v (%v)", d, err)
	}
}

func TestPreferredNodes(t *testing.T) {
	f := newFixture(t, testNode("a", label("disk", "ssd", "zone", "1")), testNode("b", label("zone", "1")), testNode("c"))
	prefers := func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{
			{Weight: 60, Preference: all(expr("disk", corev1.NodeSelectorOpExists))}, {Weight: 20, Preference: all(expr("zone", corev1.NodeSelectorOpIn, "1"))}}}}
	}
	f.wantScores("weights add up", NodeAffinity, "", f.pod("p", prefers), map[string]int64{"a": 100, "b": 25, "c": 0})
	f.wantScores("no preference", NodeAffinity, "", f.pod("p"), map[string]int64{"a": 0, "b": 0, "c": 0})
	f.wantScores("of the profile, too", NodeAffinity, `{"addedAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 40, "preference": {"matchExpressions": [{"key": "zone", "operator": "DoesNotExist"}]}}]}}`,
		f.pod("p", prefers), map[string]int64{"a": 100, "b": 25, "c": 50})
}

func TestHintsOfNodeAffinity(t *testing.T) {
	f := newFixture(t)
	p := f.make(NodeAffinity, "").(framework.HintPlugin)
	pod := f.pod("p", requiring(all(expr("disk", corev1.NodeSelectorOpExists))))
	if p.Helps(pod, &framework.Event{Kind: framework.NodeAdded, Node: testNode("n")}) {
		t.Error("a node without the label is said to help")
	}
	if !p.Helps(pod, &framework.Event{Kind: framework.NodeLabels, Node: testNode("n", label("disk", "x"))}) {
		t.Error("a node with the label is said not to help")
	}
}
