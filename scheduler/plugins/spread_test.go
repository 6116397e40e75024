package plugins

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/scheduler/framework"
)

func evenly(skew int32, key string, change ...func(*corev1.TopologySpreadConstraint)) corev1.TopologySpreadConstraint {
	c := corev1.TopologySpreadConstraint{MaxSkew: skew, TopologyKey: key, WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: app("web")}
	for _, f := range change {
		f(&c)
	}
	return c
}

func anyway(c *corev1.TopologySpreadConstraint) { c.WhenUnsatisfiable = corev1.ScheduleAnyway }

func spreading(list ...corev1.TopologySpreadConstraint) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Labels = map[string]string{"app": "web", "rev": "2"}
		p.Spec.TopologySpreadConstraints = list
	}
}

// spreadOver places pods app=web: so many on each node of threeNodes.
func spreadOver(t *testing.T, a, b, c, d int) *fixture {
	f := threeNodes(t)
	for node, k := range map[string]int{"a": a, "b": b, "c": c, "d": d} {
		for i := range k {
			f.on(node, f.pod(fmt.Sprintf("web-%s%d", node, i), podLabel("app", "web", "rev", "1")))
		}
	}
	return f
}

// TestTopologySpread follows "Pod Topology Spread Constraints", KEP-895, KEP-3022 (minDomains), KEP-3094 (inclusion policies) and KEP-3243 (matchLabelKeys).
func TestTopologySpread(t *testing.T) {
	const skew, bare = "node(s) didn't match pod topology spread constraints", "!node(s) didn't match pod topology spread constraints (missing required label)"
	type counts [4]int
	for _, c := range []struct {
		name       string
		there      counts
		list       []corev1.TopologySpreadConstraint
		a, b, c, d string
	}{
		{"even", counts{1, 0, 1, 0}, []corev1.TopologySpreadConstraint{evenly(1, zone)}, ok, ok, ok, bare},
		{"uneven", counts{1, 0, 0, 0}, []corev1.TopologySpreadConstraint{evenly(1, zone)}, skew, skew, ok, bare},
		{"a larger skew", counts{1, 0, 0, 0}, []corev1.TopologySpreadConstraint{evenly(2, zone)}, ok, ok, ok, bare},
		{"by host", counts{1, 0, 1, 0}, []corev1.TopologySpreadConstraint{evenly(1, host)}, skew, ok, skew, ok},
		{"both; a node without the zone does not count", counts{1, 0, 1, 0}, []corev1.TopologySpreadConstraint{evenly(1, zone), evenly(1, host)}, skew, ok, skew, bare},
		{"preferred only", counts{5, 0, 0, 0}, []corev1.TopologySpreadConstraint{evenly(1, zone, anyway)}, ok, ok, ok, ok},
		{"too few domains: the least is none", counts{1, 0, 1, 0}, []corev1.TopologySpreadConstraint{evenly(1, zone, func(c *corev1.TopologySpreadConstraint) { c.MinDomains = ptr.To[int32](3) })}, skew, skew, skew, bare},
		{"enough domains", counts{1, 0, 1, 0}, []corev1.TopologySpreadConstraint{evenly(1, zone, func(c *corev1.TopologySpreadConstraint) { c.MinDomains = ptr.To[int32](2) })}, ok, ok, ok, bare},
		{"a selector that is not its own", counts{1, 0, 0, 0}, []corev1.TopologySpreadConstraint{evenly(1, zone, func(c *corev1.TopologySpreadConstraint) { c.LabelSelector = app("db") })}, ok, ok, ok, bare},
		{"no selector selects no pods", counts{5, 0, 0, 0}, []corev1.TopologySpreadConstraint{evenly(1, zone, func(c *corev1.TopologySpreadConstraint) { c.LabelSelector = nil })}, ok, ok, ok, bare},
		{"of its own revision only", counts{5, 0, 0, 0}, []corev1.TopologySpreadConstraint{evenly(1, zone, func(c *corev1.TopologySpreadConstraint) { c.MatchLabelKeys = []string{"rev", "none"} })}, ok, ok, ok, bare},
	} {
		f := spreadOver(t, c.there[0], c.there[1], c.there[2], c.there[3])
		f.want(c.name, PodTopologySpread, "", f.pod("p", spreading(c.list...)), map[string]string{"a": c.a, "b": c.b, "c": c.c, "d": c.d})
	}
	f := threeNodes(t)
	f.on("a", f.pod("leaving", podLabel("app", "web"), func(p *corev1.Pod) { p.DeletionTimestamp = ptr.To(metav1.Unix(1, 0)) }))
	f.on("a", f.pod("elsewhere", podLabel("app", "web"), inNamespace("prod")))
	f.want("pods on their way out, and those of other namespaces, don't count", PodTopologySpread, "", f.pod("p", spreading(evenly(1, zone))), map[string]string{"a": ok, "b": ok, "c": ok, "d": bare})
}

// TestInclusionPolicies: by default nodes that the pod's affinity leaves out don't count, and tainted ones do.
func TestInclusionPolicies(t *testing.T) {
	const skew = "node(s) didn't match pod topology spread constraints"
	honor, ignore := ptr.To(corev1.NodeInclusionPolicyHonor), ptr.To(corev1.NodeInclusionPolicyIgnore)
	for _, c := range []struct {
		name             string
		affinity, taints *corev1.NodeInclusionPolicy
		selector         map[string]string
		full, empty      string // the node with a pod, and the one with the taint and without
	}{
		{"tainted nodes count", nil, nil, nil, skew, ok},
		{"unless that is asked", nil, honor, nil, ok, ok},
		{"said in words", ignore, ignore, nil, skew, ok},
		{"nodes out of reach don't count", nil, nil, map[string]string{host: "full"}, ok, ok},
		{"unless that is asked", ignore, nil, map[string]string{host: "full"}, skew, ok},
		{"said in words", honor, ignore, map[string]string{host: "full"}, ok, ok},
	} {
		f := newFixture(t, testNode("full", label(host, "full")), testNode("empty", label(host, "empty"), taint("team", "a", corev1.TaintEffectNoSchedule)))
		f.on("full", f.pod("there", podLabel("app", "web")))
		p := f.pod("p", spreading(evenly(1, host, func(k *corev1.TopologySpreadConstraint) {
			k.NodeAffinityPolicy, k.NodeTaintsPolicy = c.affinity, c.taints
		})), func(p *corev1.Pod) { p.Spec.NodeSelector = c.selector })
		f.want(c.name, PodTopologySpread, "", p, map[string]string{"full": c.full, "empty": c.empty})
	}
}

func TestDefaultSpread(t *testing.T) {
	const skew, bare = "node(s) didn't match pod topology spread constraints", "!node(s) didn't match pod topology spread constraints (missing required label)"
	const hard = `{"defaultingType": "List", "defaultConstraints": [{"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule"}]}`
	web := podLabel("app", "web")
	f := spreadOver(t, 1, 0, 0, 0)
	f.want("a pod that belongs to nothing", PodTopologySpread, hard, f.pod("p", web), map[string]string{"a": ok, "b": ok, "c": ok, "d": ok})
	f.siblings = labels.SelectorFromSet(labels.Set{"app": "web"})
	f.want("one that has siblings", PodTopologySpread, hard, f.pod("p", web), map[string]string{"a": skew, "b": skew, "c": ok, "d": bare})
	f.want("one with constraints of its own", PodTopologySpread, hard, f.pod("p", spreading(evenly(1, host))), map[string]string{"a": skew, "b": ok, "c": ok, "d": ok})
	f.want("no defaults at all", PodTopologySpread, `{"defaultingType": "List"}`, f.pod("p", web), map[string]string{"a": ok, "b": ok, "c": ok, "d": ok})
	// Raw, with ln(4 hosts + 2) = 1.79 and ln(3 zones, of which one is none, + 2) = 1.61 for a pod, and maxSkew - 1 = 2 and 4: 9, 8, 6, and 2 where there is no zone.
	f.wantScores("Kubernetes' defaults: apart by host, then by zone", PodTopologySpread, "", f.pod("p", web), map[string]int64{"a": 22, "b": 33, "c": 55, "d": 100})
}

func TestPreferredSpread(t *testing.T) {
	f := spreadOver(t, 2, 0, 1, 0)
	// Zone 1 has 2 pods, zone 2 has 1; ln(2 zones + 2) = 1.39: raw scores 3 and 1, a node without the zone is the worst.
	f.wantScores("by zone", PodTopologySpread, "", f.pod("p", spreading(evenly(1, zone, anyway))), map[string]int64{"a": 33, "b": 33, "c": 100, "d": 0})
	f.wantScores("a larger skew matters less", PodTopologySpread, "", f.pod("p", spreading(evenly(5, zone, anyway))), map[string]int64{"a": 71, "b": 71, "c": 100, "d": 0})
	f = spreadOver(t, 0, 0, 0, 0)
	f.wantScores("nobody there", PodTopologySpread, "", f.pod("p", spreading(evenly(1, host, anyway))), map[string]int64{"a": 100, "b": 100, "c": 100, "d": 100})
}

func TestHintsOfSpread(t *testing.T) {
	f := threeNodes(t)
	p := f.make(PodTopologySpread, "").(framework.HintPlugin)
	pod := f.pod("p", spreading(evenly(1, zone)))
	for _, c := range []struct {
		name string
		e    framework.Event
		want bool
	}{
		{"one that counts comes", framework.Event{Kind: framework.PodAdded, Pod: f.pod("web", podLabel("app", "web"))}, true},
		{"one that does not", framework.Event{Kind: framework.PodAdded, Pod: f.pod("db", podLabel("app", "db"))}, false},
		{"one of another namespace", framework.Event{Kind: framework.PodRemoved, Pod: f.pod("web", podLabel("app", "web"), inNamespace("prod"))}, false},
		{"a node comes", framework.Event{Kind: framework.NodeAdded, Node: testNode("n", label(zone, "3"))}, true},
		{"a node goes", framework.Event{Kind: framework.NodeRemoved}, true},
	} {
		if got := p.Helps(pod, &c.e); got != c.want {
			t.Errorf("%s: helps is %v, want %v", c.name, got, c.want)
		}
	}
}
