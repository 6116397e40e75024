package plugins

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/scheduler/framework"
)

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
		better, than := weighed(&c.better), weighed(&c.than)
		if compare(better, than) >= 0 || compare(than, better) <= 0 {
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

// preempting decides about a pod and, where it fits nowhere, lets preemption look for room.
func (f *fixture) preempting(args string, p *framework.Pod) (nominate string, keep bool, message string) {
	f.t.Helper()
	f.onNode, f.victims = "", nil
	profile := f.profile(f.make(NodeUnschedulable, ""), f.make(NodePorts, ""), f.make(NodeResourcesFit, ""), f.make(VolumeRestrictions, ""), f.make(PodTopologySpread, ""), f.make(InterPodAffinity, ""),
		f.make(DefaultPreemption, args))
	c := profile.Begin(p)
	d, why, err := profile.Decide(c)
	if err != nil || d != nil {
		f.t.Fatalf("decided %+v (%v); want a pod that fits nowhere", d, err)
	}
	node, keep, s := profile.PostFilter[0].PostFilter(c, why)
	return node, keep, s.Message()
}

// TestPreemption follows "Pod Priority and Preemption".
func TestPreemption(t *testing.T) {
	cpu := func(n string) func(*corev1.Pod) { return asks(res("cpu", n)) }
	started := func(second int64) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Status.StartTime = ptr.To(metav1.Unix(second, 0)) }
	}
	type there struct {
		node, name string
		change     []func(*corev1.Pod)
	}
	for _, c := range []struct {
		name    string
		there   []there
		budgets map[string]int32 // by app
		pod     []func(*corev1.Pod)
		node    string
		victims []string
	}{
		{"lower priority goes", []there{{"a", "low", []func(*corev1.Pod){cpu("4"), prio(1)}}, {"b", "same", []func(*corev1.Pod){cpu("4"), prio(5)}}}, nil, []func(*corev1.Pod){cpu("4"), prio(5)}, "a", []string{"low"}},
		{"equal priority stays", []there{{"a", "x", []func(*corev1.Pod){cpu("4"), prio(5)}}, {"b", "y", []func(*corev1.Pod){cpu("4"), prio(5)}}}, nil, []func(*corev1.Pod){cpu("4"), prio(5)}, "", nil},
		{"as few as possible", []there{{"a", "one", []func(*corev1.Pod){cpu("2"), prio(1)}}, {"a", "two", []func(*corev1.Pod){cpu("2"), prio(2)}}, {"b", "same", []func(*corev1.Pod){cpu("4"), prio(9)}}}, nil,
			[]func(*corev1.Pod){cpu("2"), prio(5)}, "a", []string{"one"}},
		{"the younger of equals", []there{{"a", "old", []func(*corev1.Pod){cpu("2"), prio(1), started(10)}}, {"a", "young", []func(*corev1.Pod){cpu("2"), prio(1), started(20)}}, {"b", "same", []func(*corev1.Pod){cpu("4"), prio(9)}}}, nil,
			[]func(*corev1.Pod){cpu("2"), prio(5)}, "a", []string{"young"}},
		{"one that has not started before all that have", []there{{"a", "old", []func(*corev1.Pod){cpu("2"), prio(1), started(10)}}, {"a", "assumed", []func(*corev1.Pod){cpu("2"), prio(1)}}, {"b", "same", []func(*corev1.Pod){cpu("4"), prio(9)}}}, nil,
			[]func(*corev1.Pod){cpu("2"), prio(5)}, "a", []string{"assumed"}},
		{"the most important victim counts first", []there{{"a", "x", []func(*corev1.Pod){cpu("4"), prio(3)}}, {"b", "y", []func(*corev1.Pod){cpu("2"), prio(2)}}, {"b", "z", []func(*corev1.Pod){cpu("2"), prio(2)}}}, nil,
			[]func(*corev1.Pod){cpu("4"), prio(5)}, "b", []string{"y", "z"}},
		{"then the sum", []there{{"a", "x", []func(*corev1.Pod){cpu("2"), prio(3)}}, {"a", "x2", []func(*corev1.Pod){cpu("2"), prio(2)}}, {"b", "y", []func(*corev1.Pod){cpu("2"), prio(3)}}, {"b", "z", []func(*corev1.Pod){cpu("2"), prio(1)}}}, nil,
			[]func(*corev1.Pod){cpu("4"), prio(5)}, "b", []string{"y", "z"}},
		{"then who started last", []there{{"a", "x", []func(*corev1.Pod){cpu("4"), prio(1), started(10)}}, {"b", "y", []func(*corev1.Pod){cpu("4"), prio(1), started(20)}}}, nil, []func(*corev1.Pod){cpu("4"), prio(5)}, "b", []string{"y"}},
		{"budgets are kept where that is possible", []there{{"a", "db", []func(*corev1.Pod){cpu("4"), prio(1), podLabel("app", "db")}}, {"b", "web", []func(*corev1.Pod){cpu("4"), prio(4), podLabel("app", "web")}}},
			map[string]int32{"db": 0}, []func(*corev1.Pod){cpu("4"), prio(5)}, "b", []string{"web"}},
		{"and broken where not", []there{{"a", "db", []func(*corev1.Pod){cpu("4"), prio(1), podLabel("app", "db")}}, {"b", "same", []func(*corev1.Pod){cpu("4"), prio(5)}}},
			map[string]int32{"db": 0}, []func(*corev1.Pod){cpu("4"), prio(5)}, "a", []string{"db"}},
		{"on one node the protected stay", []there{{"a", "db", []func(*corev1.Pod){cpu("2"), prio(1), podLabel("app", "db")}}, {"a", "web", []func(*corev1.Pod){cpu("2"), prio(4)}}, {"b", "same", []func(*corev1.Pod){cpu("4"), prio(5)}}},
			map[string]int32{"db": 0}, []func(*corev1.Pod){cpu("2"), prio(5)}, "a", []string{"web"}},
		{"host ports", []there{{"a", "x", []func(*corev1.Pod){prio(1), hostPort(80)}}, {"b", "y", []func(*corev1.Pod){prio(9), hostPort(80)}}}, nil, []func(*corev1.Pod){prio(5), hostPort(80)}, "a", []string{"x"}},
		{"anti-affinity", []there{{"a", "x", []func(*corev1.Pod){prio(1), podLabel("app", "web")}}, {"b", "y", []func(*corev1.Pod){prio(9), podLabel("app", "web")}}}, nil,
			[]func(*corev1.Pod){prio(5), apart(term(host, app("web")))}, "a", []string{"x"}},
		{"anti-affinity of those that are there", []there{{"a", "x", []func(*corev1.Pod){prio(1), apart(term(host, app("web")))}}, {"b", "y", []func(*corev1.Pod){prio(9), apart(term(host, app("web")))}}}, nil,
			[]func(*corev1.Pod){prio(5), podLabel("app", "web")}, "a", []string{"x"}},
		{"a claim for one pod", []there{{"a", "x", []func(*corev1.Pod){prio(1), mounts("once")}}}, nil, []func(*corev1.Pod){prio(5), mounts("once")}, "a", []string{"x"}},
		{"never", []there{{"a", "low", []func(*corev1.Pod){cpu("4"), prio(1)}}, {"b", "low2", []func(*corev1.Pod){cpu("4"), prio(1)}}}, nil,
			[]func(*corev1.Pod){cpu("4"), prio(5), func(p *corev1.Pod) { p.Spec.PreemptionPolicy = ptr.To(corev1.PreemptNever) }}, "", nil},
		{"nobody's leaving would help", []there{{"a", "low", []func(*corev1.Pod){cpu("4"), prio(1)}}}, nil, []func(*corev1.Pod){cpu("5"), prio(5)}, "", nil},
	} {
		f := newFixture(t, testNode("a", label(host, "a")), testNode("b", label(host, "b")))
		f.claim("once", "now", "1Gi", boundTo("v"), func(c *corev1.PersistentVolumeClaim) {
			c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}
		})
		for _, x := range c.there {
			f.on(x.node, f.pod(x.name, x.change...))
		}
		for name, left := range c.budgets {
			f.budgets = append(f.budgets, &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "default"}, Spec: policyv1.PodDisruptionBudgetSpec{Selector: app(name)},
				Status: policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: left}})
		}
		node, _, message := f.preempting("", f.pod("p", c.pod...))
		if slices.Sort(f.victims); node != c.node || f.onNode != c.node || !slices.Equal(f.victims, c.victims) {
			t.Errorf("%s: %v go from %q (nominated %q, %s); want %v from %q", c.name, f.victims, f.onNode, node, message, c.victims, c.node)
		}
	}
}

func hostPort(n int32) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.Containers[0].Ports = []corev1.ContainerPort{{HostPort: n}} }
}

func TestPreemptionSaysWhyNot(t *testing.T) {
	cpu := func(n string) func(*corev1.Pod) { return asks(res("cpu", n)) }
	leaving := func(p *corev1.Pod) {
		p.DeletionTimestamp = ptr.To(metav1.Unix(1, 0))
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: corev1.PodReasonPreemptionByScheduler}}
	}
	nominatedFor := func(node string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Status.NominatedNodeName = node }
	}
	for _, c := range []struct {
		name  string
		there func(*corev1.Pod)
		pod   []func(*corev1.Pod)
		keep  bool
		want  string
	}{
		{"never", cpu("4"), []func(*corev1.Pod){cpu("4"), func(p *corev1.Pod) { p.Spec.PreemptionPolicy = ptr.To(corev1.PreemptNever) }}, true, "preemption: not eligible due to preemptionPolicy=Never."},
		{"it waits already", leaving, []func(*corev1.Pod){cpu("4"), nominatedFor("a"), func(p *corev1.Pod) {}}, true, "preemption: not eligible due to a terminating pod on the nominated node."},
		{"nobody of lower priority", prio(9), []func(*corev1.Pod){cpu("4")}, false, "preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."},
		{"nothing helps", cpu("4"), []func(*corev1.Pod){cpu("64")}, false, "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."},
		{"the rest is too large", cpu("1"), []func(*corev1.Pod){cpu("4"), hostPort(80)}, false, "preemption: 0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports."},
	} {
		f := newFixture(t, testNode("a"))
		f.on("a", f.pod("there", cpu("2"), c.there))
		f.on("a", f.pod("important", cpu("0"), prio(9), hostPort(80)))
		_, keep, message := f.preempting("", f.pod("p", append([]func(*corev1.Pod){prio(5)}, c.pod...)...))
		if keep != c.keep || message != c.want {
			t.Errorf("%s: told %q (nomination kept: %v); want %q (%v)", c.name, message, keep, c.want, c.keep)
		}
	}
}

// TestCandidates: at least minCandidateNodesAbsolute and minCandidateNodesPercentage of the nodes are looked at, and more while budgets would be broken.
func TestCandidates(t *testing.T) {
	for _, c := range []struct {
		args      string
		protected bool
		looked    int
	}{
		{"", false, 40}, {`{"minCandidateNodesAbsolute": 5}`, false, 5}, {`{"minCandidateNodesAbsolute": 1, "minCandidateNodesPercentage": 50}`, false, 20},
		{`{"minCandidateNodesAbsolute": 5}`, true, 40},
	} {
		f := newFixture(t)
		for i := range 40 {
			name := fmt.Sprintf("n%d", i)
			f.nodes.SetNode(testNode(name))
			f.on(name, f.pod("on-"+name, asks(res("cpu", "4")), podLabel("app", "db"), prio(int32(i))))
		}
		if c.protected {
			f.budgets = []*policyv1.PodDisruptionBudget{{ObjectMeta: metav1.ObjectMeta{Namespace: "default"}, Spec: policyv1.PodDisruptionBudgetSpec{Selector: app("db")}}}
		}
		p := f.make(DefaultPreemption, c.args).(*preemption)
		profile := f.profile(f.make(NodeResourcesFit, ""), p)
		cycle := profile.Begin(f.pod("p", asks(res("cpu", "4")), prio(100)))
		_, why, err := profile.Decide(cycle)
		if err != nil {
			t.Fatal(err)
		}
		if found, _ := p.candidates(cycle, why); len(found) != c.looked {
			t.Errorf("%s: %d candidates, want %d", c.args, len(found), c.looked)
		}
	}
}

// TestPreFilterThatPreemptionMayHelp: a plugin that refuses a pod as a whole with Unschedulable leaves all nodes to preemption.
func TestPreFilterThatPreemptionMayHelp(t *testing.T) {
	for _, code := range []framework.Code{framework.Unschedulable, framework.Unresolvable} {
		f := newFixture(t, testNode("a"))
		f.on("a", f.pod("low", prio(1), asks(res("cpu", "4"))))
		profile := f.profile(refusing(code), f.make(NodeResourcesFit, ""), f.make(DefaultPreemption, ""))
		c := profile.Begin(f.pod("p", prio(5), asks(res("cpu", "4"))))
		_, why, err := profile.Decide(c)
		if err != nil || why.Message() != "0/1 nodes are available: not as a whole." {
			t.Fatalf("told %q (%v)", why.Message(), err)
		}
		node, _, _ := profile.PostFilter[0].PostFilter(c, why)
		if want := map[framework.Code]string{framework.Unschedulable: "a"}[code]; node != want {
			t.Errorf("code %d: preempts on %q, want %q", code, node, want)
		}
	}
}

type refusing framework.Code

func (refusing) Name() string { return "Refusing" }
func (r refusing) PreFilter(*framework.Cycle) *framework.Status {
	return framework.Refuse(framework.Code(r), "Refusing", "not as a whole")
}

func TestOverlappingBudgets(t *testing.T) {
	f := newFixture(t)
	budget := func(s *metav1.LabelSelector, left int32, gone ...string) *policyv1.PodDisruptionBudget {
		b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "default"}, Spec: policyv1.PodDisruptionBudgetSpec{Selector: s}, Status: policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: left}}
		for _, name := range gone {
			b.Status.DisruptedPods = map[string]metav1.Time{name: {}}
		}
		return b
	}
	db, both := podLabel("app", "db"), podLabel("app", "db", "tier", "1")
	tier := &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "1"}}
	for _, c := range []struct {
		name    string
		pods    []*framework.Pod
		budgets []*policyv1.PodDisruptionBudget
		want    []string
	}{
		{"a pod that breaks one does not use up the next", []*framework.Pod{f.pod("x", both), f.pod("y", podLabel("tier", "1"))}, []*policyv1.PodDisruptionBudget{budget(app("db"), 0), budget(tier, 1)}, []string{"x"}},
		{"a pod that is gone already does not count", []*framework.Pod{f.pod("x", db), f.pod("y", db)}, []*policyv1.PodDisruptionBudget{budget(app("db"), 1, "x")}, nil},
		{"an empty selector selects nothing", []*framework.Pod{f.pod("x", db)}, []*policyv1.PodDisruptionBudget{budget(&metav1.LabelSelector{}, 0), budget(nil, 0)}, nil},
		{"another namespace", []*framework.Pod{f.pod("x", db, inNamespace("prod"))}, []*policyv1.PodDisruptionBudget{budget(app("db"), 0)}, nil},
	} {
		protected, _ := splitByBudget(c.pods, c.budgets)
		var got []string
		for _, p := range protected {
			got = append(got, p.Object.Name)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v are protected, want %v", c.name, got, c.want)
		}
	}
}
