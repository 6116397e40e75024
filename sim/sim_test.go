package sim

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// seeds are those of a test: few, or many where YARE_SOAK is set, all new each time. YARE_SEED replays one.
func seeds(t *testing.T, few int) []uint64 {
	t.Helper()
	var one uint64
	if n, _ := fmt.Sscan(os.Getenv("YARE_SEED"), &one); n == 1 {
		return []uint64{one}
	}
	if os.Getenv("YARE_SOAK") != "" {
		few = 50
	}
	first := uint64(time.Now().UnixNano())
	var out []uint64
	for i := range few {
		out = append(out, first+uint64(i))
	}
	return out
}

func run(t *testing.T, c Config) Report {
	t.Helper()
	r, err := Run(t.Context(), c)
	if err != nil {
		t.Fatalf("YARE_SEED=%d go test ./sim -run %s: %v\n%v", c.Seed, t.Name(), err, r)
	}
	return r
}

func TestAClusterWithoutFaults(t *testing.T) {
	for _, seed := range seeds(t, 3) {
		r := run(t, Config{Seed: seed, Nodes: 200, Pods: 1500})
		if r.Bound != 1500 || r.Longest > 0 {
			t.Errorf("seed %d: %v; want 1500 bindings and no waiting, as there is room for all", seed, r)
		}
	}
}

func TestPodsComeAndGo(t *testing.T) {
	for _, seed := range seeds(t, 3) {
		if r := run(t, Config{Seed: seed, Nodes: 30, Pods: 2000, Life: time.Minute}); r.Ended == 0 {
			t.Errorf("seed %d: no pod ended: %v", seed, r)
		}
	}
}

func TestAClusterWithFaults(t *testing.T) {
	for _, seed := range seeds(t, 3) {
		r := run(t, Config{Seed: seed, Nodes: 200, Pods: 1500, Faults: Faults{Refused: 0.05, Lost: 0.05, Nodes: 20}})
		if r.Failed == 0 || r.Again == 0 {
			t.Errorf("seed %d: nothing went wrong: %v", seed, r)
		}
	}
}

func TestTheSameSeedIsTheSameRun(t *testing.T) {
	c := Config{Seed: 7, Nodes: 50, Pods: 500, Life: 2 * time.Minute, Faults: Faults{Refused: 0.05, Lost: 0.05, Nodes: 5}}
	one, two := run(t, c), run(t, c)
	if one.Digest != two.Digest {
		t.Errorf("%v\n%v", one, two)
	}
	c.Seed = 8
	if other := run(t, c); other.Digest == one.Digest {
		t.Error("another seed led to the same placements")
	}
}

// The ledger finds what it is there to find.
func TestLedgerFindsBreaches(t *testing.T) {
	bound := func(name, node string) *corev1.Pod {
		p := shape{}.pod(name)
		p.Spec.NodeName = node
		return p
	}
	for name, c := range map[string]struct {
		shape shape
		binds []string // pod@node
		want  string
	}{
		"more than there is": {shape{size: 3}, []string{"a@node-0", "b@node-0", "c@node-0", "d@node-0", "e@node-0", "f@node-0", "g@node-0", "h@node-0", "i@node-0"}, "more than it has"},
		"twice":              {shape{}, []string{"a@node-0", "a@node-1"}, "and is on node-0"},
		"no such node":       {shape{}, []string{"a@node-7"}, "which is gone"},
		"together":           {shape{kind: apart, group: "g"}, []string{"a@node-0", "b@node-0"}, "must be apart"},
		"uneven":             {shape{kind: spread, group: "g"}, []string{"a@node-0", "b@node-0"}, "by zone"},
	} {
		l := newLedger()
		for i := range 2 {
			l.addNode(node(i))
		}
		var err error
		for _, b := range c.binds {
			pod, on, _ := strings.Cut(b, "@")
			if l.pods[pod] == nil {
				l.pods[pod] = &resident{name: pod, shape: c.shape}
			}
			if err != nil {
				t.Errorf("%s: too early: %v", name, err)
			}
			err = l.bind(bound(pod, on))
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: found %v, want %q", name, err, c.want)
		}
	}
}

// TestLarge is 100,000 nodes and 1,000,000 pods, or what YARE_SIM says; it takes minutes and some GiB.
func TestLarge(t *testing.T) {
	c := Config{Nodes: 100_000, Pods: 1_000_000, Arrival: time.Hour}
	if n, _ := fmt.Sscanf(os.Getenv("YARE_SIM"), "%d,%d", &c.Nodes, &c.Pods); n != 2 && os.Getenv("YARE_SOAK") == "" {
		t.Skip("set YARE_SIM=NODES,PODS")
	}
	c.Seed = seeds(t, 1)[0]
	r := run(t, c)
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	t.Logf("seed %d, %d nodes, %d pods: %v; %d MiB taken of the system", c.Seed, c.Nodes, c.Pods, r, m.Sys>>20)
}
