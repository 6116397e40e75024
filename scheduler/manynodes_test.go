package scheduler

import (
	"fmt"
	"math/rand/v2"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestSchedulerAgreesOnManyNodes has so many nodes that the scheduler tells hosts apart by what is counted on them instead of by their names.
func TestSchedulerAgreesOnManyNodes(t *testing.T) {
	placed := 0
	for range 4 { // of worlds there are such that take no pod at all
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		placed += agreeOnManyNodes(t, generator{rand.New(rand.NewPCG(seed, 0))})
	}
	if placed == 0 {
		t.Error("no pod was placed")
	}
}

func agreeOnManyNodes(t *testing.T, g generator) (placed int) {
	w := newTwin(t, g)
	for i := range 40 {
		w.setNode(g.node(fmt.Sprintf("n%d", i)))
	}
	var templates []*corev1.Pod
	for range 30 {
		templates = append(templates, g.template())
	}
	for range 250 {
		w.step(t, g)
		p := w.pod(t, g, pick(g, templates...))
		if node := w.check(t, p); node != "" {
			w.put(t, g, p, node)
			placed++
		} else if w.preempt(t, p) && g.often(40) && len(w.nominated) < 6 {
			w.nominate(p, w.chosen)
		}
	}
	return placed
}
