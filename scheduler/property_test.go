package scheduler

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/scheduler/framework"
	"github.com/yare-project/yare/scheduler/plugins"
)

// twin is one cluster twice: for the scheduler, and for the model.
type twin struct {
	nodes     *framework.Nodes
	profile   *framework.Profile
	model     *model
	placed    map[types.UID]*framework.Pod
	nominated []*framework.Pod
	alike     *corev1.Node     // all nodes are so but for their zones; nil: they are of all sorts
	chosen    string           // by the last preemption
	victims   []*framework.Pod // of it
	serial    int
}

func newTwin(t *testing.T, g generator) *twin {
	t.Helper()
	siblings := func(p *corev1.Pod) labels.Selector {
		if p.Labels["app"] == "web" {
			return labels.SelectorFromSet(labels.Set{"app": "web"})
		}
		return nil
	}
	w := &twin{nodes: framework.NewNodes(), placed: map[types.UID]*framework.Pod{}, model: &model{rules: g.rules(), nodes: map[string]*corev1.Node{}, siblings: siblings,
		spaces: map[string]map[string]string{"default": {}, "prod": {"env": "prod"}}, storage: g.storage()}}
	for name, l := range w.model.spaces {
		w.nodes.SetNamespace(name, l)
	}
	for range g.IntN(5) {
		w.model.budgets = append(w.model.budgets, pick(g, modelBudget{"default", "app", "web", g.IntN(3)}, modelBudget{"default", "app", "db", g.IntN(3)},
			modelBudget{"default", "rev", "1", g.IntN(4)}, modelBudget{"prod", "rev", "2", g.IntN(3)}))
	}
	handle := testHandle(w.nodes, siblings)
	handle.Volumes, handle.Capacity = testStorage{&w.model.storage}, testStorage{&w.model.storage}
	handle.Budgets = w.budgets
	handle.Preempt = func(_ *framework.Pod, node string, victims []*framework.Pod) { w.chosen, w.victims = node, victims }
	profile, err := buildProfile(w.model.config(), plugins.Registry(), handle, g.Rand)
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

func (w *twin) budgets() (out []*policyv1.PodDisruptionBudget) {
	for _, b := range w.model.budgets {
		out = append(out, &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace},
			Spec:   policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{b.label: b.value}}},
			Status: policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: int32(b.allowed)}})
	}
	return out
}

// pod makes the next pod of a template. No two pods start at the same time.
func (w *twin) pod(t *testing.T, g generator, template *corev1.Pod) *framework.Pod {
	t.Helper()
	w.serial++
	obj := template.DeepCopy()
	obj.Name, obj.UID, obj.Status.StartTime = fmt.Sprintf("p%d", w.serial), types.UID(strconv.Itoa(w.serial)), ptr.To(metav1.Unix(int64(w.serial), 0))
	if g.often(6) {
		obj.Status.NominatedNodeName = fmt.Sprintf("n%d", g.IntN(8))
	}
	g.own(&w.model.storage, obj)
	return w.parse(t, obj)
}

func (w *twin) parse(t *testing.T, obj *corev1.Pod) *framework.Pod {
	t.Helper()
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
		t.Fatalf("feasible nodes differ for %s (-model +scheduler): %s\nreasons: %v\nrules: %+v\npod: %+v", p.Object.Name, diff, w.reasons(c, why), w.model.rules, p.Object)
	}
	if why != nil {
		return ""
	}
	if diff := cmp.Diff(w.model.scores(p.Object, want), scores); diff != "" {
		t.Fatalf("scores differ for %s (-model +scheduler): %s\nrules: %+v\npod: %+v", p.Object.Name, diff, w.model.rules, p.Object)
	}
	d, _, err := w.profile.Decide(w.profile.Begin(p))
	if err != nil {
		t.Fatal(err)
	}
	if d == nil || !got[d.Node] || d.Feasible != len(want) {
		t.Fatalf("decided %+v for %s; feasible are %v\npod: %+v", d, p.Object.Name, want, p.Object)
	}
	for name, s := range scores {
		if len(scores) > 1 && s > scores[d.Node] {
			t.Fatalf("chose %s with %d, though %s has %d", d.Node, scores[d.Node], name, s)
		}
	}
	return d.Node
}

// reasons are what the scheduler says about each node that it refuses.
func (w *twin) reasons(c *framework.Cycle, why *framework.Diagnosis) map[string]string {
	out := map[string]string{}
	for i := range w.nodes.Valid.All() {
		if why != nil && why.PreFilter != nil {
			out[w.nodes.Name[i]] = why.PreFilter.Message()
			continue
		}
		for _, o := range w.profile.Obstacles(c, i) {
			out[w.nodes.Name[i]] += fmt.Sprintf("%s: %s. ", o.Plugin.Name(), o.Status.Message())
		}
	}
	return out
}

// preempt lets a refused pod look for room, and has the model say who would have to go. Nobody goes: what follows shows that trying changed nothing.
func (w *twin) preempt(t *testing.T, p *framework.Pod) (made bool) {
	t.Helper()
	c := w.profile.Begin(p)
	_, why, err := w.profile.Decide(c)
	if err != nil {
		t.Fatal(err)
	}
	w.chosen, w.victims = "", nil
	last := w.profile.PostFilter[len(w.profile.PostFilter)-1] // preemption is the last resort
	if last.Name() != plugins.DefaultPreemption {
		t.Fatalf("the last resort is %s", last.Name())
	}
	node, _, status := last.PostFilter(c, why)
	if status.Is(framework.Failed) || node != w.chosen {
		t.Fatalf("chose %q, nominates for %q: %s", w.chosen, node, status.Message())
	}
	losses := w.model.losses(p.Object)
	var best []string
	for name, l := range losses {
		if !slices.ContainsFunc(best, func(o string) bool { return compareLoss(losses[o], l) < 0 }) {
			best = slices.DeleteFunc(best, func(o string) bool { return compareLoss(l, losses[o]) < 0 })
			best = append(best, name)
		}
	}
	if (node == "") != (len(best) == 0) || node != "" && !slices.Contains(best, node) {
		t.Fatalf("%s is to preempt on %q, the model says on one of %v\nwhy: %v (%s)\nlosses: %v\nrules: %+v\npod: %+v", p.Object.Name, node, best, why, status.Message(),
			describe(losses), w.model.rules, p.Object)
	}
	var victims, want []string
	for _, v := range w.victims {
		victims = append(victims, v.Object.Name)
	}
	for _, v := range losses[node].victims {
		want = append(want, v.Name)
	}
	if diff := cmp.Diff(want, victims); diff != "" {
		t.Fatalf("victims of %s on %s differ (-model +scheduler): %s\nrules: %+v\npod: %+v", p.Object.Name, node, diff, w.model.rules, p.Object)
	}
	return node != ""
}

func describe(losses map[string]loss) map[string]string {
	out := map[string]string{}
	for node, l := range losses {
		for _, v := range l.victims {
			out[node] += fmt.Sprintf("%s(%d) ", v.Name, *v.Spec.Priority)
		}
		out[node] += fmt.Sprintf("breaking %d", l.broken)
	}
	return out
}

// put places a pod. Some of the placed are on their way out.
func (w *twin) put(t *testing.T, g generator, p *framework.Pod, node string) {
	t.Helper()
	bound := p.Object.DeepCopy()
	bound.Spec.NodeName = node
	if g.often(8) {
		bound.DeletionTimestamp = ptr.To(metav1.Unix(1, 0))
		if g.often(50) {
			bound.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: corev1.PodReasonPreemptionByScheduler}}
		}
		p = w.parse(t, bound)
	}
	w.nodes.AddPod(p, node)
	w.placed[bound.UID] = p
	w.model.pods = append(w.model.pods, bound)
}

func (w *twin) take(k int) {
	uid := w.model.pods[k].UID
	w.nodes.RemovePod(w.placed[uid])
	delete(w.placed, uid)
	w.model.pods = slices.Delete(slices.Clone(w.model.pods), k, k+1)
}

// change has a placed pod change as the API lets it, or only tell its state.
func (w *twin) change(t *testing.T, g generator, k int) {
	t.Helper()
	obj := w.model.pods[k].DeepCopy()
	before := w.placed[obj.UID]
	same := false
	switch g.IntN(4) {
	case 0:
		obj.Labels["app"] = pick(g, "web", "db", "job")
	case 1:
		obj.DeletionTimestamp = ptr.To(metav1.Unix(1, 0))
	case 2: // as by an in-place resize
		obj.Spec.Containers[0].Resources.Requests = g.requests()
	default:
		obj.Status.Message, same = "ready", true
	}
	node := w.nodes.Name[before.Node()]
	if same {
		w.placed[obj.UID] = w.nodes.Replace(before, obj)
	} else {
		p := w.parse(t, obj)
		w.nodes.RemovePod(before)
		w.nodes.AddPod(p, node)
		w.placed[obj.UID] = p
	}
	w.model.pods = slices.Clone(w.model.pods)
	w.model.pods[k] = obj
}

// nominate has a refused pod wait for room on a node, as after a preemption.
func (w *twin) nominate(p *framework.Pod, node string) {
	p.Object.Status.NominatedNodeName = node
	w.nodes.Nominate(p, node)
	w.nominated = append(w.nominated, p)
	w.model.nominated = append(w.model.nominated, p.Object)
}

// denominate ends the nomination of one of them, and returns it.
func (w *twin) denominate(k int) *framework.Pod {
	p := w.nominated[k]
	w.nodes.Unnominate(p, p.Object.Status.NominatedNodeName)
	w.nominated, w.model.nominated = slices.Delete(w.nominated, k, k+1), slices.Delete(w.model.nominated, k, k+1)
	return p
}

// node makes a node of this cluster.
func (w *twin) node(g generator, name string) *corev1.Node {
	if w.alike == nil {
		return g.node(name)
	}
	n := w.alike.DeepCopy()
	n.Name, n.UID, n.Labels[corev1.LabelHostname] = name, types.UID(name+strconv.Itoa(g.IntN(1e9))), name
	n.Labels[corev1.LabelTopologyZone] = pick(g, "z1", "z2", "z3")
	return n
}

func (w *twin) setNode(n *corev1.Node) {
	w.nodes.SetNode(n)
	w.model.nodes[n.Name] = n
}

// step changes the cluster a little.
func (w *twin) step(t *testing.T, g generator) {
	t.Helper()
	if len(w.model.pods) > 0 && g.often(15) {
		w.change(t, g, g.IntN(len(w.model.pods)))
	}
	name := fmt.Sprintf("n%d", g.IntN(8))
	switch {
	case g.often(15):
		w.setNode(w.node(g, name))
	case g.often(5):
		w.nodes.RemoveNode(name)
		delete(w.model.nodes, name)
	case g.often(60) && len(w.model.pods) > 3:
		w.take(g.IntN(len(w.model.pods)))
	case g.often(5):
		env := pick(g, "prod", "test")
		w.model.spaces["default"] = map[string]string{"env": env}
		w.nodes.SetNamespace("default", labels.Set{"env": env})
	case g.often(10):
		g.claim(&w.model.storage, "default", fmt.Sprintf("c%d", g.IntN(8)))
	case g.often(20) && len(w.nominated) > 0:
		w.denominate(g.IntN(len(w.nominated)))
	}
}

// run lets a random cluster change step by step and compares every decision with the plain rules.
type run struct{ placed, refused, preempted, waited int }

func (r *run) cluster(t *testing.T, g generator) {
	w := newTwin(t, g)
	nodes := 2 + g.IntN(7)
	if g.often(40) { // many that only what is on them tells apart
		nodes, w.alike = 8+g.IntN(12), g.node("alike")
	}
	for i := range nodes {
		w.setNode(w.node(g, fmt.Sprintf("n%d", i)))
	}
	var templates []*corev1.Pod
	simple := g.often(30) // a cluster whose pods don't care for each other
	for range 4 {
		p := g.template()
		if simple {
			plainly(p)
		}
		templates = append(templates, p, g.variant(p))
	}
	for range 80 {
		w.step(t, g)
		p := w.pod(t, g, pick(g, templates...))
		if len(w.nominated) > 0 && g.often(15) { // a pod that room was made for has its turn
			p = w.denominate(g.IntN(len(w.nominated)))
			r.waited++
		}
		if node := w.check(t, p); node != "" {
			w.put(t, g, p, node)
			r.placed++
			continue
		}
		r.refused++
		if w.preempt(t, p) {
			r.preempted++
			if g.often(40) && len(w.nominated) < 4 {
				w.nominate(p, w.chosen)
			}
		}
	}
}

// seedFromEnvironment is the seed that is to be replayed; 0 if none is.
func seedFromEnvironment(t *testing.T) uint64 {
	t.Helper()
	s := os.Getenv("YARE_SEED")
	if s == "" {
		return 0
	}
	seed, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return seed
}

// TestSchedulerAgreesAfterForgetting has more sorts of pods, and more changes between two decisions, than the scheduler remembers.
func TestSchedulerAgreesAfterForgetting(t *testing.T) {
	seed := seedFromEnvironment(t)
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("replay: YARE_SEED=%d go test ./scheduler -run %s", seed, t.Name())
	g := generator{rand.New(rand.NewPCG(seed, 0))}
	w := newTwin(t, g)
	for i := range 8 {
		w.setNode(g.node(fmt.Sprintf("n%d", i)))
	}
	var templates []*corev1.Pod
	for range 1200 {
		templates = append(templates, g.template())
	}
	for k := range 2000 {
		if k%300 == 299 {
			for range 9000 {
				w.setNode(g.node(fmt.Sprintf("n%d", g.IntN(8))))
			}
			for range 3000 {
				p := w.pod(t, g, pick(g, templates[:3]...))
				w.nodes.AddPod(p, "n0")
				w.nodes.RemovePod(p)
			}
			for _, known := range templates[k%len(templates)-20 : k%len(templates)] {
				w.check(t, w.pod(t, g, known))
			}
		}
		w.step(t, g)
		p := w.pod(t, g, templates[k%len(templates)])
		if node := w.check(t, p); node != "" {
			w.put(t, g, p, node)
		}
	}
}

// TestSchedulerAgreesWithTheRules compares the scheduler with the model on random clusters: feasible nodes, scores, choice, and whom preemption makes leave. YARE_SOAK makes it
// go on for long, YARE_SEED replays one seed.
func TestSchedulerAgreesWithTheRules(t *testing.T) {
	seeds := []uint64{1, 2, 3, 4}
	for range 8 {
		seeds = append(seeds, rand.Uint64())
	}
	if os.Getenv("YARE_SOAK") != "" {
		for range 2000 {
			seeds = append(seeds, rand.Uint64())
		}
	}
	if seed := seedFromEnvironment(t); seed != 0 {
		seeds = []uint64{seed}
	}
	var total run
	for _, seed := range seeds {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			defer func() {
				if t.Failed() {
					t.Logf("replay: YARE_SEED=%d go test ./scheduler -run TestSchedulerAgreesWithTheRules", seed)
				}
			}()
			g := generator{rand.New(rand.NewPCG(seed, 0))}
			for range 8 {
				total.cluster(t, g)
			}
		})
	}
	if !t.Failed() && (total.placed < 100 || total.refused < 100 || total.preempted < 20 || total.waited < 5) {
		t.Errorf("%+v: the generator does not try all", total)
	}
}
