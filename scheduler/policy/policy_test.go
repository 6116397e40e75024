package policy

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/api/scheduling/v1alpha1"
	"github.com/yare-project/yare/scheduler/framework"
)

// fixture is a profile with nothing but this plugin.
type fixture struct {
	t       *testing.T
	nodes   *framework.Nodes
	book    *Book
	plugin  *plugin
	profile *framework.Profile
}

func setUp(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{t: t, nodes: framework.NewNodes()}
	f.book = NewBook(f.nodes)
	p, err := f.book.Factory(nil, &framework.Handle{Scheduler: "default-scheduler", Nodes: f.nodes})
	if err != nil {
		t.Fatal(err)
	}
	f.plugin = p.(*plugin)
	set := framework.Set{Filter: []framework.FilterPlugin{f.plugin}, Score: []framework.WeightedScore{{ScorePlugin: f.plugin, Weight: 1}}}
	if f.profile, err = framework.NewProfile("default-scheduler", set, f.nodes, rand.New(rand.NewPCG(1, 1))); err != nil {
		t.Fatal(err)
	}
	f.nodes.SetNamespace("default", labels.Set{"team": "a"})
	return f
}

func (f *fixture) node(name string, metrics map[string]string, change ...func(*corev1.Node)) {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"kubernetes.io/hostname": name}, Annotations: map[string]string{}}}
	n.Status.Allocatable = corev1.ResourceList{"cpu": resource.MustParse("4"), "memory": resource.MustParse("8Gi"), "pods": resource.MustParse("110")}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	for k, v := range metrics {
		n.Annotations[v1alpha1.MetricPrefix+k] = v
	}
	for _, c := range change {
		c(n)
	}
	f.nodes.SetNode(n)
}

func (f *fixture) policy(name string, change func(*v1alpha1.SchedulingPolicySpec)) {
	f.t.Helper()
	p := &v1alpha1.SchedulingPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	change(&p.Spec)
	if _, err := f.book.Set(p); err != nil {
		f.t.Fatal(err)
	}
}

func filtering(expression, message string, failure v1alpha1.FailurePolicy) func(*v1alpha1.SchedulingPolicySpec) {
	return func(s *v1alpha1.SchedulingPolicySpec) {
		s.Filters = append(s.Filters, v1alpha1.PolicyFilter{Expression: expression, Message: message, FailurePolicy: failure})
	}
}

func scoring(expression string, weight int32, worst, best string, failure v1alpha1.FailurePolicy) func(*v1alpha1.SchedulingPolicySpec) {
	return func(s *v1alpha1.SchedulingPolicySpec) {
		s.Scores = append(s.Scores, v1alpha1.PolicyScore{Expression: expression, Weight: weight, Worst: ptr.To(resource.MustParse(worst)), Best: ptr.To(resource.MustParse(best)), FailurePolicy: failure})
	}
}

func (f *fixture) pod(name string, change ...func(*corev1.Pod)) *framework.Pod {
	f.t.Helper()
	o := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"app": "web"}}}
	o.Spec.Containers = []corev1.Container{{Name: "c", Image: "web", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("500m")}}}}
	for _, c := range change {
		c(o)
	}
	p, err := framework.NewPod(o, f.nodes)
	if err != nil {
		f.t.Fatal(err)
	}
	return p
}

// scores are those of the nodes that fit; a pod that fits nowhere gives its message.
func (f *fixture) scores(p *framework.Pod) (map[string]int64, string) {
	f.t.Helper()
	scores, why, err := f.profile.Scores(f.profile.Begin(p))
	if err != nil {
		f.t.Fatal(err)
	}
	if why != nil {
		return nil, why.Message()
	}
	return scores, ""
}

func TestFiltersAndScores(t *testing.T) {
	prices := func(f *fixture) {
		f.node("cheap", map[string]string{"price": "0.1", "gpu": "90"})
		f.node("dear", map[string]string{"price": "0.9", "gpu": "10"})
		f.node("silent", nil)
	}
	for _, test := range []struct {
		name     string
		policies []func(*v1alpha1.SchedulingPolicySpec)
		pod      func(*corev1.Pod)
		want     map[string]int64
		message  string
	}{
		{name: "no policy", want: map[string]int64{"cheap": 0, "dear": 0, "silent": 0}},
		{name: "a filter; who lacks the metric is refused", policies: []func(*v1alpha1.SchedulingPolicySpec){filtering("metrics.price < 0.5", "too dear", v1alpha1.FailRefuse)}, want: map[string]int64{"cheap": 0}},
		{name: "a filter that skips", policies: []func(*v1alpha1.SchedulingPolicySpec){filtering("metrics.price < 0.5", "too dear", v1alpha1.FailSkip)}, want: map[string]int64{"cheap": 0, "silent": 0}},
		{name: "a score, small is good", policies: []func(*v1alpha1.SchedulingPolicySpec){scoring("metrics.price", 3, "1", "0", v1alpha1.FailSkip)}, want: map[string]int64{"cheap": 270, "dear": 30, "silent": 0}},
		{name: "a score that must not fail", policies: []func(*v1alpha1.SchedulingPolicySpec){scoring("metrics.gpu", 1, "0", "100", v1alpha1.FailRefuse)}, want: map[string]int64{"cheap": 90, "dear": 10}},
		{name: "scores are cut", policies: []func(*v1alpha1.SchedulingPolicySpec){scoring("metrics.gpu", 1, "20", "50", v1alpha1.FailRefuse)}, want: map[string]int64{"cheap": 100, "dear": 0}},
		{name: "scores are rounded", policies: []func(*v1alpha1.SchedulingPolicySpec){scoring("metrics.price / 7.0 * 100.0", 1, "0", "100", v1alpha1.FailRefuse)}, want: map[string]int64{"cheap": 1, "dear": 13}},
		{name: "policies add up", policies: []func(*v1alpha1.SchedulingPolicySpec){
			scoring("metrics.price", 1, "1", "0", v1alpha1.FailSkip), scoring("metrics.gpu", 2, "0", "100", v1alpha1.FailSkip), filtering(`node.name != "silent"`, "", "")},
			want: map[string]int64{"cheap": 90 + 180, "dear": 10 + 20}},
		{name: "the message", policies: []func(*v1alpha1.SchedulingPolicySpec){filtering("metrics.price < 0.01", "costs too much", v1alpha1.FailRefuse)},
			message: `0/3 nodes are available: 1 node(s) refused by SchedulingPolicy "p0": no such key: price, 2 node(s) refused by SchedulingPolicy "p0": costs too much.`},
		{name: "no message", policies: []func(*v1alpha1.SchedulingPolicySpec){filtering("node.unschedulable", "", v1alpha1.FailRefuse)},
			message: `0/3 nodes are available: 3 node(s) refused by SchedulingPolicy "p0": node.unschedulable is false.`},
		{name: "other pods", policies: []func(*v1alpha1.SchedulingPolicySpec){func(s *v1alpha1.SchedulingPolicySpec) {
			filtering("false", "", "")(s)
			s.PodSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}
		}}, want: map[string]int64{"cheap": 0, "dear": 0, "silent": 0}},
		{name: "other namespaces", policies: []func(*v1alpha1.SchedulingPolicySpec){func(s *v1alpha1.SchedulingPolicySpec) {
			filtering("false", "", "")(s)
			s.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "b"}}
		}}, want: map[string]int64{"cheap": 0, "dear": 0, "silent": 0}},
		{name: "other profiles", policies: []func(*v1alpha1.SchedulingPolicySpec){func(s *v1alpha1.SchedulingPolicySpec) {
			filtering("false", "", "")(s)
			s.SchedulerNames = []string{"batch"}
		}}, want: map[string]int64{"cheap": 0, "dear": 0, "silent": 0}},
		{name: "what is selected", policies: []func(*v1alpha1.SchedulingPolicySpec){func(s *v1alpha1.SchedulingPolicySpec) {
			filtering(`node.name == "dear"`, "", "")(s)
			s.NamespaceSelector, s.SchedulerNames = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}}, []string{"batch", "default-scheduler"}
			s.PodSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
		}}, want: map[string]int64{"dear": 0}},
		{name: "the pod's word", policies: []func(*v1alpha1.SchedulingPolicySpec){filtering(`metrics.price <= double(pod.annotations["max-price"])`, "", "")},
			pod: func(p *corev1.Pod) { p.Annotations = map[string]string{"max-price": "0.2"} }, want: map[string]int64{"cheap": 0}},
		{name: "variables", policies: []func(*v1alpha1.SchedulingPolicySpec){func(s *v1alpha1.SchedulingPolicySpec) {
			s.Variables = []v1alpha1.PolicyVariable{{Name: "value", Expression: `metrics.gpu / metrics.price`}}
			scoring("variables.value", 1, "0", "1000", v1alpha1.FailSkip)(s)
			filtering("variables.value > 500.0", "", v1alpha1.FailSkip)(s)
		}}, want: map[string]int64{"cheap": 90, "silent": 0}},
		{name: "conditions and amounts", policies: []func(*v1alpha1.SchedulingPolicySpec){filtering(`node.conditions.Ready == "True" && node.allocatable.cpu == 4.0 && node.allocatable.memory == 8589934592.0 && pod.requests.cpu == 0.5 && node.requested.cpu == 0.0`, "", "")},
			want: map[string]int64{"cheap": 0, "dear": 0, "silent": 0}},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := setUp(t)
			prices(f)
			for i, change := range test.policies {
				f.policy(fmt.Sprintf("p%d", i), change)
			}
			if test.pod == nil {
				test.pod = func(*corev1.Pod) {}
			}
			got, message := f.scores(f.pod("web", test.pod))
			if d := cmp.Diff(test.want, got); d != "" || message != test.message {
				t.Errorf("(-want +got):\n%s\nmessage %q, want %q", d, message, test.message)
			}
		})
	}
}

// An expression is asked again only about what changed.
func TestVerdictsAreKept(t *testing.T) {
	f := setUp(t)
	for i := range 10 {
		f.node(fmt.Sprintf("n%d", i), map[string]string{"price": "0.5"})
	}
	f.policy("p", filtering("metrics.price < 1", "", v1alpha1.FailRefuse))
	asked := func(what string, want uint64, do func()) {
		t.Helper()
		before := f.book.evaluations
		do()
		f.scores(f.pod("next"))
		if got := f.book.evaluations - before; got != want {
			t.Errorf("%s: %d evaluations, want %d", what, got, want)
		}
	}
	asked("the first pod", 10, func() {})
	asked("a pod of the same template", 0, func() {})
	asked("a pod on a node", 0, func() { f.nodes.AddPod(f.pod("there"), "n1") })
	asked("a node's metric", 1, func() { f.node("n1", map[string]string{"price": "0.7"}) })
	asked("a node's condition", 1, func() {
		f.node("n2", map[string]string{"price": "0.5"}, func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionFalse })
	})
	asked("numbers from outside", 2, func() {
		f.book.SetNumbers("s", map[string]map[string]float64{"n3": {"cpu": 1}, "n4": {"cpu": 1}}, func(int) {})
	})
	asked("the same numbers and one more", 1, func() {
		f.book.SetNumbers("s", map[string]map[string]float64{"n3": {"cpu": 1}, "n4": {"cpu": 1}, "n5": {"cpu": 2}}, func(int) {})
	})
	asked("the policy again", 0, func() { f.policy("p", filtering("metrics.price < 1", "", v1alpha1.FailRefuse)) })
	asked("the policy", 10, func() { f.policy("p", filtering("metrics.price < 2", "", v1alpha1.FailRefuse)) })
	f.policy("p", filtering("node.requested.cpu < 1", "", v1alpha1.FailRefuse))
	asked("what pods request: all", 10, func() {})
	asked("what pods request: a pod comes", 1, func() { f.nodes.AddPod(f.pod("more"), "n1") })
}

func TestRequestedFollowsThePods(t *testing.T) {
	f := setUp(t)
	f.node("a", nil)
	f.policy("p", filtering("node.requested.cpu + pod.requests.cpu <= 1", "full", v1alpha1.FailRefuse))
	first, second := f.pod("first"), f.pod("second")
	for _, p := range []*framework.Pod{first, second} {
		if _, m := f.scores(p); m != "" {
			t.Fatal(m)
		}
		f.nodes.AddPod(p, "a")
	}
	third := f.pod("third")
	if _, m := f.scores(third); !strings.Contains(m, "full") {
		t.Fatalf("message %q", m)
	}
	slot, _ := f.nodes.Slot("a")
	event := &framework.Event{Kind: framework.PodRemoved, Pod: second, Slot: slot}
	if f.plugin.Helps(third, event) {
		t.Error("a pod that is still there is said to help by leaving")
	}
	f.nodes.RemovePod(second)
	if !f.plugin.Helps(third, event) {
		t.Error("a pod's leaving is said not to help")
	}
	if _, m := f.scores(third); m != "" {
		t.Error(m)
	}
}

func TestHints(t *testing.T) {
	f := setUp(t)
	f.node("a", map[string]string{"price": "3"})
	f.policy("p", filtering("metrics.price < 1", "", v1alpha1.FailRefuse))
	p := f.pod("web")
	event := func(kind framework.EventKind) *framework.Event {
		slot, _ := f.nodes.Slot("a")
		return &framework.Event{Kind: kind, Node: f.nodes.Object[slot], Slot: slot}
	}
	if f.plugin.Helps(p, event(framework.NodeOther)) {
		t.Error("a node that is still too dear is said to help")
	}
	f.node("a", map[string]string{"price": "0.5"})
	if !f.plugin.Helps(p, event(framework.NodeOther)) {
		t.Error("a cheaper node is said not to help")
	}
	if f.plugin.Helps(p, &framework.Event{Kind: framework.PodRemoved, Slot: 0}) {
		t.Error("a pod's leaving is said to help where nothing depends on it")
	}
	if !f.plugin.Helps(p, &framework.Event{Kind: framework.PolicyChanged, Slot: -1}) {
		t.Error("another policy is said not to help")
	}
}

// Pods of one template share verdicts, so that expressions must not see what tells them apart.
func TestNumberedPodsLookTheSame(t *testing.T) {
	f := setUp(t)
	f.node("a", nil)
	f.policy("p", filtering(`!("apps.kubernetes.io/pod-index" in pod.labels) && pod.labels.app == "web"`, "", v1alpha1.FailRefuse))
	if _, m := f.scores(f.pod("web-0", func(p *corev1.Pod) { p.Labels["apps.kubernetes.io/pod-index"] = "0" })); m != "" {
		t.Error(m)
	}
}

func TestNamespaceLabelsChange(t *testing.T) {
	f := setUp(t)
	f.node("a", nil)
	f.policy("p", func(s *v1alpha1.SchedulingPolicySpec) {
		filtering("false", "no", "")(s)
		s.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "b"}}
	})
	p := f.pod("web")
	if _, m := f.scores(p); m != "" {
		t.Fatal(m)
	}
	f.nodes.SetNamespace("default", labels.Set{"team": "b"})
	if _, m := f.scores(p); m == "" {
		t.Error("the policy does not follow the namespace's labels")
	}
}

func TestAnnotationsThatAreNoNumbers(t *testing.T) {
	f := setUp(t)
	for name, text := range map[string]string{"a": "1e3", "b": "ten", "c": "NaN", "d": "+Inf", "e": " 1"} {
		f.node(name, map[string]string{"x": text})
	}
	f.policy("p", filtering(`"x" in metrics`, "", ""))
	if got, _ := f.scores(f.pod("web")); len(got) != 1 || got["a"] != 0 {
		t.Errorf("numbers are seen at %v, want a alone", got)
	}
}

// A pod that no policy selects costs nothing but the call.
func TestNoPolicyNoAllocation(t *testing.T) {
	f := setUp(t)
	f.node("a", nil)
	p := f.pod("web")
	c := f.profile.Begin(p)
	ask := func() {
		if !f.plugin.Filter(c, 0).OK() || f.plugin.Score(c, 0) != 0 {
			t.Fatal("refused or scored")
		}
	}
	if n := testing.AllocsPerRun(100, ask); n != 0 {
		t.Errorf("without policies: %v allocations", n)
	}
	f.policy("p", func(s *v1alpha1.SchedulingPolicySpec) {
		filtering("false", "no", "")(s)
		s.PodSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}
	})
	if n := testing.AllocsPerRun(100, ask); n != 0 {
		t.Errorf("with a policy for others: %v allocations", n)
	}
	other := f.profile.Begin(f.pod("other"))
	both := func() {
		ask()
		if !f.plugin.Filter(other, 0).OK() {
			t.Fatal("refused")
		}
	}
	if n := testing.AllocsPerRun(100, both); n != 0 {
		t.Errorf("for two classes in turn: %v allocations", n)
	}
	if f.book.evaluations != 0 {
		t.Errorf("%d evaluations", f.book.evaluations)
	}
}

func TestPluginTakesNoArguments(t *testing.T) {
	f := setUp(t)
	h := &framework.Handle{Nodes: f.nodes}
	if _, err := f.book.Factory([]byte(`{"kind":"SchedulingPolicyArgs","max":1}`), h); err == nil || !strings.Contains(err.Error(), `unknown field "max"`) {
		t.Errorf("refused with %v", err)
	}
}

func BenchmarkPolicyOnFiveThousandNodes(b *testing.B) {
	t := &testing.T{}
	f := setUp(t)
	for i := range 5000 {
		f.node(fmt.Sprintf("n%d", i), map[string]string{"price": fmt.Sprint(float64(i%100) / 100)})
	}
	f.policy("p", filtering("metrics.price < 0.9", "", v1alpha1.FailRefuse))
	f.policy("q", scoring("metrics.price", 5, "1", "0", v1alpha1.FailSkip))
	for i := 0; b.Loop(); i++ {
		p := f.pod("web")
		d, _, err := f.profile.Decide(f.profile.Begin(p))
		if err != nil || d == nil {
			b.Fatal(err)
		}
		f.nodes.AddPod(p, d.Node)
	}
}
