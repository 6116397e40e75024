package scheduler_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yare-project/yare/api/scheduling/v1alpha1"
	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/scheduler"
	"github.com/yare-project/yare/scheduler/policy"
)

// gauge is a Source whose numbers a test sets.
type gauge struct {
	mu    sync.Mutex
	reads int
	load  map[string]float64
}

func (g *gauge) Name() string { return "gauge" }

func (g *gauge) Read(context.Context) (map[string]map[string]float64, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.reads++
	out := map[string]map[string]float64{}
	for node, x := range g.load {
		out[node] = map[string]float64{"load": x}
	}
	return out, nil
}

func (g *gauge) set(node string, x float64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.load[node] = x
}

func (g *gauge) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.reads
}

func schedulingPolicy(name, filter, score string) *v1alpha1.SchedulingPolicy {
	p := &v1alpha1.SchedulingPolicy{ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 1}}
	if filter != "" {
		p.Spec.Filters = []v1alpha1.PolicyFilter{{Expression: filter, Message: "not by " + name}}
	}
	if score != "" {
		p.Spec.Scores = []v1alpha1.PolicyScore{{Expression: score, Weight: 100}}
	}
	return p
}

func TestSchedulingPolicyFollowsASource(t *testing.T) {
	g := &gauge{load: map[string]float64{"a": 90, "b": 10}}
	c := start(t, func(c *scheduler.Config) { c.Sources = []policy.Source{g} })
	c.server.MustCreate(node("a", "4"))
	c.server.MustCreate(node("b", "4"))
	c.server.MustCreate(schedulingPolicy("free", "node.name != ''", ""))
	c.server.MustCreate(pod("any", "100m"))
	c.wait("a pod is placed", func() bool { return c.nodeOf("any") != "" })
	c.poll("time passes", 20*time.Second, func() bool { return true })
	if g.count() != 0 {
		t.Error("a source is read although no policy reads numbers")
	}
	c.server.MustCreate(schedulingPolicy("calm", "metrics.load < 50", ""))
	c.poll("the source is read", 0, func() bool { return g.count() > 0 })
	c.server.MustCreate(pod("first", "100m"))
	c.wait("the pod is on the calm node", func() bool { return c.nodeOf("first") == "b" })
	g.set("b", 80)
	before := g.count()
	c.poll("the source is read again", 5*time.Second, func() bool { return g.count() > before+1 }) // what the first read gave is known by then
	c.server.MustCreate(pod("second", "100m"))
	c.wait("it is told why not", func() bool {
		return strings.Contains(c.condition("second").Message, `2 node(s) refused by SchedulingPolicy "calm": not by calm`)
	})
	g.set("a", 20)
	c.poll("the number wakes it", 5*time.Second, func() bool { return c.nodeOf("second") == "a" })
}

func TestSchedulingPolicyThatCannotBeUnderstoodSaysSo(t *testing.T) {
	c := start(t)
	c.server.MustCreate(node("a", "4"))
	c.server.MustCreate(schedulingPolicy("broken", "node.flavour == 'vanilla'", ""))
	c.server.MustCreate(schedulingPolicy("whole", "node.name == 'a'", ""))
	status := func(name string) metav1.Condition {
		p, err := client.Of[*v1alpha1.SchedulingPolicy](c.server).Get(context.Background(), "", name)
		if err != nil || len(p.Status.Conditions) == 0 {
			return metav1.Condition{}
		}
		return p.Status.Conditions[0]
	}
	c.wait("the broken one says so", func() bool {
		s := status("broken")
		return s.Status == metav1.ConditionFalse && strings.Contains(s.Message, "undefined field 'flavour'")
	})
	c.wait("the other is active", func() bool { return status("whole").Status == metav1.ConditionTrue })
	c.server.MustCreate(pod("web", "100m"))
	c.wait("pods are placed all the same", func() bool { return c.nodeOf("web") == "a" })
}

func TestSchedulingPolicyCanBeSwitchedOff(t *testing.T) {
	profiles, err := scheduler.ParseConfig([]byte(`{"apiVersion":"kubescheduler.config.k8s.io/v1","kind":"KubeSchedulerConfiguration","profiles":[{"plugins":{"multiPoint":{"disabled":[{"name":"SchedulingPolicy"}]}}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	c := start(t, func(c *scheduler.Config) { c.Profiles = profiles })
	c.server.MustCreate(schedulingPolicy("none", "false", ""))
	c.server.MustCreate(node("a", "4", func(n *corev1.Node) { n.Labels["x"] = "y" }))
	c.server.MustCreate(pod("web", "100m"))
	c.wait("the pod is placed", func() bool { return c.nodeOf("web") == "a" })
}
