package scheduler_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/client/fake"
	apiref "github.com/yare-project/yare/internal/resource"
	"github.com/yare-project/yare/scheduler"
	"github.com/yare-project/yare/scheduler/framework"
)

// cluster is a fake API server with a running scheduler.
type cluster struct {
	t      *testing.T
	server *fake.Transport
	clock  *clocktesting.FakeClock

	scheduler *scheduler.Scheduler

	mu     sync.Mutex
	events []string
}

type option func(*scheduler.Config)

func start(t *testing.T, opts ...option) *cluster {
	t.Helper()
	c := &cluster{t: t, clock: clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))}
	c.server = fake.New(c.clock)
	c.run(opts...)
	return c
}

func (c *cluster) run(opts ...option) {
	t := c.t
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	caches := client.NewCaches(client.CachesConfig{Transport: c.server, Clock: clock.RealClock{}, Log: log})
	config := scheduler.Config{Transport: c.server, Caches: caches, Clock: c.clock, Log: log, Rand: rand.New(rand.NewPCG(1, 2)), Events: c.event}
	for _, o := range opts {
		o(&config)
	}
	s, err := scheduler.New(config)
	if err != nil {
		t.Fatal(err)
	}
	c.scheduler = s
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() { caches.Run(ctx) })
	done.Go(func() {
		if err := s.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); done.Wait() })
}

func (c *cluster) event(about client.Object, kind, reason, message string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.events = append(c.events, fmt.Sprintf("%s %s %s: %s", about.GetName(), kind, reason, message))
}

func (c *cluster) hasEvent(want string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.events {
		if strings.Contains(e, want) {
			return true
		}
	}
	return false
}

// wait is the bounded wait for a state of the server.
func (c *cluster) wait(what string, cond func() bool) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if c.server.Wait(ctx, cond) != nil && !cond() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.t.Fatalf("%s: not within 10 s; events:\n%s\nrequests: %v", what, strings.Join(c.events, "\n"), c.server.Actions(false))
	}
}

// poll is the bounded wait for what is not on the server; each step lets the fake clock run.
func (c *cluster) poll(what string, step time.Duration, cond func() bool) {
	c.t.Helper()
	limit := time.After(10 * time.Second)
	for !cond() {
		select {
		case <-limit:
			c.t.Fatalf("%s: not within 10 s; events: %v", what, c.events)
		case <-time.After(2 * time.Millisecond):
			c.clock.Step(step)
		}
	}
}

func (c *cluster) pod(name string) *corev1.Pod {
	p, err := client.Of[*corev1.Pod](c.server).Get(context.Background(), "default", name)
	if err != nil {
		return nil
	}
	return p
}

func (c *cluster) nodeOf(name string) string {
	if p := c.pod(name); p != nil {
		return p.Spec.NodeName
	}
	return ""
}

func (c *cluster) condition(name string) corev1.PodCondition {
	if p := c.pod(name); p != nil {
		for _, x := range p.Status.Conditions {
			if x.Type == corev1.PodScheduled {
				return x
			}
		}
	}
	return corev1.PodCondition{}
}

func node(name, cpu string, change ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"kubernetes.io/hostname": name}}}
	n.Status.Allocatable = corev1.ResourceList{"cpu": resource.MustParse(cpu), "memory": resource.MustParse("8Gi"), "pods": resource.MustParse("110")}
	for _, f := range change {
		f(n)
	}
	return n
}

func pod(name, cpu string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	p.Spec.SchedulerName = "default-scheduler"
	p.Spec.Containers = []corev1.Container{{Name: "c", Image: "web", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse(cpu)}}}}
	for _, f := range change {
		f(p)
	}
	return p
}

func priority(v int32) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Spec.Priority = &v } }

func TestPodGetsANode(t *testing.T) {
	c := start(t)
	c.server.MustCreate(node("a", "1"))
	c.server.MustCreate(pod("web", "500m"))
	c.wait("pod is bound", func() bool { return c.nodeOf("web") == "a" })
	c.poll("event", 0, func() bool { return c.hasEvent("web Normal Scheduled: Successfully assigned default/web to a") })
}

func TestOtherSchedulersPodsAreLeftAlone(t *testing.T) {
	c := start(t)
	c.server.MustCreate(node("a", "1"))
	c.server.MustCreate(pod("theirs", "100m", func(p *corev1.Pod) { p.Spec.SchedulerName = "other" }))
	c.server.MustCreate(pod("ours", "100m"))
	c.wait("our pod is bound", func() bool { return c.nodeOf("ours") == "a" })
	if got := c.nodeOf("theirs"); got != "" {
		t.Errorf("a pod of another scheduler was bound to %q", got)
	}
}

func TestPodThatFitsNowhereSaysWhyAndGoesWhenANodeComes(t *testing.T) {
	c := start(t)
	c.server.MustCreate(node("small", "1"))
	c.server.MustCreate(node("off", "8", func(n *corev1.Node) { n.Spec.Unschedulable = true }))
	c.server.MustCreate(node("tainted", "8", func(n *corev1.Node) {
		n.Spec.Taints = []corev1.Taint{{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}}
	}))
	c.server.MustCreate(pod("big", "2"))
	const want = "0/3 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint(s), 1 node(s) were unschedulable."
	c.wait("condition", func() bool { return strings.HasPrefix(c.condition("big").Message, want) })
	if got := c.condition("big"); got.Status != corev1.ConditionFalse || got.Reason != corev1.PodReasonUnschedulable {
		t.Errorf("condition is %s/%s, want False/Unschedulable", got.Status, got.Reason)
	}
	if !c.hasEvent("big Warning FailedScheduling: " + want) {
		t.Errorf("no FailedScheduling event with %q in %v", want, c.events)
	}
	c.server.MustCreate(node("large", "4"))
	c.wait("pod is bound", func() bool { return c.nodeOf("big") == "large" })
}

func TestNoNodes(t *testing.T) {
	c := start(t)
	c.server.MustCreate(pod("early", "1"))
	c.wait("condition", func() bool { return c.condition("early").Message == "no nodes available to schedule pods" })
	c.server.MustCreate(node("a", "4"))
	c.wait("pod is bound", func() bool { return c.nodeOf("early") == "a" })
}

func TestGatedPodWaitsForItsGates(t *testing.T) {
	c := start(t)
	c.server.MustCreate(node("a", "4"))
	c.server.MustCreate(pod("gated", "1", func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "quota"}} }))
	c.server.MustCreate(pod("free", "1"))
	c.wait("ungated pod is bound", func() bool { return c.nodeOf("free") == "a" })
	if got := c.nodeOf("gated"); got != "" {
		t.Fatalf("a gated pod was bound to %q", got)
	}
	p := c.pod("gated").DeepCopy()
	p.Spec.SchedulingGates = nil
	if _, err := client.Of[*corev1.Pod](c.server).Update(context.Background(), p); err != nil {
		t.Fatal(err)
	}
	c.wait("pod is bound", func() bool { return c.nodeOf("gated") == "a" })
}

func TestHigherPriorityFirst(t *testing.T) {
	c := &cluster{t: t, clock: clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))}
	c.server = fake.New(c.clock, node("a", "1"), pod("low", "1", priority(1)), pod("high", "1", priority(10)))
	c.run()
	c.wait("the important pod is bound", func() bool { return c.nodeOf("high") == "a" })
	c.wait("the other is not", func() bool { return c.condition("low").Reason == corev1.PodReasonUnschedulable })
}

func TestPodRemovalMakesRoom(t *testing.T) {
	c := start(t)
	c.server.MustCreate(node("a", "1"))
	c.server.MustCreate(pod("first", "1"))
	c.wait("first is bound", func() bool { return c.nodeOf("first") == "a" })
	c.server.MustCreate(pod("second", "1"))
	c.wait("second waits", func() bool { return c.condition("second").Reason == corev1.PodReasonUnschedulable })
	zero := int64(0)
	if err := client.Of[*corev1.Pod](c.server).Delete(context.Background(), "default", "first", metav1.DeleteOptions{GracePeriodSeconds: &zero}); err != nil {
		t.Fatal(err)
	}
	c.wait("second is bound", func() bool { return c.nodeOf("second") == "a" })
}

func TestFinishedPodsMakeRoom(t *testing.T) {
	c := start(t)
	c.server.MustCreate(node("a", "1"))
	c.server.MustCreate(pod("done", "1", func(p *corev1.Pod) { p.Spec.NodeName, p.Status.Phase = "a", corev1.PodSucceeded }))
	c.server.MustCreate(pod("next", "1"))
	c.wait("pod is bound", func() bool { return c.nodeOf("next") == "a" })
}

func TestFailedBindingIsRetriedAfterBackoff(t *testing.T) {
	c := start(t)
	c.server.MustCreate(node("a", "1"))
	c.server.FailWith(func(verb string, ref apiref.Ref, _ runtime.Object) error {
		if ref.Subresource == "binding" {
			return errors.New("the disk is on fire")
		}
		return nil
	})
	c.server.MustCreate(pod("web", "1"))
	c.wait("condition", func() bool { return c.condition("web").Reason == corev1.PodReasonSchedulerError })
	if got := c.condition("web").Message; !strings.Contains(got, "the disk is on fire") {
		t.Errorf("condition says %q, not the cause", got)
	}
	c.server.FailWith(nil)
	if c.nodeOf("web") != "" {
		t.Error("the pod was bound before its back-off ended")
	}
	c.poll("pod is bound", 100*time.Millisecond, func() bool { return c.nodeOf("web") == "a" })
}

func TestNoNodeIsOvercommitted(t *testing.T) {
	c := start(t)
	for i := range 4 {
		c.server.MustCreate(node(fmt.Sprintf("n%d", i), "1"))
	}
	for i := range 30 {
		c.server.MustCreate(pod(fmt.Sprintf("p%02d", i), "150m"))
	}
	used := map[string]int{}
	c.wait("24 pods are bound and 6 are not", func() bool {
		clear(used)
		waiting, bound := 0, 0
		for i := range 30 {
			name := fmt.Sprintf("p%02d", i)
			if n := c.nodeOf(name); n != "" {
				used[n]++
				bound++
			} else if c.condition(name).Reason == corev1.PodReasonUnschedulable {
				waiting++
			}
		}
		return waiting == 6 && bound == 24
	})
	for n, count := range used {
		if count != 6 {
			t.Errorf("node %s has %d pods of 150m on 1 CPU, want 6", n, count)
		}
	}
}

// evenNodes is a user's plugin: nodes whose name ends in an even digit.
type evenNodes struct{}

func (evenNodes) Name() string                 { return "EvenNodes" }
func (evenNodes) FilterScope() framework.Scope { return framework.OnNode }
func (evenNodes) Filter(c *framework.Cycle, i int) *framework.Status {
	if name := c.Nodes.Name[i]; (name[len(name)-1]-'0')%2 != 0 {
		return framework.Refuse(framework.Unresolvable, "EvenNodes", "node(s) were odd")
	}
	return nil
}

func TestUserPluginAndProfiles(t *testing.T) {
	profiles, err := scheduler.ParseConfig([]byte(`
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
- schedulerName: even
  plugins: {multiPoint: {enabled: [{name: EvenNodes}]}}
`))
	if err != nil {
		t.Fatal(err)
	}
	c := start(t, func(s *scheduler.Config) {
		s.Profiles = profiles
		s.Plugins = map[string]framework.Factory{"EvenNodes": func([]byte, *framework.Handle) (framework.Plugin, error) { return evenNodes{}, nil }}
	})
	c.server.MustCreate(node("n1", "4"))
	c.server.MustCreate(pod("any", "1"))
	c.server.MustCreate(pod("even", "1", func(p *corev1.Pod) { p.Spec.SchedulerName = "even" }))
	c.wait("the pod without the plugin is bound", func() bool { return c.nodeOf("any") == "n1" })
	c.wait("the other says why not", func() bool {
		return strings.HasPrefix(c.condition("even").Message, "0/1 nodes are available: 1 node(s) were odd.")
	})
	c.server.MustCreate(node("n2", "4"))
	c.wait("it is bound", func() bool { return c.nodeOf("even") == "n2" })
}

func TestImportantPodTakesThePlaceOfAnother(t *testing.T) {
	c := start(t)
	c.server.MustCreate(node("a", "1"))
	c.server.MustCreate(pod("low", "600m", priority(1)))
	c.wait("low is bound", func() bool { return c.nodeOf("low") == "a" })
	c.server.MustCreate(pod("tiny", "300m", priority(0)))
	c.wait("tiny is bound", func() bool { return c.nodeOf("tiny") == "a" })
	c.server.MustCreate(pod("high", "700m", priority(100)))
	c.wait("high waits for its node", func() bool { p := c.pod("high"); return p != nil && p.Status.NominatedNodeName == "a" })
	c.wait("low is told to leave", func() bool { p := c.pod("low"); return p != nil && p.DeletionTimestamp != nil })
	if p := c.pod("tiny"); p.DeletionTimestamp != nil {
		t.Error("tiny was preempted though high fits beside it")
	}
	disrupted := false
	for _, x := range c.pod("low").Status.Conditions {
		disrupted = disrupted || x.Type == corev1.DisruptionTarget && x.Reason == corev1.PodReasonPreemptionByScheduler
	}
	if !disrupted {
		t.Error("the victim has no condition DisruptionTarget")
	}
	c.poll("event", 0, func() bool { return c.hasEvent("low Normal Preempted: Preempted by pod") })
	c.server.MustCreate(pod("thief", "600m", priority(50))) // may not take the room that is being made
	zero := int64(0)
	if err := client.Of[*corev1.Pod](c.server).Delete(context.Background(), "default", "low", metav1.DeleteOptions{GracePeriodSeconds: &zero}); err != nil {
		t.Fatal(err)
	}
	c.wait("high is bound", func() bool { return c.nodeOf("high") == "a" })
	if c.nodeOf("thief") != "" {
		t.Error("a less important pod took the room")
	}
}

func TestNobodyToPreemptIsExplained(t *testing.T) {
	c := start(t)
	c.server.MustCreate(node("a", "1"))
	c.server.MustCreate(node("b", "8", func(n *corev1.Node) { n.Spec.Unschedulable = true }))
	c.server.MustCreate(pod("first", "1", priority(5)))
	c.wait("first is bound", func() bool { return c.nodeOf("first") == "a" })
	c.server.MustCreate(pod("equal", "1", priority(5)))
	const want = "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) were unschedulable. " +
		"preemption: 0/2 nodes are available: 1 No preemption victims found for incoming pod, 1 Preemption is not helpful for scheduling."
	const change = " smallest change: 1 more cpu on node a (0 free of 1); or uncordon node b; or a priority above 5 (it has 5), to preempt default/first on node a."
	c.wait("condition", func() bool { return c.condition("equal").Message == want+change })
}

func TestPreemptionSparesBudgets(t *testing.T) {
	c := start(t)
	c.server.MustCreate(&policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "db"},
		Spec: policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}}})
	on := func(node, app string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Spec.NodeName, p.Labels = node, map[string]string{"app": app} }
	}
	c.server.MustCreate(node("a", "1"))
	c.server.MustCreate(node("b", "1"))
	c.server.MustCreate(pod("db", "1", on("a", "db"), priority(1)))
	c.server.MustCreate(pod("web", "1", on("b", "web"), priority(9)))
	c.server.MustCreate(pod("high", "1", priority(100)))
	c.wait("web is told to leave", func() bool { p := c.pod("web"); return p != nil && p.DeletionTimestamp != nil })
	if p := c.pod("db"); p.DeletionTimestamp != nil {
		t.Error("a pod under a budget was preempted though another was not")
	}
}

func TestNeverPreempting(t *testing.T) {
	c := start(t)
	c.server.MustCreate(node("a", "1"))
	c.server.MustCreate(pod("low", "1"))
	c.wait("low is bound", func() bool { return c.nodeOf("low") == "a" })
	never := corev1.PreemptNever
	c.server.MustCreate(pod("polite", "1", priority(100), func(p *corev1.Pod) { p.Spec.PreemptionPolicy = &never }))
	c.wait("condition", func() bool {
		return c.condition("polite").Message == "0/1 nodes are available: 1 Insufficient cpu. preemption: not eligible due to preemptionPolicy=Never. "+
			"smallest change: 1 more cpu on node a (0 free of 1); or preemptionPolicy PreemptLowerPriority, to preempt default/low on node a."
	})
}

func TestAntiAffinitySpreadsReplicas(t *testing.T) {
	c := start(t)
	c.server.MustCreate(node("a", "8"))
	c.server.MustCreate(node("b", "8"))
	apart := func(p *corev1.Pod) {
		p.Labels = map[string]string{"app": "db"}
		p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{
			{TopologyKey: "kubernetes.io/hostname", LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}}}}}
	}
	for _, name := range []string{"x", "y", "z"} {
		c.server.MustCreate(pod(name, "100m", apart))
	}
	c.wait("two are bound, one waits", func() bool {
		nodes, waits := map[string]bool{}, 0
		for _, name := range []string{"x", "y", "z"} {
			if n := c.nodeOf(name); n != "" {
				nodes[n] = true
			} else if strings.HasPrefix(c.condition(name).Message, "0/2 nodes are available: 2 node(s) didn't match pod anti-affinity rules.") {
				waits++
			}
		}
		return len(nodes) == 2 && waits == 1
	})
}

func TestPodWaitsForItsFriend(t *testing.T) {
	c := start(t)
	c.server.MustCreate(node("a", "8"))
	c.server.MustCreate(node("b", "8"))
	c.server.MustCreate(pod("cache", "100m", func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{
			{TopologyKey: "kubernetes.io/hostname", LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}}}}}
	}))
	c.wait("it waits", func() bool {
		return strings.Contains(c.condition("cache").Message, "2 node(s) didn't match pod affinity rules")
	})
	c.server.MustCreate(pod("other", "100m"))
	c.wait("other is bound", func() bool { return c.nodeOf("other") != "" })
	c.server.MustCreate(pod("db", "100m", func(p *corev1.Pod) { p.Labels = map[string]string{"app": "db"} }))
	c.wait("both are on one node", func() bool { return c.nodeOf("cache") != "" && c.nodeOf("cache") == c.nodeOf("db") })
}
