package gang_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/yare-project/yare/scheduler/framework"
)

// oracle answers by plain counting, for groups whose pods all ask for one processor: how many of them fit on nodes with this label's value, if only pods of at least the
// priority stay.
func oracle(m *model, topology, value string, stays int32) (fit int) {
	for i := range m.nodes.Valid.All() {
		if topology != "" && m.nodes.Object[i].Labels[topology] != value {
			continue
		}
		free := m.nodes.Allocatable[framework.CPU][i] / 1000
		for _, p := range m.nodes.Pods[i] {
			if p.Priority >= stays {
				free -= p.Object.Spec.Containers[0].Resources.Requests.Cpu().Value()
			}
		}
		fit += int(max(0, free))
	}
	return fit
}

// TestDecideEqualsCounting: where the order of pods does not matter, a group is settled exactly if plain counting says that it fits, has others leave exactly if it fits
// then only, and never leaves a trace otherwise.
func TestDecideEqualsCounting(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	for round := range 400 {
		r := rand.New(rand.NewPCG(seed, uint64(round)))
		m := newModel(t, r)
		zones := []string{"x", "y", "z"}
		var values []string
		for i := range 1 + r.IntN(6) {
			text := fmt.Sprintf("n%d %d", i, 1+r.IntN(4))
			if r.IntN(5) > 0 {
				value := zones[r.IntN(len(zones))]
				text += " zone=" + value
				values = append(values, value)
			}
			m.node(text)
		}
		for i := range r.IntN(12) {
			slot := r.IntN(m.nodes.Slots())
			if m.nodes.Used[framework.CPU][slot] < m.nodes.Allocatable[framework.CPU][slot] {
				m.nodes.AddPod(m.pod(fmt.Sprint("old-", i), "1", int32(5+r.IntN(2)*10), func(p *corev1.Pod) { p.Spec.SchedulingGroup = nil }), m.nodes.Name[slot])
			}
		}
		count := 1 + r.IntN(8)
		w := m.want(1+r.IntN(count), slicesOf("1", count)...)
		if r.IntN(2) == 0 {
			w.Topology = "zone"
		}
		if w.Topology == "" {
			values = []string{""}
		}
		fits, fitsThen := 0, 0
		for _, v := range values {
			fits, fitsThen = max(fits, oracle(m, w.Topology, v, -1)), max(fitsThen, oracle(m, w.Topology, v, 10))
		}
		before := m.state()
		p := m.decide(w)
		told := fmt.Sprintf("seed %d, round %d: %d of %d pods by %q: %s\n%s%s", seed, round, w.Least, count, w.Topology, where(w, p), before, p.Message)
		if want := fits >= w.Least; p.Settled != want {
			t.Fatalf("settled: %v, want %v\n%s", p.Settled, want, told)
		}
		if want := fitsThen >= w.Least; p.Enough() != want {
			t.Fatalf("enough: %v, want %v\n%s", p.Enough(), want, told)
		}
		switch {
		case p.Settled:
			if want := min(count, fits); len(p.Placements) != want {
				t.Fatalf("%d pods placed, want %d\n%s", len(p.Placements), want, told)
			}
			for _, at := range p.Placements {
				m.nodes.RemovePod(w.Members[at.Member].Pod)
			}
		case p.Enough():
			for _, v := range p.Victims() {
				if v.Priority >= 10 {
					t.Fatalf("%s must leave, which is more important\n%s", v.Object.Name, told)
				}
			}
		}
		if d := cmp.Diff(before, m.state()); d != "" {
			t.Fatalf("the nodes changed (-before +after):\n%s\n%s", d, told)
		}
	}
}

func slicesOf(s string, n int) (out []string) {
	for range n {
		out = append(out, s)
	}
	return out
}
