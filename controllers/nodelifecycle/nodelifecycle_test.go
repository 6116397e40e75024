package nodelifecycle_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	ct "github.com/yare-project/yare/controllers/controllertest"
	"github.com/yare-project/yare/controllers/nodelifecycle"
	"github.com/yare-project/yare/controllers/tainteviction"
)

func node(name string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
		{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.NewTime(ct.Start)},
		{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse}}}}
}

func lease(name string) *coordinationv1.Lease {
	at := metav1.NewMicroTime(ct.Start)
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-node-lease", Name: name}, Spec: coordinationv1.LeaseSpec{RenewTime: &at}}
}

type cluster struct {
	*ct.Stage
	alive map[string]*coordinationv1.Lease
}

func play(t *testing.T, nodes ...string) *cluster {
	c := &cluster{Stage: ct.New(t, nodelifecycle.Descriptor(nodelifecycle.Config{}), tainteviction.Descriptor()), alive: map[string]*coordinationv1.Lease{}}
	c.Go()
	for _, n := range nodes {
		c.Put(node(n))
		c.alive[n] = c.Put(lease(n)).(*coordinationv1.Lease)
	}
	c.Settled()
	return c
}

// pass lets time go by, while the living nodes renew their leases every 10 s.
func (c *cluster) pass(d time.Duration) {
	for ; d > 0; d -= 10 * time.Second {
		c.Clock.Step(min(d, 10*time.Second))
		for _, l := range c.alive {
			ct.Change(c.Stage, l, func(l *coordinationv1.Lease) {
				at := metav1.NewMicroTime(c.Clock.Now())
				l.Spec.RenewTime = &at
			})
		}
		c.Settled()
	}
}

func (c *cluster) node(name string) *corev1.Node {
	for _, n := range ct.AllIn[*corev1.Node](c.Stage, "") {
		if n.Name == name {
			return n
		}
	}
	c.Fatalf("no node %s", name)
	return nil
}

// state is a node's Ready status and taints.
func (c *cluster) state(name string) []string {
	n := c.node(name)
	out := []string{}
	for _, cond := range n.Status.Conditions {
		if cond.Type == corev1.NodeReady {
			out = append(out, "Ready="+string(cond.Status))
		}
	}
	for _, t := range n.Spec.Taints {
		out = append(out, t.Key+":"+string(t.Effect))
	}
	slices.Sort(out)
	return out
}

func (c *cluster) expect(what, name string, want ...string) {
	c.Helper()
	slices.Sort(want)
	ct.UntilEqual(c.Stage, what, want, func() []string { return c.state(name) })
}

func pod(name, node string, tolerations ...corev1.Toleration) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ct.Namespace, Name: name}, Spec: corev1.PodSpec{NodeName: node, Tolerations: tolerations},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}}
}

func (c *cluster) leaving() []string {
	out := []string{}
	for _, p := range ct.All[*corev1.Pod](c.Stage) {
		if p.DeletionTimestamp != nil {
			out = append(out, p.Name)
		}
	}
	slices.Sort(out)
	return out
}

func TestSilentNodeLosesItsPodsInTime(t *testing.T) {
	c := play(t, "a", "b")
	five := int64(300)
	c.Put(pod("patient", "a", corev1.Toleration{Key: "node.kubernetes.io/unreachable", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &five}))
	c.Put(pod("eternal", "a", corev1.Toleration{Operator: corev1.TolerationOpExists}))
	c.Put(pod("impatient", "a"), pod("elsewhere", "b"))
	delete(c.alive, "a")
	c.pass(40 * time.Second)
	c.expect("within the grace period", "a", "Ready=True")
	c.pass(20 * time.Second)
	c.expect("unreachable", "a", "Ready=Unknown", "node.kubernetes.io/unreachable:NoSchedule", "node.kubernetes.io/unreachable:NoExecute")
	c.expect("the other is fine", "b", "Ready=True")
	c.Settled()
	ct.UntilEqual(c.Stage, "evicted at once", []string{"impatient"}, c.leaving)
	for _, p := range ct.All[*corev1.Pod](c.Stage) {
		reasons := map[corev1.PodConditionType]string{}
		for _, cond := range p.Status.Conditions {
			reasons[cond.Type] = string(cond.Status) + " " + cond.Reason
		}
		if p.Spec.NodeName == "a" && reasons[corev1.PodReady] != "False " {
			t.Errorf("pod %s on the silent node is still ready", p.Name)
		}
		if p.Name == "impatient" && reasons[corev1.DisruptionTarget] != "True DeletionByTaintManager" {
			t.Errorf("conditions of the evicted pod: %v", reasons)
		}
	}
	c.pass(280 * time.Second)
	ct.UntilEqual(c.Stage, "not yet five minutes", []string{"impatient"}, c.leaving)
	c.pass(40 * time.Second)
	ct.UntilEqual(c.Stage, "after tolerationSeconds", []string{"impatient", "patient"}, c.leaving)
}

func TestNodeThatComesBackKeepsItsPods(t *testing.T) {
	c := play(t, "a", "b")
	five := int64(300)
	c.Put(pod("patient", "a", corev1.Toleration{Operator: corev1.TolerationOpExists, TolerationSeconds: &five}))
	l := c.alive["a"]
	delete(c.alive, "a")
	c.pass(2 * time.Minute)
	c.expect("unreachable", "a", "Ready=Unknown", "node.kubernetes.io/unreachable:NoSchedule", "node.kubernetes.io/unreachable:NoExecute")
	c.alive["a"] = l
	ct.Change(c.Stage, c.node("a"), func(n *corev1.Node) {
		n.Status.Conditions[0].Status, n.Status.Conditions[0].LastHeartbeatTime = corev1.ConditionTrue, metav1.NewTime(c.Clock.Now())
	})
	c.expect("back", "a", "Ready=True")
	c.pass(6 * time.Minute)
	ct.UntilEqual(c.Stage, "nothing was evicted", []string{}, c.leaving)
}

func TestConditionsAndCordonBecomeTaints(t *testing.T) {
	c := play(t, "a", "b")
	ct.Change(c.Stage, c.node("a"), func(n *corev1.Node) {
		n.Spec.Taints = []corev1.Taint{{Key: "mine", Effect: corev1.TaintEffectNoSchedule}}
		n.Spec.Unschedulable = true
		n.Status.Conditions[1].Status = corev1.ConditionTrue
	})
	c.expect("tainted", "a", "Ready=True", "mine:NoSchedule", "node.kubernetes.io/memory-pressure:NoSchedule", "node.kubernetes.io/unschedulable:NoSchedule")
	ct.Change(c.Stage, c.node("a"), func(n *corev1.Node) { n.Spec.Unschedulable = false })
	c.expect("uncordoned", "a", "Ready=True", "mine:NoSchedule", "node.kubernetes.io/memory-pressure:NoSchedule")
}

func TestNoEvictionWhenEveryNodeIsSilent(t *testing.T) {
	c := play(t, "a")
	c.Put(pod("p", "a"))
	delete(c.alive, "a")
	c.pass(10 * time.Minute)
	c.expect("no NoExecute taint", "a", "Ready=Unknown", "node.kubernetes.io/unreachable:NoSchedule")
	ct.UntilEqual(c.Stage, "nothing was evicted", []string{}, c.leaving)
}

func TestNodesThatFallSilentTogetherAreNotEvicted(t *testing.T) {
	c := play(t, "a", "b", "c")
	for _, n := range []string{"a", "b", "c"} {
		c.Put(pod("on-"+n, n))
		c.pass(3 * time.Second)
		delete(c.alive, n)
	}
	c.pass(5 * time.Minute)
	ct.UntilEqual(c.Stage, "nothing was evicted", []string{}, c.leaving)
}

func TestEvictionIsRateLimited(t *testing.T) {
	names := []string{}
	for i := range 10 {
		names = append(names, fmt.Sprintf("n%d", i))
	}
	c := play(t, names...)
	for _, n := range names[:4] { // 40 %: not a partial disruption
		delete(c.alive, n)
	}
	tainted := func() (n int) {
		for _, name := range names {
			if slices.Contains(c.state(name), "node.kubernetes.io/unreachable:NoExecute") {
				n++
			}
		}
		return n
	}
	c.pass(60 * time.Second)
	if n := tainted(); n > 2 {
		t.Errorf("%d nodes were tainted within ten seconds, want one in ten seconds", n)
	}
	c.pass(60 * time.Second)
	ct.UntilEqual(c.Stage, "all in the end", 4, tainted)
}
