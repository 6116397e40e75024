package nodelifecycle

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The census says, after any changes, what counting all nodes says.
func TestCensusIsACount(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	r := rand.New(rand.NewPCG(seed, 1))
	c := newCensus()
	nodes, heard := map[string]*corev1.Node{}, map[string]time.Time{}
	now := time.Unix(1e9, 0)
	for step := range 5000 {
		name := fmt.Sprint("n", r.IntN(12))
		now = now.Add(time.Duration(r.IntN(3)) * time.Second)
		switch r.IntN(6) {
		case 0:
			c.leave(name)
			delete(nodes, name)
			delete(heard, name)
		case 1, 2:
			status := []corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionFalse}[r.IntN(2)]
			n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelTopologyZone: fmt.Sprint("z", r.IntN(3))}},
				Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}}}}
			before := tally(nodes)
			nodes[name] = n
			checkShifts(t, seed, step, c.enter(n), before, tally(nodes))
		case 3:
			if nodes[name] != nil {
				c.hear(name, now)
				heard[name] = now
			}
		}
		asked := fmt.Sprint("n", r.IntN(12))
		alive := false
		for other, n := range nodes {
			alive = alive || other != asked && readyStatus(n) == corev1.ConditionTrue && heard[other].After(now.Add(-10*time.Second))
		}
		if got := c.otherAlive(asked, now.Add(-10*time.Second)); got != alive {
			t.Fatalf("seed %d, step %d: another than %s alive: %v, counted %v", seed, step, asked, got, alive)
		}
		if n := nodes[asked]; n != nil {
			want := tally(nodes)[zoneOf(n)]
			if readyStatus(n) == corev1.ConditionTrue {
				want.ready--
			}
			if got := c.othersOf(n); got != want {
				t.Fatalf("seed %d, step %d: zone of %s has %+v, counted %+v", seed, step, asked, got, want)
			}
		}
	}
}

func tally(nodes map[string]*corev1.Node) map[string]count {
	out := map[string]count{}
	for _, n := range nodes {
		z := out[zoneOf(n)]
		z.size++
		if readyStatus(n) == corev1.ConditionTrue {
			z.ready++
		}
		out[zoneOf(n)] = z
	}
	return out
}

// checkShifts holds what a change is said to have done to what it did.
func checkShifts(t *testing.T, seed uint64, step int, shifts []shift, before, after map[string]count) {
	t.Helper()
	told := map[string]bool{}
	for _, s := range shifts {
		told[s.zone] = true
		if s.before != before[s.zone] || s.after != after[s.zone] {
			t.Fatalf("seed %d, step %d: zone %s is said to go from %+v to %+v, went from %+v to %+v", seed, step, s.zone, s.before, s.after, before[s.zone], after[s.zone])
		}
	}
	for zone := range after {
		if before[zone] != after[zone] && !told[zone] {
			t.Fatalf("seed %d, step %d: nothing is said of zone %s", seed, step, zone)
		}
	}
}
