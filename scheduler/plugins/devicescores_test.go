package plugins

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/yare-project/yare/scheduler/framework"
)

// fakeDevices are the devices of each node that stand for example.com/gpu: how many there are, and how many are taken.
type fakeDevices map[string][2]int64

func (fakeDevices) Backs(name corev1.ResourceName) bool { return name == "example.com/gpu" }
func (fakeDevices) Epoch() uint64                       { return 1 }
func (d fakeDevices) Totals(name corev1.ResourceName, _ int, node *corev1.Node) (all, taken int64) {
	if name != "example.com/gpu" {
		return 0, 0
	}
	return d[node.Name][0], d[node.Name][1]
}

// withDevices makes a plugin that knows of devices.
func (f *fixture) withDevices(name, args string, d framework.Devices) framework.Plugin {
	f.t.Helper()
	h := f.handle()
	h.Devices = d
	p, err := Registry()[name]([]byte(args), h)
	if err != nil {
		f.t.Fatal(err)
	}
	return p
}

func gpus(n string) func(*corev1.Node) {
	return func(o *corev1.Node) { o.Status.Allocatable["example.com/gpu"] = res("g", n)["g"] }
}

func TestDevicesCountInScores(t *testing.T) {
	resources := `"resources": [{"name": "cpu"}, {"name": "example.com/gpu", "weight": 3}]`
	least, most := `{"scoringStrategy": {"type": "LeastAllocated", `+resources+`}}`, `{"scoringStrategy": {"type": "MostAllocated", `+resources+`}}`
	shape := `{"scoringStrategy": {"type": "RequestedToCapacityRatio", ` + resources + `, "requestedToCapacityRatio": {"shape": [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]}}}`
	balance := `{"resources": [{"name": "cpu"}, {"name": "example.com/gpu"}]}`
	ask, plain := res("cpu", "1", "example.com/gpu", "2"), res("cpu", "1")
	for _, c := range []struct {
		name, plugin, args string
		pod                corev1.ResourceList
		want               map[string]int64
	}{ // native: 1 of 4 GPUs is used; devices: 2 of 8 are taken; each has 4 CPUs, of which 1 is used; none has none
		{"least", NodeResourcesFit, least, ask, map[string]int64{"native": (50 + 3*25) / 4, "devices": (50 + 3*50) / 4}},
		{"most", NodeResourcesFit, most, ask, map[string]int64{"native": (50 + 3*75) / 4, "devices": (50 + 3*50) / 4}},
		{"shape", NodeResourcesFit, shape, ask, map[string]int64{"native": 69, "devices": 50}},
		{"not asked for", NodeResourcesFit, least, plain, map[string]int64{"native": 50, "devices": 50, "none": 75}},
		{"balance", BalancedAllocation, balance, ask, map[string]int64{"native": 50 + (50+87-100)/2, "devices": 50 + (50+100-100)/2}},
		{"balance, not asked for", BalancedAllocation, balance, plain, map[string]int64{"native": 75, "devices": 75, "none": 75}},
	} {
		f := newFixture(t, testNode("native", gpus("4")), testNode("devices"), testNode("none"))
		d := fakeDevices{"devices": {8, 2}}
		f.on("native", f.pod("a", asks(res("cpu", "1", "example.com/gpu", "1"))))
		f.on("devices", f.pod("b", asks(res("cpu", "1", "example.com/gpu", "2"))))
		profile := f.profile(f.withDevices(c.plugin, c.args, d))
		cycle := profile.Begin(f.pod("p", asks(c.pod)))
		got, why, err := profile.Scores(cycle)
		if err != nil || why != nil {
			t.Fatal(err, why)
		}
		if c.pod["example.com/gpu"] == ask["example.com/gpu"] { // DynamicResources, which is not here, refuses a node without devices
			delete(got, "none")
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: want -, got +:\n%s", c.name, diff)
		}
	}
}

// TestScoresFollowDevices compares scores with the formulas written down plainly, while devices are taken and freed without that nodes or pods change.
func TestScoresFollowDevices(t *testing.T) {
	seed := rand.Uint64()
	if s := os.Getenv("SEED"); s != "" {
		seed, _ = strconv.ParseUint(s, 10, 64)
	}
	defer func() {
		if t.Failed() {
			t.Logf("replay with SEED=%d go test ./scheduler/plugins -run %s", seed, t.Name())
		}
	}()
	r := rand.New(rand.NewPCG(seed, 1))
	f := newFixture(t)
	d := fakeDevices{}
	native, cpu, gpu := map[string]int64{}, map[string]int64{}, map[string]int64{}
	for i := range 12 {
		name := fmt.Sprint("n", i)
		if r.IntN(3) == 0 {
			native[name] = 1 + r.Int64N(8)
			f.nodes.SetNode(testNode(name, gpus(fmt.Sprint(native[name]))))
		} else {
			d[name] = [2]int64{r.Int64N(9), 0}
			f.nodes.SetNode(testNode(name))
		}
	}
	profiles := map[string]*framework.Profile{}
	profiles["least"] = f.profile(f.withDevices(NodeResourcesFit, `{"scoringStrategy": {"type": "LeastAllocated", "resources": [{"name": "cpu"}, {"name": "example.com/gpu"}]}}`, d))
	profiles["balance"] = f.profile(f.withDevices(BalancedAllocation, `{"resources": [{"name": "cpu"}, {"name": "example.com/gpu"}]}`, d))
	serial := 0
	for range 300 {
		node := fmt.Sprint("n", r.IntN(12))
		switch r.IntN(3) {
		case 0: // a claim takes devices or gives them back
			d[node] = [2]int64{d[node][0], min(d[node][0], r.Int64N(9))}
		case 1: // a driver publishes others
			if native[node] == 0 {
				d[node] = [2]int64{r.Int64N(9), 0}
			}
		default:
			serial++
			n, g := 1+r.Int64N(2), r.Int64N(2)
			if cpu[node]+n <= 3 && gpu[node]+g <= native[node] {
				f.on(node, f.pod(fmt.Sprint("p", serial), asks(res("cpu", fmt.Sprint(n), "example.com/gpu", fmt.Sprint(g)))))
				cpu[node], gpu[node] = cpu[node]+n, gpu[node]+g
			}
		}
		want := 1 + r.Int64N(3)
		for kind, profile := range profiles {
			got, why, err := profile.Scores(profile.Begin(f.pod("asks", asks(res("cpu", "1", "example.com/gpu", fmt.Sprint(want))))))
			if err != nil {
				t.Fatal(err)
			}
			if why != nil {
				continue // nothing fits
			}
			for name, score := range got {
				all, used := native[name], gpu[name]
				if all == 0 {
					all, used = d[name][0], d[name][1]
				}
				if model := plainScore(kind, cpu[name], used, all, want); score != model {
					t.Fatalf("%s on node %s (%d of 4 CPUs, %d of %d GPUs used, %d wanted): score %d, want %d", kind, name, cpu[name], used, all, want, score, model)
				}
			}
		}
	}
}

// plainScore is the score of a node with 4 CPUs for a pod that wants one and GPUs.
func plainScore(kind string, cpu, used, all, want int64) int64 {
	free := func(used, all int64) int64 { return 100 * max(all-used, 0) / all }
	part := func(used, all int64) float64 { return math.Min(float64(used)/float64(all), 1) }
	if kind == "least" {
		if all == 0 {
			return free(cpu+1, 4)
		}
		return (free(cpu+1, 4) + free(used+want, all)) / 2
	}
	if all == 0 {
		return 75
	}
	even := func(a, b float64) int64 { return int64((1 - math.Abs(a-b)/2) * 100) }
	return 50 + (50+even(part(cpu+1, 4), part(used+want, all))-even(part(cpu, 4), part(used, all)))/2
}
