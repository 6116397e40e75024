package gang_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/scheduler/framework"
)

func TestDecide(t *testing.T) {
	for name, c := range map[string]struct {
		nodes    []string          // "name cpus label=value"
		there    map[string]string // by name: "node cpus priority"
		budget   int               // disruptions allowed of pods named guarded-...; 0 forbids none of others
		least    int
		cpus     string
		topology string
		placed   []string // names out of there that are of the group
		settled  bool
		want     string // where; empty: anywhere
		message  string
	}{
		"it fits":                   {nodes: []string{"a 2"}, least: 2, cpus: "1 1", settled: true, want: "a a"},
		"one lacks room":            {nodes: []string{"a 2"}, least: 3, cpus: "1 1 1", want: "a a -", message: "1 Insufficient cpu"},
		"as many as must":           {nodes: []string{"a 2"}, least: 2, cpus: "1 1 1", settled: true, want: "a a -", message: "1 Insufficient cpu"},
		"it ends early":             {nodes: []string{"a 1"}, least: 3, cpus: "2 1 1", want: "- - -", message: "1 Insufficient cpu"},
		"no nodes":                  {least: 1, cpus: "1", want: "-", message: "no nodes available to schedule pods"},
		"the largest first":         {nodes: []string{"a 3", "b 3"}, least: 4, cpus: "1 1 1 3", settled: true},
		"part is placed":            {nodes: []string{"a 2"}, there: map[string]string{"x": "a 1 10"}, placed: []string{"x"}, least: 1, cpus: "1", settled: true, want: "a"},
		"more than must":            {nodes: []string{"a 1"}, least: -2, cpus: "1 1", settled: true, want: "a -"},
		"the tightest domain":       {nodes: []string{"a 9 z=a", "b 3 z=b", "c 2 z=c", "d 9"}, topology: "z", least: 3, cpus: "1 1 1", settled: true, want: "b b b"},
		"where it is already":       {nodes: []string{"a 9 z=a", "b 3 z=b"}, there: map[string]string{"x": "a 1 10"}, placed: []string{"x"}, topology: "z", least: 1, cpus: "1", settled: true, want: "a"},
		"it is nowhere":             {nodes: []string{"a 9 z=a", "d 9"}, there: map[string]string{"x": "d 1 10"}, placed: []string{"x"}, topology: "z", least: 1, cpus: "1", want: "-", message: "no node has the label z"},
		"no domain":                 {nodes: []string{"a 9"}, topology: "z", least: 1, cpus: "1", want: "-", message: "no node has the label z"},
		"no domain is enough":       {nodes: []string{"a 1 z=a", "b 2 z=b", "c 9"}, topology: "z", least: 3, cpus: "1 1 1", want: "b b -", message: "topology domain"},
		"a domain for most":         {nodes: []string{"a 1 z=a", "b 2 z=b"}, topology: "z", least: 2, cpus: "1 1 1", settled: true, want: "b b -"},
		"others leave":              {nodes: []string{"a 2"}, there: map[string]string{"low": "a 2 1"}, least: 2, cpus: "1 1", want: "a!low a"},
		"nobody leaves":             {nodes: []string{"a 2"}, there: map[string]string{"high": "a 1 20"}, least: 2, cpus: "1 1", want: "a -", message: "1 Insufficient cpu"},
		"nobody leaves for nothing": {nodes: []string{"a 2"}, there: map[string]string{"low": "a 1 1"}, least: 3, cpus: "1 1 1", want: "a a!low -", message: "1 Insufficient cpu"},
		"the fewest leave":          {nodes: []string{"a 2 z=a", "b 2 z=b"}, there: map[string]string{"a1": "a 1 1", "a2": "a 1 1", "b1": "b 1 1"}, topology: "z", least: 2, cpus: "1 1", want: "b b!b1"},
		"budgets count for all":     {nodes: []string{"a 1", "b 1", "c 1"}, there: map[string]string{"guarded-1": "a 1 1", "guarded-2": "b 1 1", "low": "c 1 5"}, budget: 1, least: 2, cpus: "1 1"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newModel(t, rand.New(rand.NewPCG(1, 2)))
			for _, n := range c.nodes {
				m.node(n)
			}
			if c.budget > 0 {
				m.budgets = []*policyv1.PodDisruptionBudget{{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "b"},
					Spec:   policyv1.PodDisruptionBudgetSpec{MinAvailable: ptr.To(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"guarded": "yes"}}},
					Status: policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: int32(c.budget)}}}
			}
			there := map[string]*framework.Pod{}
			for name, text := range c.there {
				f := strings.Fields(text)
				priority := map[string]int32{"1": 1, "5": 5, "10": 10, "20": 20}[f[2]]
				there[name] = m.pod(name, f[1], priority, func(p *corev1.Pod) {
					if strings.HasPrefix(name, "guarded") {
						p.Labels = map[string]string{"guarded": "yes"}
					}
				})
				m.nodes.AddPod(there[name], f[0])
			}
			w := m.want(c.least, strings.Fields(c.cpus)...)
			w.Topology = c.topology
			for _, name := range c.placed {
				w.Placed = append(w.Placed, there[name])
			}
			before := m.state()
			p := m.decide(w)
			if p.Settled != c.settled {
				t.Errorf("settled: %v, want %v: %s: %s", p.Settled, c.settled, where(w, p), p.Message)
			}
			if got := where(w, p); c.want != "" && got != c.want {
				t.Errorf("placed on %s, want %s", got, c.want)
			}
			if c.want == "" && len(p.Placements) < c.least {
				t.Errorf("placed on %s", where(w, p))
			}
			if !strings.Contains(p.Message, c.message) || c.message == "" && p.Message != "" && len(p.Placements) == len(w.Members) {
				t.Errorf("message %q, want %q", p.Message, c.message)
			}
			if guarded := strings.Count(where(w, p), "guarded"); guarded > 1 {
				t.Errorf("%d pods leave whose budget allows 1: %s", guarded, where(w, p))
			}
			if !p.Settled {
				if d := cmp.Diff(before, m.state()); d != "" {
					t.Errorf("a refused group changes the nodes (-before +after):\n%s", d)
				}
				return
			}
			for _, place := range p.Placements {
				m.nodes.RemovePod(w.Members[place.Member].Pod)
			}
			if d := cmp.Diff(before, m.state()); d != "" {
				t.Errorf("more than the group's pods was changed (-before +after):\n%s", d)
			}
		})
	}
}

// A chooser may remember victims as they were before their status changed: it is those on the node now who leave.
func TestVictimsAreThoseOnTheNodeNow(t *testing.T) {
	m := newModel(t, rand.New(rand.NewPCG(1, 2)))
	m.node("a 2")
	m.node("b 2")
	lowest, low := m.pod("lowest", "2", 1), m.pod("low", "2", 5)
	m.nodes.AddPod(lowest, "a")
	m.nodes.AddPod(low, "b")
	w := m.want(1, "1")
	if got := where(w, m.decide(w)); got != "a!lowest" {
		t.Fatalf("at first: %s", got)
	}
	m.nodes.RemovePod(lowest)
	m.nodes.AddPod(m.pod("high", "2", 20), "a")
	m.nodes.Replace(low, low.Object.DeepCopy())
	before := m.state()
	w = m.want(2, "1", "1")
	if got := where(w, m.decide(w)); got != "b!low b" {
		t.Errorf("once its status changed: %s", got)
	}
	if d := cmp.Diff(before, m.state()); d != "" {
		t.Errorf("the nodes (-before +after):\n%s", d)
	}
}
