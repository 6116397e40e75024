package plugins

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/yare-project/yare/scheduler/framework"
)

const (
	host = corev1.LabelHostname
	zone = corev1.LabelTopologyZone
)

func term(key string, s *metav1.LabelSelector, change ...func(*corev1.PodAffinityTerm)) corev1.PodAffinityTerm {
	t := corev1.PodAffinityTerm{TopologyKey: key, LabelSelector: s}
	for _, c := range change {
		c(&t)
	}
	return t
}

func affine(p *corev1.Pod) *corev1.Affinity {
	if p.Spec.Affinity == nil {
		p.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{}, PodAntiAffinity: &corev1.PodAntiAffinity{}}
	}
	return p.Spec.Affinity
}

func near(terms ...corev1.PodAffinityTerm) func(*corev1.Pod) {
	return func(p *corev1.Pod) { affine(p).PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution = terms }
}

func apart(terms ...corev1.PodAffinityTerm) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		affine(p).PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution = terms
	}
}

func rather(near, apart int32, t corev1.PodAffinityTerm) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		a := affine(p)
		if near > 0 {
			a.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution = append(a.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution, corev1.WeightedPodAffinityTerm{Weight: near, PodAffinityTerm: t})
		}
		if apart > 0 {
			a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution = append(a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution, corev1.WeightedPodAffinityTerm{Weight: apart, PodAffinityTerm: t})
		}
	}
}

// threeNodes are two in zone 1 and one in zone 2, and one without a zone.
func threeNodes(t *testing.T) *fixture {
	f := newFixture(t, testNode("a", label(host, "a", zone, "1")), testNode("b", label(host, "b", zone, "1")), testNode("c", label(host, "c", zone, "2")), testNode("d", label(host, "d")))
	f.nodes.SetNamespace("default", labels.Set{})
	f.nodes.SetNamespace("prod", labels.Set{"env": "prod"})
	return f
}

// TestPodAffinity follows "Inter-pod affinity and anti-affinity" and KEP-2249 (namespaceSelector). matchLabelKeys and mismatchLabelKeys (KEP-3633) are a part of the
// selector by the time that a pod is stored.
func TestPodAffinity(t *testing.T) {
	const far, foe, unwanted = "!node(s) didn't match pod affinity rules", "node(s) didn't match pod anti-affinity rules", "node(s) didn't satisfy existing pods anti-affinity rules"
	ns := func(names ...string) func(*corev1.PodAffinityTerm) {
		return func(t *corev1.PodAffinityTerm) { t.Namespaces = names }
	}
	nsLike := func(s *metav1.LabelSelector) func(*corev1.PodAffinityTerm) {
		return func(t *corev1.PodAffinityTerm) { t.NamespaceSelector = s }
	}
	prod := &metav1.LabelSelector{MatchLabels: map[string]string{"env": "prod"}}
	for _, c := range []struct {
		name       string
		there, pod []func(*corev1.Pod) // there: the one pod, on a
		a, b, c, d string
	}{
		{"near, by host", []func(*corev1.Pod){podLabel("app", "web")}, []func(*corev1.Pod){near(term(host, app("web")))}, ok, far, far, far},
		{"near, by zone", []func(*corev1.Pod){podLabel("app", "web")}, []func(*corev1.Pod){near(term(zone, app("web")))}, ok, ok, far, far},
		{"near nobody", nil, []func(*corev1.Pod){near(term(zone, app("web")))}, far, far, far, far},
		{"the first of its own kind needs the label only", nil, []func(*corev1.Pod){podLabel("app", "web"), near(term(zone, app("web")))}, ok, ok, ok, far},
		{"the second goes to the first", []func(*corev1.Pod){podLabel("app", "web")}, []func(*corev1.Pod){podLabel("app", "web"), near(term(zone, app("web")))}, ok, ok, far, far},
		{"one pod must match all terms", []func(*corev1.Pod){podLabel("app", "web")}, []func(*corev1.Pod){near(term(zone, app("web")), term(host, app("db")))}, far, far, far, far},
		{"apart, by host", []func(*corev1.Pod){podLabel("app", "web")}, []func(*corev1.Pod){apart(term(host, app("web")))}, foe, ok, ok, ok},
		{"apart, by zone", []func(*corev1.Pod){podLabel("app", "web")}, []func(*corev1.Pod){apart(term(zone, app("web")))}, foe, foe, ok, ok},
		{"who is there keeps away", []func(*corev1.Pod){apart(term(zone, app("web")))}, []func(*corev1.Pod){podLabel("app", "web")}, unwanted, unwanted, ok, ok},
		{"and lets others in", []func(*corev1.Pod){apart(term(zone, app("db")))}, []func(*corev1.Pod){podLabel("app", "web")}, ok, ok, ok, ok},
		{"other namespaces do not count", []func(*corev1.Pod){podLabel("app", "web"), inNamespace("prod")}, []func(*corev1.Pod){apart(term(host, app("web")))}, ok, ok, ok, ok},
		{"unless they are named", []func(*corev1.Pod){podLabel("app", "web"), inNamespace("prod")}, []func(*corev1.Pod){apart(term(host, app("web"), ns("prod")))}, foe, ok, ok, ok},
		{"then the own does not", []func(*corev1.Pod){podLabel("app", "web")}, []func(*corev1.Pod){apart(term(host, app("web"), ns("prod")))}, ok, ok, ok, ok},
		{"or selected", []func(*corev1.Pod){podLabel("app", "web"), inNamespace("prod")}, []func(*corev1.Pod){apart(term(host, app("web"), nsLike(prod)))}, foe, ok, ok, ok},
		{"an empty selector selects all", []func(*corev1.Pod){podLabel("app", "web"), inNamespace("prod")}, []func(*corev1.Pod){apart(term(host, app("web"), nsLike(&metav1.LabelSelector{})))}, foe, ok, ok, ok},
		{"names and selector add up", []func(*corev1.Pod){podLabel("app", "web")}, []func(*corev1.Pod){apart(term(host, app("web"), nsLike(prod), ns("default")))}, foe, ok, ok, ok},
		{"of who is there, too", []func(*corev1.Pod){apart(term(host, app("web"), nsLike(prod)))}, []func(*corev1.Pod){podLabel("app", "web"), inNamespace("prod")}, unwanted, ok, ok, ok},
		{"no selector selects no pods", []func(*corev1.Pod){podLabel("app", "web")}, []func(*corev1.Pod){apart(term(host, nil))}, ok, ok, ok, ok},
		{"an empty one all", []func(*corev1.Pod){podLabel("app", "web")}, []func(*corev1.Pod){apart(term(host, &metav1.LabelSelector{}))}, foe, ok, ok, ok},
		{"affinity is missed before anti-affinity", []func(*corev1.Pod){podLabel("app", "web")}, []func(*corev1.Pod){near(term(host, app("db"))), apart(term(host, app("web")))}, far, far, far, far},
	} {
		f := threeNodes(t)
		if c.there != nil {
			f.on("a", f.pod("there", c.there...))
		}
		f.want(c.name, InterPodAffinity, "", f.pod("p", c.pod...), map[string]string{"a": c.a, "b": c.b, "c": c.c, "d": c.d})
	}
}

func TestCompany(t *testing.T) {
	web := term(zone, app("web"))
	for _, c := range []struct {
		name, args  string
		onA, onC    []func(*corev1.Pod)
		pod         []func(*corev1.Pod)
		a, b, cc, d int64
	}{
		{"preferred company", "", []func(*corev1.Pod){podLabel("app", "web")}, nil, []func(*corev1.Pod){rather(10, 0, web)}, 100, 100, 0, 0},
		{"preferred distance", "", []func(*corev1.Pod){podLabel("app", "web")}, nil, []func(*corev1.Pod){rather(0, 10, web)}, 0, 0, 100, 100},
		{"weights add up", "", []func(*corev1.Pod){podLabel("app", "web")}, []func(*corev1.Pod){podLabel("app", "web")}, []func(*corev1.Pod){rather(10, 0, web), rather(30, 0, term(host, app("web")))},
			100, 25, 100, 0},
		{"who is there prefers", "", []func(*corev1.Pod){rather(10, 0, web)}, []func(*corev1.Pod){rather(0, 10, web)}, []func(*corev1.Pod){podLabel("app", "web")}, 100, 100, 0, 50},
		{"who is there needs", "", []func(*corev1.Pod){near(web)}, []func(*corev1.Pod){rather(2, 0, web)}, []func(*corev1.Pod){podLabel("app", "web")}, 50, 50, 100, 0},
		{"worth as configured", `{"hardPodAffinityWeight": 4}`, []func(*corev1.Pod){near(web)}, []func(*corev1.Pod){rather(2, 0, web)}, []func(*corev1.Pod){podLabel("app", "web")}, 100, 100, 50, 0},
		{"worth nothing", `{"hardPodAffinityWeight": 0}`, []func(*corev1.Pod){near(web)}, []func(*corev1.Pod){rather(2, 0, web)}, []func(*corev1.Pod){podLabel("app", "web")}, 0, 0, 100, 0},
		{"preferences of others ignored", `{"ignorePreferredTermsOfExistingPods": true}`, []func(*corev1.Pod){rather(10, 0, web)}, nil, []func(*corev1.Pod){podLabel("app", "web")}, 0, 0, 0, 0},
		{"but not for a pod that has some", `{"ignorePreferredTermsOfExistingPods": true}`, []func(*corev1.Pod){rather(10, 0, web)}, nil, []func(*corev1.Pod){podLabel("app", "web"), rather(1, 0, term(host, app("db")))},
			100, 100, 0, 0},
	} {
		f := threeNodes(t)
		if c.onA != nil {
			f.on("a", f.pod("on-a", c.onA...))
		}
		if c.onC != nil {
			f.on("c", f.pod("on-c", c.onC...))
		}
		f.wantScores(c.name, InterPodAffinity, c.args, f.pod("p", c.pod...), map[string]int64{"a": c.a, "b": c.b, "c": c.cc, "d": c.d})
	}
}

func TestHintsOfPodAffinity(t *testing.T) {
	f := threeNodes(t)
	p := f.make(InterPodAffinity, "").(framework.HintPlugin)
	web, db := f.pod("web", podLabel("app", "web")), f.pod("db", podLabel("app", "db"))
	wants, shuns := f.pod("wants", near(term(zone, app("web")))), f.pod("shuns", apart(term(zone, app("web"))))
	for _, c := range []struct {
		name string
		pod  *framework.Pod
		e    framework.Event
		want bool
	}{
		{"a friend comes", wants, framework.Event{Kind: framework.PodAdded, Pod: web}, true},
		{"a stranger comes", wants, framework.Event{Kind: framework.PodAdded, Pod: db}, false},
		{"a foe goes", shuns, framework.Event{Kind: framework.PodRemoved, Pod: web}, true},
		{"a stranger goes", shuns, framework.Event{Kind: framework.PodRemoved, Pod: db}, false},
		{"who shuns it goes", web, framework.Event{Kind: framework.PodRemoved, Pod: shuns}, true},
		{"a node with the label", wants, framework.Event{Kind: framework.NodeAdded, Node: testNode("n", label(zone, "3"))}, true},
		{"a node without", wants, framework.Event{Kind: framework.NodeAdded, Node: testNode("n")}, false},
		{"any node", shuns, framework.Event{Kind: framework.NodeAdded, Node: testNode("n")}, true},
	} {
		if got := p.Helps(c.pod, &c.e); got != c.want {
			t.Errorf("%s: helps is %v, want %v", c.name, got, c.want)
		}
	}
}
