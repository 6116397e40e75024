package nodeexpr_test

import (
	"strings"
	"testing"

	"github.com/yare-project/yare/internal/nodeexpr"
)

func input() *nodeexpr.Input {
	pod := &nodeexpr.Pod{Namespace: "shop", Labels: map[string]string{"app": "web"}, Annotations: map[string]string{"max-price": "0.5"}, Priority: 7,
		Requests: map[string]float64{"cpu": 0.5, "memory": 1 << 30}, Images: []string{"web:1"}}
	node := &nodeexpr.Node{Name: "a", Labels: map[string]string{"zone": "z1", "topology.kubernetes.io/zone": "z1"}, Conditions: map[string]string{"Ready": "True"},
		Allocatable: map[string]float64{"cpu": 4, "memory": 8 << 30}, Requested: map[string]float64{"cpu": 1}}
	return &nodeexpr.Input{Pod: pod.Value, Node: node.Value, Metrics: func() map[string]float64 { return map[string]float64{"price": 0.25, "gpu-use": 40} }}
}

func TestFilters(t *testing.T) {
	for text, want := range map[string]string{
		`true`:                     "true",
		`node.labels.zone == "z1"`: "true",
		`node.labels["topology.kubernetes.io/zone"].startsWith("z")`: "true",
		`"gpu" in node.labels`:                                                               "false",
		`has(node.labels.gpu) && node.labels.gpu == "a100"`:                                  "false",
		`node.labels.?gpu.orValue("none") == "none"`:                                         "true",
		`metrics.price < 1`:                                                                  "true",
		`metrics["gpu-use"] <= 50`:                                                           "true",
		`metrics.latency < 10.0`:                                                             "no such key: latency",
		`metrics[?"latency"].orValue(1000.0) < 10.0`:                                         "false",
		`metrics.price < double(pod.annotations["max-price"])`:                               "true",
		`node.allocatable.cpu - node.requested.cpu >= pod.requests.cpu * 2.0`:                "true",
		`node.conditions.Ready == "True" && !node.unschedulable`:                             "true",
		`node.labels.exists(k, k.startsWith("topology."))`:                                   "true",
		`pod.priority > 5 && pod.namespace == "shop" && pod.images.all(i, i.endsWith(":1"))`: "true",
		`quantity("1Gi").isGreaterThan(quantity("1Mi"))`:                                     "true",
		`pod.labels.app.matches("^we[a-z]$")`:                                                "true",
	} {
		c, err := nodeexpr.NewCompiler(false)
		if err != nil {
			t.Fatal(err)
		}
		e, err := c.Compile(text, nodeexpr.Bool)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		got, err := e.Bool(input())
		answer := map[bool]string{true: "true", false: "false"}[got]
		if err != nil {
			answer = err.Error()
		}
		if !strings.Contains(answer, want) {
			t.Errorf("%s gives %s, want %s", text, answer, want)
		}
	}
}

func TestNumbers(t *testing.T) {
	for text, want := range map[string]float64{
		`metrics.price`: 0.25, `3`: 3, `100.0 - metrics.price * 100.0`: 75, `node.labels.size()`: 2, `pod.priority`: 7, `node.requested.cpu / node.allocatable.cpu`: 0.25,
	} {
		e, err := compile(t, text, nodeexpr.Number)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got, err := e.Number(input()); err != nil || got != want {
			t.Errorf("%s gives %v (%v), want %v", text, got, err, want)
		}
	}
	e, err := compile(t, `1.0 / (metrics.price - 0.25)`, nodeexpr.Number)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := e.Number(input()); err == nil {
		t.Errorf("a division by zero gives %v", got)
	}
}

func compile(t *testing.T, text string, want nodeexpr.Want) (*nodeexpr.Expression, error) {
	t.Helper()
	c, err := nodeexpr.NewCompiler(false)
	if err != nil {
		t.Fatal(err)
	}
	return c.Compile(text, want)
}

func TestRefusals(t *testing.T) {
	for text, want := range map[string]string{
		``:                        "must not be empty",
		`node.lables.zone == "a"`: `ERROR: <input>:1:5: undefined field 'lables'`,
		`nodes.labels`:            "<input>:1:1: undeclared reference to 'nodes'",
		`metrics.price * 100`:     "found no matching overload for '_*_' applied to '(double, int)'",
		`node.labels.zone`:        "must give a bool, not string",
		`metrics.price <`:         "<input>:1:16: Syntax error",
		`variables.x == 1`:        "undeclared reference to 'variables'",
		`node.annotations.all(a, node.annotations.all(b, node.annotations[a] != node.annotations[b]))`: "the limit is 10000",
	} {
		if _, err := compile(t, text, nodeexpr.Bool); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is refused with %v, want %q", text, err, want)
		}
	}
}

func TestWhatIsRead(t *testing.T) {
	for text, want := range map[string][2]bool{
		`node.labels.zone == "a"`:         {false, false},
		`node.requested.cpu < 1`:          {true, false},
		`metrics.cpu < 1`:                 {false, true},
		`[node].all(n, n.name != "")`:     {true, false}, // the whole node is passed on
		`pod.requests.cpu < metrics.free`: {false, true},
	} {
		e, err := compile(t, text, nodeexpr.Bool)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := [2]bool{e.Requested, e.Metrics}; got != want {
			t.Errorf("%s reads (requested, metrics) %v, want %v", text, got, want)
		}
	}
}

func TestVariables(t *testing.T) {
	c, err := nodeexpr.NewCompiler(false)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range [][2]string{{"free", `node.allocatable.cpu - node.requested.cpu`}, {"tight", `variables.free < metrics.reserve`}} {
		if _, err := c.Variable(v[0], v[1]); err != nil {
			t.Fatalf("%s: %v", v[0], err)
		}
	}
	e, err := c.Compile(`variables.tight || variables.free > 1.0`, nodeexpr.Bool)
	if err != nil {
		t.Fatal(err)
	}
	if !e.Requested || !e.Metrics {
		t.Error("what variables read is not known of their user")
	}
	if got, err := e.Bool(input()); err != nil || !got { // the failing side of || does not matter
		t.Errorf("gives %v, %v", got, err)
	}
	e, err = c.Compile(`variables.tight`, nodeexpr.Bool)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Bool(input()); err == nil || !strings.Contains(err.Error(), "variable tight: no such key: reserve") {
		t.Errorf("a failing variable gives %v", err)
	}
	if _, err := c.Compile(`variables.free`, nodeexpr.Bool); err == nil || !strings.Contains(err.Error(), "must give a bool, not double") {
		t.Errorf("a variable's type is not known: %v", err)
	}
}

// The limit holds while an expression runs, for inputs larger than the estimate takes them to be.
func TestRunningCostIsLimited(t *testing.T) {
	e, err := compile(t, `node.labels.all(k, k.contains("x") || node.labels[k] != "y")`, nodeexpr.Bool)
	if err != nil {
		t.Fatal(err)
	}
	in := input()
	large := map[string]string{}
	for i := range 5000 {
		large[strings.Repeat("k", i%50)+string(rune('0'+i%10))+string(rune(0x4e00+i))] = "v"
	}
	in.Node = (&nodeexpr.Node{Name: "a", Labels: large}).Value
	if _, err := e.Bool(in); err == nil || !strings.Contains(err.Error(), "cost limit exceeded") {
		t.Errorf("gives %v, want the cost limit", err)
	}
}

func BenchmarkFilter(b *testing.B) {
	c, err := nodeexpr.NewCompiler(false)
	if err != nil {
		b.Fatal(err)
	}
	e, err := c.Compile(`node.labels.zone == "z1" && metrics.price < 0.5`, nodeexpr.Bool)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if ok, err := e.Bool(input()); err != nil || !ok {
			b.Fatal(ok, err)
		}
	}
}
