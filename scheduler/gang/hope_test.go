package gang_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yare-project/yare/scheduler/gang"
)

func labelled(app string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Labels = map[string]string{"app": app} }
}

func affinityTerm(app string) []corev1.PodAffinityTerm {
	return []corev1.PodAffinityTerm{{TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}}}
}

func near(app string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: affinityTerm(app)}}
	}
}

// oneNode is a gang whose members must share a node.
func (m *model) oneNode(least int, changes ...func(*corev1.Pod)) *gang.Want {
	w := m.want(least, slicesOf("1", len(changes))...)
	for i, change := range changes {
		w.Members[i].Pod = m.pod(fmt.Sprint("g-", i), "1", 10, change)
	}
	w.Topology = corev1.LabelHostname
	return w
}

// Nodes are tried in the order of their room; what leaves some out must not leave out the one that does.
func TestNoDomainIsLeftOutThatWouldDo(t *testing.T) {
	none := func(*corev1.Pod) {}
	ssd := func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"disk": "ssd"} }
	for name, c := range map[string]struct {
		nodes []string // "cpus label=value...", the tightest first
		on    map[string]func(*model, string)
		want  func(*model) *gang.Want
		at    string
	}{
		"the last has the label": {[]string{"2", "3", "4 disk=ssd"}, nil, func(m *model) *gang.Want { return m.oneNode(2, ssd, ssd) }, "n2 n2"},
		"one fits only beside another": {[]string{"2", "3", "4 disk=ssd"}, nil, func(m *model) *gang.Want {
			return m.oneNode(2, func(p *corev1.Pod) { labelled("a")(p); ssd(p) }, near("a"))
		}, "n2 n2"},
		"the first of few is not needed": {[]string{"2", "3", "4"}, nil, func(m *model) *gang.Want { return m.oneNode(2, ssd, none, none) }, "- n1 n1"},
		"ports of two sorts": {[]string{"2", "3", "4 disk=ssd"}, nil, func(m *model) *gang.Want {
			return m.oneNode(2, func(p *corev1.Pod) { wantingPort(p); ssd(p) }, none)
		}, "n2 n2"},
		"one of two with a port": {[]string{"2", "3", "4"}, nil, func(m *model) *gang.Want { return m.oneNode(1, wantingPort, wantingPort) }, "n0 -"},
		"GPUs on the last": {[]string{"2", "3", "4"}, map[string]func(*model, string){"n1": gpusOn(1), "n2": gpusOn(2)},
			func(m *model) *gang.Want { return m.oneNode(2, wantingGPU, wantingGPU) }, "n2 n2"},
		"who may leave": {[]string{"2", "2", "2"}, map[string]func(*model, string){"n0": holding(20), "n1": holding(20), "n2": holding(5)},
			func(m *model) *gang.Want { return m.oneNode(2, none, none) }, "n2!old n2"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newModel(t, rand.New(rand.NewPCG(1, 2)))
			for i, n := range c.nodes {
				m.node(fmt.Sprintf("n%d %s %s=n%d", i, n, corev1.LabelHostname, i))
			}
			for node, change := range c.on {
				change(m, node)
			}
			w := c.want(m)
			if got := where(w, m.decide(w)); got != c.at {
				t.Errorf("placed %s, want %s", got, c.at)
			}
		})
	}
}

// holding puts a pod of a priority on the node that is being furnished, which takes all of two processors.
func holding(priority int32) func(*model, string) {
	return func(m *model, node string) { m.nodes.AddPod(m.pod("old", "2", priority), node) }
}

func gpusOn(n int64) func(*model, string) { return func(m *model, node string) { m.gpus(node, n) } }

// TestOneNodeAgreesWithTryingEach compares a gang that must share a node with the same gang sent to each node in turn, by a selector.
func TestOneNodeAgreesWithTryingEach(t *testing.T) {
	seed := rand.Uint64()
	if s := os.Getenv("SEED"); s != "" {
		seed, _ = strconv.ParseUint(s, 10, 64)
	}
	defer func() {
		if t.Failed() {
			t.Logf("replay with SEED=%d go test ./scheduler/gang -run %s", seed, t.Name())
		}
	}()
	r := rand.New(rand.NewPCG(seed, 1))
	placed := 0
	for round := range 300 {
		m := newModel(t, r)
		nodes := 2 + r.IntN(5)
		for i := range nodes {
			name := fmt.Sprint("n", i)
			m.node(fmt.Sprintf("%s %d disk=%s %s=%s", name, 1+r.IntN(5), []string{"ssd", "hdd"}[r.IntN(2)], corev1.LabelHostname, name))
			if r.IntN(2) == 0 {
				m.gpus(name, r.Int64N(4))
			}
			for k := range r.IntN(3) {
				m.nodes.AddPod(m.pod(fmt.Sprintf("old-%d-%d", i, k), fmt.Sprint(r.IntN(3)), int32(5+10*r.IntN(2)), labelled([]string{"a", "b"}[r.IntN(2)])), name)
			}
		}
		var changes []func(*corev1.Pod)
		for range 1 + r.IntN(4) {
			changes = append(changes, randomMember(r))
		}
		least := 1 + r.IntN(len(changes))
		decide := func(w *gang.Want) bool {
			p := m.decide(w)
			if p.Settled {
				for _, at := range p.Placements {
					m.nodes.RemovePod(w.Members[at.Member].Pod)
				}
			}
			return p.Enough()
		}
		got, want := decide(m.oneNode(least, changes...)), false
		for i := range nodes {
			w := m.oneNode(least, changes...)
			for k := range w.Members {
				w.Members[k].Pod = m.pod(fmt.Sprint("g-", k), "1", 10, func(p *corev1.Pod) {
					changes[k](p)
					if p.Spec.NodeSelector == nil {
						p.Spec.NodeSelector = map[string]string{}
					}
					p.Spec.NodeSelector[corev1.LabelHostname] = fmt.Sprint("n", i)
				})
			}
			w.Topology = ""
			want = want || decide(w)
		}
		if got != want {
			t.Fatalf("round %d: the gang finds a node: %v, and one by one: %v; nodes:\n%s", round, got, want, m.state())
		}
		if got {
			placed++
		}
	}
	if placed < 30 || placed > 270 {
		t.Errorf("%d of 300 gangs found a node: the test says little", placed)
	}
}

// randomMember is a wish that members may have.
func randomMember(r *rand.Rand) func(*corev1.Pod) {
	app := []string{"a", "b"}[r.IntN(2)]
	more := []func(*corev1.Pod){func(*corev1.Pod) {}, func(*corev1.Pod) {}, wantingPort, wantingGPU, near(app), apart, selecting}[r.IntN(7)]
	own := []string{"a", "b"}[r.IntN(2)]
	return func(p *corev1.Pod) {
		labelled(own)(p)
		more(p)
	}
}
