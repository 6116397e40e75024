package scheduler

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yare-project/yare/scheduler/framework"
	"github.com/yare-project/yare/scheduler/plugins"
)

// generator makes random but plausible objects from few values, so that rules meet.
type generator struct{ *rand.Rand }

func pick[T any](g generator, from ...T) T { return from[g.IntN(len(from))] }

func (g generator) often(percent int) bool { return g.IntN(100) < percent }

func (g generator) node(name string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name + strconv.Itoa(g.IntN(1e9))), Labels: map[string]string{corev1.LabelHostname: name}}}
	if g.often(85) {
		n.Labels[corev1.LabelTopologyZone] = pick(g, "z1", "z2", "z3")
	}
	if g.often(60) {
		n.Labels["disk"] = pick(g, "ssd", "hdd")
	}
	if g.often(50) {
		n.Labels["cores"] = pick(g, "4", "16")
	}
	n.Spec.Unschedulable = g.often(8)
	if g.often(20) {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "team", Value: pick(g, "a", "b"), Effect: pick(g, corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute)})
	}
	if g.often(15) {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "slow", Effect: corev1.TaintEffectPreferNoSchedule})
	}
	n.Status.Allocatable = corev1.ResourceList{"cpu": resource.MustParse(pick(g, "1", "2", "4")), "memory": resource.MustParse(pick(g, "1Gi", "4Gi")), "pods": resource.MustParse(pick(g, "3", "20"))}
	if g.often(30) {
		n.Status.Allocatable["example.com/gpu"] = resource.MustParse("2")
	}
	if g.often(40) {
		n.Status.Images = []corev1.ContainerImage{{Names: []string{pick(g, "web:1", "db:1")}, SizeBytes: int64(1+g.IntN(900)) << 20}}
	}
	return n
}

func (g generator) selector() *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": pick(g, "web", "db")}}
}

func (g generator) term() corev1.PodAffinityTerm {
	t := corev1.PodAffinityTerm{TopologyKey: pick(g, corev1.LabelHostname, corev1.LabelTopologyZone), LabelSelector: g.selector()}
	switch g.IntN(6) {
	case 0:
		t.Namespaces = []string{"default", "prod"}
	case 1:
		t.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"env": "prod"}}
	case 2:
		t.NamespaceSelector = &metav1.LabelSelector{}
	}
	return t
}

func (g generator) affinity() *corev1.Affinity {
	a := &corev1.Affinity{}
	if g.often(40) {
		expr := pick(g, corev1.NodeSelectorRequirement{Key: "disk", Operator: corev1.NodeSelectorOpIn, Values: []string{"ssd"}},
			corev1.NodeSelectorRequirement{Key: "disk", Operator: corev1.NodeSelectorOpNotIn, Values: []string{"hdd"}},
			corev1.NodeSelectorRequirement{Key: "cores", Operator: corev1.NodeSelectorOpGt, Values: []string{"8"}},
			corev1.NodeSelectorRequirement{Key: "cores", Operator: corev1.NodeSelectorOpExists},
			corev1.NodeSelectorRequirement{Key: "disk", Operator: corev1.NodeSelectorOpDoesNotExist})
		term := corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{expr}}
		a.NodeAffinity = &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{Weight: int32(1 + g.IntN(50)), Preference: term}}}
		if g.often(40) {
			a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{term}}
		}
		if g.often(15) {
			named := corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{fmt.Sprintf("n%d", g.IntN(8))}}}}
			a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{named}}
		}
	}
	if g.often(50) {
		a.PodAffinity = &corev1.PodAffinity{}
		if g.often(50) {
			a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution = []corev1.PodAffinityTerm{g.term()}
		}
		if g.often(60) {
			a.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution = []corev1.WeightedPodAffinityTerm{{Weight: int32(1 + g.IntN(100)), PodAffinityTerm: g.term()}}
		}
	}
	if g.often(50) {
		a.PodAntiAffinity = &corev1.PodAntiAffinity{}
		if g.often(40) {
			a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution = []corev1.PodAffinityTerm{g.term()}
		}
		if g.often(60) {
			a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution = []corev1.WeightedPodAffinityTerm{{Weight: int32(1 + g.IntN(100)), PodAffinityTerm: g.term()}}
		}
	}
	return a
}

func (g generator) constraint() corev1.TopologySpreadConstraint {
	c := corev1.TopologySpreadConstraint{MaxSkew: int32(1 + g.IntN(2)), TopologyKey: pick(g, corev1.LabelHostname, corev1.LabelTopologyZone, "disk"),
		WhenUnsatisfiable: pick(g, corev1.DoNotSchedule, corev1.ScheduleAnyway), LabelSelector: g.selector()}
	if g.often(30) {
		policy := pick(g, corev1.NodeInclusionPolicyHonor, corev1.NodeInclusionPolicyIgnore)
		c.NodeTaintsPolicy = &policy
	}
	if g.often(30) {
		policy := pick(g, corev1.NodeInclusionPolicyHonor, corev1.NodeInclusionPolicyIgnore)
		c.NodeAffinityPolicy = &policy
	}
	if least := int32(1 + g.IntN(3)); c.WhenUnsatisfiable == corev1.DoNotSchedule && g.often(30) {
		c.MinDomains = &least
	}
	return c
}

// template is a pod without a name.
func (g generator) template() *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pick(g, "default", "default", "prod"), Labels: map[string]string{"app": pick(g, "web", "db", "job")}}}
	c := corev1.Container{Name: "c", Image: pick(g, "web:1", "db:1", "none:1"), Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{}}}
	if g.often(70) {
		c.Resources.Requests["cpu"] = resource.MustParse(pick(g, "100m", "300m", "1"))
	}
	if g.often(60) {
		c.Resources.Requests["memory"] = resource.MustParse(pick(g, "64Mi", "512Mi"))
	}
	if g.often(10) {
		c.Resources.Requests["example.com/gpu"] = resource.MustParse("1")
	}
	if g.often(15) {
		c.Ports = []corev1.ContainerPort{{HostPort: pick[int32](g, 80, 443), Protocol: pick(g, corev1.ProtocolTCP, corev1.ProtocolUDP), HostIP: pick(g, "", "10.0.0.1", "10.0.0.2")}}
	}
	p.Spec.Containers = []corev1.Container{c}
	importance := int32(g.IntN(4))
	p.Spec.Priority = &importance
	if g.often(20) {
		p.Spec.InitContainers = []corev1.Container{{Name: "i", Image: "init:1", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("500m"), "memory": resource.MustParse("32Mi")}}}}
	}
	if g.often(30) {
		p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{Key: "team", Operator: corev1.TolerationOpEqual, Value: pick(g, "a", "b"), Effect: pick(g, "", corev1.TaintEffectNoSchedule)})
	}
	if g.often(15) {
		p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{Operator: corev1.TolerationOpExists})
	}
	if g.often(15) {
		p.Spec.NodeSelector = map[string]string{"disk": pick(g, "ssd", "hdd")}
	}
	if g.often(50) {
		p.Spec.Affinity = g.affinity()
	}
	for g.often(30) && len(p.Spec.TopologySpreadConstraints) < 2 {
		p.Spec.TopologySpreadConstraints = append(p.Spec.TopologySpreadConstraints, g.constraint())
	}
	return p
}

// twin is one cluster twice: for the scheduler, and for the model.
type twin struct {
	nodes   *framework.Nodes
	profile *framework.Profile
	model   *model
	placed  map[types.UID]*framework.Pod
	victims []*framework.Pod // of the last preemption
	serial  int
}

func newTwin(t *testing.T, g generator) *twin {
	t.Helper()
	siblings := func(p *corev1.Pod) labels.Selector {
		if p.Labels["app"] == "web" {
			return labels.SelectorFromSet(labels.Set{"app": "web"})
		}
		return nil
	}
	w := &twin{nodes: framework.NewNodes(), placed: map[types.UID]*framework.Pod{}, model: &model{nodes: map[string]*corev1.Node{}, siblings: siblings,
		spaces: map[string]map[string]string{"default": {}, "prod": {"env": "prod"}}}}
	for name, l := range w.model.spaces {
		w.nodes.SetNamespace(name, l)
	}
	handle := testHandle(w.nodes, siblings)
	handle.Preempt = func(_ *framework.Pod, _ string, victims []*framework.Pod) { w.victims = victims }
	profile, err := buildProfile(ProfileConfig{SchedulerName: "test"}, plugins.Registry(), handle, g.Rand)
	if err != nil {
		t.Fatal(err)
	}
	w.profile = profile
	return w
}

func testHandle(n *framework.Nodes, siblings func(*corev1.Pod) labels.Selector) framework.Handle {
	return framework.Handle{Nodes: n, Siblings: siblings, Bind: func(context.Context, *corev1.Pod, string) error { return nil },
		Preempt: func(*framework.Pod, string, []*framework.Pod) {}, Volumes: noVolumes{}}
}

func (w *twin) pod(t *testing.T, template *corev1.Pod) *framework.Pod {
	t.Helper()
	w.serial++
	obj := template.DeepCopy()
	obj.Name, obj.UID = fmt.Sprintf("p%d", w.serial), types.UID(strconv.Itoa(w.serial))
	p, err := framework.NewPod(obj, w.nodes)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// check compares what both say about a pod, and returns the choice.
func (w *twin) check(t *testing.T, p *framework.Pod) string {
	t.Helper()
	want := w.model.feasible(p.Object)
	c := w.profile.Begin(p)
	scores, why, err := w.profile.Scores(c)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{}
	for name := range scores {
		got[name] = true
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("feasible nodes differ for %s (-model +scheduler): %s\nwhy: %v\npod: %+v", p.Object.Name, diff, why, p.Object.Spec)
	}
	if why != nil {
		return ""
	}
	if diff := cmp.Diff(w.model.scores(p.Object, want), scores); diff != "" {
		t.Fatalf("scores differ for %s (-model +scheduler): %s\npod: %+v", p.Object.Name, diff, p.Object.Spec)
	}
	d, _, err := w.profile.Decide(w.profile.Begin(p))
	if err != nil {
		t.Fatal(err)
	}
	for name, s := range scores {
		if len(scores) > 1 && s > scores[d.Node] {
			t.Fatalf("chose %s with %d, though %s has %d", d.Node, scores[d.Node], name, s)
		}
	}
	return d.Node
}

// preempt lets a refused pod look for room, and has the model judge who would have to go. Nobody goes: what follows shows that trying changed nothing.
func (w *twin) preempt(t *testing.T, p *framework.Pod) int {
	t.Helper()
	c := w.profile.Begin(p)
	_, why, err := w.profile.Decide(c)
	if err != nil {
		t.Fatal(err)
	}
	w.victims = nil
	node, _, status := w.profile.PostFilter[0].PostFilter(c, why)
	if status.Is(framework.Failed) {
		t.Fatal(status.Message())
	}
	if len(w.victims) == 0 {
		return 0
	}
	before := w.model.pods
	defer func() { w.model.pods = before }()
	without := func(spared *framework.Pod) {
		w.model.pods = nil
		for _, o := range before {
			gone := false
			for _, v := range w.victims {
				gone = gone || v.Object.UID == o.UID && v != spared
			}
			if !gone {
				w.model.pods = append(w.model.pods, o)
			}
		}
	}
	if without(nil); !w.model.fits(p.Object, w.model.nodes[node]) {
		t.Fatalf("%s does not fit on %s without the %d victims", p.Object.Name, node, len(w.victims))
	}
	for _, v := range w.victims {
		if v.Priority >= p.Priority {
			t.Errorf("a victim of priority %d for a pod of priority %d", v.Priority, p.Priority)
		}
		// Where pods attract or repel each other, a victim may be superfluous once another stays.
		if without(v); p.Object.Spec.Affinity == nil && len(p.Object.Spec.TopologySpreadConstraints) == 0 && w.model.fits(p.Object, w.model.nodes[node]) && !anyTerms(before) {
			t.Errorf("%s would fit on %s though one of the %d victims stayed", p.Object.Name, node, len(w.victims))
		}
	}
	return 1
}

func anyTerms(pods []*corev1.Pod) bool {
	for _, p := range pods {
		if p.Spec.Affinity != nil {
			return true
		}
	}
	return false
}

func (w *twin) put(p *framework.Pod, node string) {
	w.nodes.AddPod(p, node)
	w.placed[p.Object.UID] = p
	bound := p.Object.DeepCopy()
	bound.Spec.NodeName = node
	w.model.pods = append(w.model.pods, bound)
}

func (w *twin) take(k int) {
	uid := w.model.pods[k].UID
	w.nodes.RemovePod(w.placed[uid])
	delete(w.placed, uid)
	w.model.pods = append(w.model.pods[:k:k], w.model.pods[k+1:]...)
}

func (w *twin) setNode(n *corev1.Node) {
	w.nodes.SetNode(n)
	w.model.nodes[n.Name] = n
}

// TestSchedulerAgreesWithTheRules lets a random cluster change step by step and compares every decision with the plain rules. Replay with YARE_SEED.
func TestSchedulerAgreesWithTheRules(t *testing.T) {
	seed := rand.Uint64()
	if s := os.Getenv("YARE_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("replay: YARE_SEED=%d go test ./scheduler -run %s", seed, t.Name())
	g := generator{rand.New(rand.NewPCG(seed, 0))}
	placed, refused, preempted := 0, 0, 0
	for range 25 {
		w := newTwin(t, g)
		for i := range 2 + g.IntN(7) {
			w.setNode(g.node(fmt.Sprintf("n%d", i)))
		}
		var templates []*corev1.Pod
		simple := g.often(30) // a cluster whose pods don't care for each other
		for range 6 {
			p := g.template()
			if simple {
				p.Spec.Affinity, p.Spec.TopologySpreadConstraints = nil, nil
			}
			templates = append(templates, p)
		}
		for range 80 {
			w.step(g)
			p := w.pod(t, pick(g, templates...))
			if node := w.check(t, p); node != "" {
				w.put(p, node)
				placed++
			} else {
				refused++
				preempted += w.preempt(t, p)
			}
		}
	}
	if placed < 100 || refused < 100 || preempted < 10 {
		t.Errorf("%d pods were placed, %d refused and %d made room: the generator does not try all", placed, refused, preempted)
	}
}

// step changes the cluster a little.
func (w *twin) step(g generator) {
	name := fmt.Sprintf("n%d", g.IntN(8))
	switch {
	case g.often(15):
		w.setNode(g.node(name))
	case g.often(5):
		w.nodes.RemoveNode(name)
		delete(w.model.nodes, name)
	case g.often(60) && len(w.model.pods) > 3:
		w.take(g.IntN(len(w.model.pods)))
	case g.often(5):
		env := pick(g, "prod", "test")
		w.model.spaces["default"] = map[string]string{"env": env}
		w.nodes.SetNamespace("default", labels.Set{"env": env})
	}
}
