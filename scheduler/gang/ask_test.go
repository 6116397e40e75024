package gang_test

import (
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/yare-project/yare/scheduler/framework"
)

// asker is asked about each pod once.
type asker struct{ asked, supposed map[string]int }

func (o asker) Follow(*framework.Cycle) {}
func (o asker) Open(c *framework.Cycle) bool {
	o.asked[c.Pod.Object.Name]++
	return o.asked[c.Pod.Object.Name] == 1
}
func (o asker) Suppose(c *framework.Cycle) { o.supposed[c.Pod.Object.Name]++ }

// TestNothingIsDecidedBeforeAllIsAnswered: all questions come at once, nobody leaves for a supposition, and nothing stays of it.
func TestNothingIsDecidedBeforeAllIsAnswered(t *testing.T) {
	m := newModel(t, rand.New(rand.NewPCG(1, 2)))
	m.node("a 1")
	m.node("b 1")
	m.nodes.AddPod(m.pod("low", "1", 1), "b")
	o := asker{map[string]int{}, map[string]int{}}
	m.decider.Ask = o
	w, before := m.want(2, "1", "1"), m.state()
	p := m.decide(w)
	if !p.Open || p.Settled || len(p.Victims()) > 0 {
		t.Errorf("plan is %+v, want an open one", p)
	}
	if diff := cmp.Diff(before, m.state()); diff != "" {
		t.Errorf("something stayed (-before +after): %s", diff)
	}
	if diff := cmp.Diff(map[string]int{"g-0": 1, "g-1": 1}, o.asked); diff != "" {
		t.Errorf("asked about (-want +got): %s", diff)
	}
	if diff := cmp.Diff(o.asked, o.supposed); diff != "" {
		t.Errorf("not supposed of all that were asked about: %s", diff)
	}
	if p = m.decide(w); p.Open || where(w, p) != "a b!low" {
		t.Errorf("with answers: %s (open: %v), want others to leave", where(w, p), p.Open)
	}
	w.Final = true
	clear(o.asked)
	if p = m.decide(w); p.Open {
		t.Error("a final decision is open")
	}
}
