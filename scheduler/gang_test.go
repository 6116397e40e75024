package scheduler_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1alpha2 "k8s.io/api/scheduling/v1alpha2"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/client"
)

func gang(name string, least int32, topology ...string) *schedulingv1alpha2.PodGroup {
	g := &schedulingv1alpha2.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	g.Spec.SchedulingPolicy.Gang = &schedulingv1alpha2.GangSchedulingPolicy{MinCount: least}
	if least == 0 {
		g.Spec.SchedulingPolicy = schedulingv1alpha2.PodGroupSchedulingPolicy{Basic: &schedulingv1alpha2.BasicSchedulingPolicy{}}
	}
	for _, key := range topology {
		g.Spec.SchedulingConstraints = &schedulingv1alpha2.PodGroupSchedulingConstraints{Topology: []schedulingv1alpha2.TopologyConstraint{{Key: key}}}
	}
	return g
}

func in(group string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: &group} }
}

// members makes n pods of a group, each of one processor.
func (c *cluster) members(group string, n int, change ...func(*corev1.Pod)) (names []string) {
	for i := range n {
		name := fmt.Sprintf("%s-%d", group, i)
		c.server.MustCreate(pod(name, "1", append(change, in(group))...))
		names = append(names, name)
	}
	return names
}

func (c *cluster) bound(names []string) (n int) {
	for _, name := range names {
		if c.nodeOf(name) != "" {
			n++
		}
	}
	return n
}

func (c *cluster) scheduled(group string) metav1.Condition {
	g, err := client.Of[*schedulingv1alpha2.PodGroup](c.server).Get(context.Background(), "default", group)
	if err != nil {
		c.t.Fatal(err)
	}
	if found := meta.FindStatusCondition(g.Status.Conditions, schedulingv1alpha2.PodGroupScheduled); found != nil {
		return *found
	}
	return metav1.Condition{}
}

// lingering has a pod stay, being deleted, until it is let go.
func lingering(p *corev1.Pod) { p.Finalizers = []string{"example.com/stay"} }

func (c *cluster) letGo(name string) {
	c.t.Helper()
	pods, zero := client.Of[*corev1.Pod](c.server), int64(0)
	p := c.pod(name).DeepCopy()
	p.Finalizers = nil
	if _, err := pods.Update(context.Background(), p); err != nil {
		c.t.Fatal(err)
	}
	_ = pods.Delete(context.Background(), "default", name, metav1.DeleteOptions{GracePeriodSeconds: &zero}) // it may be gone
}

func TestGangGoesWholeOrNotAtAll(t *testing.T) {
	c := start(t)
	c.server.MustCreate(node("a", "2"))
	c.server.MustCreate(node("b", "1"))
	c.server.MustCreate(gang("g", 4))
	pods := c.members("g", 4)
	c.wait("the gang is told why", func() bool { return c.scheduled("g").Message != "" })
	want := `pod group "g": 3 of its pods find a place, and 4 must at once: 0/2 nodes are available: 2 Insufficient cpu.`
	if got := c.scheduled("g"); got.Status != metav1.ConditionFalse || got.Reason != "Unschedulable" || !strings.HasPrefix(got.Message, want) {
		t.Errorf("the group's condition is %s %s %q, want False Unschedulable %q", got.Status, got.Reason, got.Message, want)
	}
	for _, name := range pods {
		c.wait(name+" is told why", func() bool { return strings.HasPrefix(c.condition(name).Message, want) })
	}
	c.server.MustCreate(pod("single", "3")) // does not fit either: nobody's place is held
	c.server.MustCreate(pod("small", "3", func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Requests["cpu"] = *p.Spec.Containers[0].Resources.Requests.Cpu()
	}))
	c.server.MustCreate(pod("other", "1"))
	c.wait("a pod beside the gang goes", func() bool { return c.nodeOf("other") != "" })
	if n := c.bound(pods); n > 0 {
		t.Fatalf("%d pods of a gang that does not fit were bound", n)
	}
	c.server.MustCreate(node("c", "2"))
	c.wait("all are bound", func() bool { return c.bound(pods) == 4 })
	c.wait("the group says so", func() bool { return c.scheduled("g").Status == metav1.ConditionTrue })
}

func TestGangWaitsForItsPodsAndItsGroup(t *testing.T) {
	c := start(t)
	c.server.MustCreate(node("a", "8"))
	pods := c.members("g", 2)
	c.poll("the lack of the group is told", 100*time.Millisecond, func() bool { return c.condition("g-1").Message == `its pod group "g" does not exist` })
	c.server.MustCreate(gang("g", 3))
	c.poll("the lack of pods is told", 100*time.Millisecond, func() bool {
		return c.condition("g-1").Message == `its pod group "g" needs 3 pods, and there are fewer`
	})
	c.server.MustCreate(pod("free", "1"))
	c.wait("others go", func() bool { return c.nodeOf("free") != "" })
	if n := c.bound(pods); n > 0 {
		t.Fatalf("%d pods of an incomplete gang were bound", n)
	}
	c.server.MustCreate(pod("g-2", "1", in("g")))
	c.wait("all are bound", func() bool { return c.bound(append(pods, "g-2")) == 3 })
	c.server.MustCreate(pod("g-3", "1", in("g")))
	c.wait("one more is bound like any pod", func() bool { return c.nodeOf("g-3") != "" })
}

// Two gangs that each need all there is never hold half of it.
func TestGangsDoNotBlockEachOther(t *testing.T) {
	c := start(t)
	for i := range 4 {
		c.server.MustCreate(node(fmt.Sprint("n", i), "1"))
	}
	c.server.MustCreate(gang("x", 4))
	c.server.MustCreate(gang("y", 4))
	var x, y []string
	for i := range 4 { // in turns
		for _, g := range []string{"x", "y"} {
			c.server.MustCreate(pod(fmt.Sprintf("%s-%d", g, i), "1", in(g)))
		}
		x, y = append(x, fmt.Sprint("x-", i)), append(y, fmt.Sprint("y-", i))
	}
	c.wait("one gang is bound", func() bool { return c.bound(x)+c.bound(y) == 4 })
	c.wait("the other is told why", func() bool {
		return c.scheduled("x").Status == metav1.ConditionFalse || c.scheduled("y").Status == metav1.ConditionFalse
	})
	if c.bound(x) != 0 && c.bound(y) != 0 {
		t.Fatalf("%d and %d pods are bound", c.bound(x), c.bound(y))
	}
}

func TestBasicGroupIsNoGang(t *testing.T) {
	c := start(t)
	c.server.MustCreate(node("a", "2"))
	c.server.MustCreate(gang("g", 0))
	pods := c.members("g", 3)
	c.wait("those that fit are bound", func() bool { return c.bound(pods) == 2 })
	c.wait("the group is scheduled", func() bool { return c.scheduled("g").Status == metav1.ConditionTrue })
}

func TestGangStaysInOneDomain(t *testing.T) {
	zone := func(z string) func(*corev1.Node) { return func(n *corev1.Node) { n.Labels["zone"] = z } }
	c := start(t)
	c.server.MustCreate(node("a1", "2", zone("a")))
	c.server.MustCreate(node("b1", "2", zone("b")))
	c.server.MustCreate(node("b2", "1", zone("b")))
	c.server.MustCreate(node("c1", "9", zone("c")))
	c.server.MustCreate(node("nowhere", "9"))
	c.server.MustCreate(gang("g", 3, "zone"))
	pods := c.members("g", 3)
	c.wait("all are bound", func() bool { return c.bound(pods) == 3 })
	for _, name := range pods {
		if n := c.nodeOf(name); !strings.HasPrefix(n, "b") {
			t.Errorf("%s went to %s: the tightest zone with room is b", name, n)
		}
	}
	c.server.MustCreate(pod("g-3", "1", in("g")))
	c.wait("a fourth has no room in the zone", func() bool { return strings.Contains(c.condition("g-3").Message, "topology domain") })
	c.server.MustCreate(node("b3", "1", zone("b")))
	c.wait("it goes to its group's zone", func() bool { return c.nodeOf("g-3") == "b3" })
}

// A gang has others leave only if all of it then fits, and no more of them than needed.
func TestGangPreempts(t *testing.T) {
	c := start(t)
	for i := range 3 {
		c.server.MustCreate(node(fmt.Sprint("n", i), "1"))
		c.server.MustCreate(pod(fmt.Sprint("low-", i), "1", priority(1), lingering))
	}
	c.wait("the nodes are full", func() bool { return c.bound([]string{"low-0", "low-1", "low-2"}) == 3 })
	c.server.MustCreate(gang("big", 4))
	big := c.members("big", 4, priority(9))
	c.wait("the big gang is told why", func() bool { return c.scheduled("big").Status == metav1.ConditionFalse })
	for i := range 3 {
		if p := c.pod(fmt.Sprint("low-", i)); p.DeletionTimestamp != nil {
			t.Fatalf("%s had to leave for a gang that does not fit all the same", p.Name)
		}
	}
	c.server.MustCreate(gang("g", 2))
	pods := c.members("g", 2, priority(9))
	leaving := func() (out []string) {
		for i := range 3 {
			if p := c.pod(fmt.Sprint("low-", i)); p != nil && p.DeletionTimestamp != nil {
				out = append(out, p.Name)
			}
		}
		return out
	}
	c.wait("two leave", func() bool { return len(leaving()) == 2 })
	c.wait("the gang waits for that", func() bool {
		return strings.Contains(c.scheduled("g").Message, "it waits until 2 pods of lower priority have left")
	})
	gone := leaving()
	c.letGo(gone[0])
	c.poll("one place is not enough", 0, func() bool { return c.pod(gone[0]) == nil })
	if n := c.bound(pods); n > 0 {
		t.Fatalf("%d of 2 are bound while one victim is still there", n)
	}
	c.letGo(gone[1])
	c.poll("the gang is bound", time.Second, func() bool { return c.bound(pods) == 2 })
	if n := c.bound(big); n > 0 || len(leaving()) > 0 {
		t.Errorf("%d of the big gang are bound, %v are leaving", n, leaving())
	}
}

func TestGangHeedsBudgets(t *testing.T) {
	c := start(t)
	guarded := func(p *corev1.Pod) { p.Labels = map[string]string{"app": "guarded"} }
	for i := range 4 {
		c.server.MustCreate(node(fmt.Sprint("n", i), "1"))
		change := []func(*corev1.Pod){priority(1), lingering}
		if i < 2 {
			change = append(change, guarded)
		}
		c.server.MustCreate(pod(fmt.Sprint("low-", i), "1", change...))
	}
	c.server.MustCreate(&policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "b"},
		Spec:   policyv1.PodDisruptionBudgetSpec{MinAvailable: ptr.To(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "guarded"}}},
		Status: policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: 1}})
	c.wait("the nodes are full", func() bool { return c.bound([]string{"low-0", "low-1", "low-2", "low-3"}) == 4 })
	c.server.MustCreate(gang("g", 3))
	c.members("g", 3, priority(9))
	count := func(names ...string) (n int) {
		for _, name := range names {
			if c.pod(name).DeletionTimestamp != nil {
				n++
			}
		}
		return n
	}
	c.wait("three leave", func() bool { return count("low-0", "low-1", "low-2", "low-3") == 3 })
	if n := count("low-0", "low-1"); n != 1 {
		t.Errorf("%d pods left whose budget allows 1", n)
	}
}

// A scheduler that starts amid a gang's binding places the rest.
func TestGangInHalfIsCompleted(t *testing.T) {
	c := start(t)
	c.server.MustCreate(node("a", "8"))
	c.server.MustCreate(gang("g", 3))
	c.server.MustCreate(pod("g-0", "1", in("g"), func(p *corev1.Pod) { p.Spec.NodeName = "a" }))
	c.server.MustCreate(pod("g-1", "1", in("g")))
	c.server.MustCreate(pod("g-2", "1", in("g")))
	c.wait("the rest is bound", func() bool { return c.bound([]string{"g-1", "g-2"}) == 2 })
}

// Of a gang that lost some of its pods with their node as many more must find a place as are missing, and the others stay.
func TestGangLosesANode(t *testing.T) {
	c := start(t)
	c.server.MustCreate(node("a", "2"))
	c.server.MustCreate(node("b", "2"))
	c.server.MustCreate(gang("g", 4))
	pods := c.members("g", 4)
	c.wait("all are bound", func() bool { return c.bound(pods) == 4 })
	zero := int64(0)
	if err := client.Of[*corev1.Node](c.server).Delete(context.Background(), "", "b", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	var stay, fresh []string
	for i, name := range pods {
		if c.nodeOf(name) == "a" {
			stay = append(stay, name)
			continue
		}
		if err := client.Of[*corev1.Pod](c.server).Delete(context.Background(), "default", name, metav1.DeleteOptions{GracePeriodSeconds: &zero}); err != nil {
			t.Fatal(err)
		}
		fresh = append(fresh, fmt.Sprint("fresh-", i))
	}
	c.server.MustCreate(pod(fresh[0], "1", in("g")))
	c.server.MustCreate(node("c", "1"))
	c.poll("it waits for the other", 100*time.Millisecond, func() bool { return strings.Contains(c.condition(fresh[0]).Message, "there are fewer") })
	c.server.MustCreate(pod(fresh[1], "1", in("g")))
	c.wait("there is room for one only", func() bool {
		return strings.Contains(c.condition(fresh[1]).Message, "3 of its pods find a place, and 4 must at once")
	})
	if n := c.bound(fresh); n > 0 {
		t.Fatalf("%d of the two missing pods are bound", n)
	}
	c.server.MustCreate(node("d", "1"))
	c.poll("both are bound", time.Second, func() bool { return c.bound(fresh) == 2 && c.bound(stay) == 2 })
}

// Pods beyond those that must go at once have others leave like any pod.
func TestFurtherPodsOfAGangPreempt(t *testing.T) {
	c := start(t)
	c.server.MustCreate(node("a", "2"))
	c.server.MustCreate(pod("low", "1", priority(1), lingering))
	c.wait("the low one is bound", func() bool { return c.nodeOf("low") == "a" })
	c.server.MustCreate(gang("g", 1))
	pods := c.members("g", 2, priority(9))
	c.wait("one is bound, and the low one leaves for the other", func() bool { return c.bound(pods) == 1 && c.pod("low").DeletionTimestamp != nil })
	c.letGo("low")
	c.poll("both are bound", time.Second, func() bool { return c.bound(pods) == 2 })
}

// A pod that something else holds back counts as one of its gang, but the others do not go without it.
func TestAPodOfAGangIsHeldBack(t *testing.T) {
	c := start(t)
	c.server.MustCreate(node("a", "9"))
	c.server.MustCreate(gang("g", 3))
	pods := c.members("g", 2)
	c.poll("they wait for a third", 100*time.Millisecond, func() bool { return strings.Contains(c.condition("g-1").Message, "there are fewer") })
	c.server.MustCreate(pod("g-2", "1", in("g"), func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.org/later"}} }))
	c.wait("they are told that it is held back", func() bool {
		return strings.Contains(c.scheduled("g").Message, "1 more are held back") && strings.Contains(c.condition("g-1").Message, "1 more are held back")
	})
	if n := c.bound(pods); n > 0 {
		t.Fatalf("%d are bound", n)
	}
	p := c.pod("g-2").DeepCopy()
	p.Spec.SchedulingGates = nil
	if _, err := client.Of[*corev1.Pod](c.server).Update(context.Background(), p); err != nil {
		t.Fatal(err)
	}
	c.wait("all are bound", func() bool { return c.bound(append(pods, "g-2")) == 3 })
}

// A group that is made anew under its name is another one.
func TestAGroupIsReplaced(t *testing.T) {
	c := start(t)
	c.server.MustCreate(node("a", "9"))
	c.server.MustCreate(gang("g", 5))
	pods := c.members("g", 2)
	c.poll("they wait for three more", 100*time.Millisecond, func() bool { return strings.Contains(c.condition("g-1").Message, "needs 5 pods") })
	if err := client.Of[*schedulingv1alpha2.PodGroup](c.server).Delete(context.Background(), "default", "g", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.server.MustCreate(gang("g", 2))
	c.wait("both are bound", func() bool { return c.bound(pods) == 2 })
	c.wait("the new group is scheduled", func() bool { return c.scheduled("g").Status == metav1.ConditionTrue })
}

// Whatever gangs and pods come and go, at rest no gang has some of its pods placed but fewer than it needs, and none waits that would fit.
func TestGangsAtRestAreWhole(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	r := rand.New(rand.NewPCG(seed, 7))
	c := start(t)
	const nodes, cpus = 4, 3
	for i := range nodes {
		c.server.MustCreate(node(fmt.Sprint("n", i), fmt.Sprint(cpus)))
	}
	type group struct {
		least, pods int
		names       []string
	}
	gangs := map[string]*group{}
	for i := range 30 {
		name := fmt.Sprint("g", i)
		least := 1 + r.IntN(6)
		g := &group{least: least, pods: least + r.IntN(3)}
		gangs[name] = g
		c.server.MustCreate(gang(name, int32(least)))
		for k := range g.pods {
			g.names = append(g.names, fmt.Sprintf("%s-%d", name, k))
			c.server.MustCreate(pod(g.names[k], "1", in(name)))
		}
		if r.IntN(2) == 0 { // somebody ends
			for _, old := range gangs {
				if r.IntN(3) > 0 || c.bound(old.names) == 0 {
					continue
				}
				zero := int64(0)
				for _, n := range old.names {
					_ = client.Of[*corev1.Pod](c.server).Delete(context.Background(), "default", n, metav1.DeleteOptions{GracePeriodSeconds: &zero})
				}
				old.names = nil
			}
		}
	}
	verdict := func() string {
		used, smallest := 0, nodes*cpus+1
		for name, g := range gangs {
			n := c.bound(g.names)
			used += n
			if n > 0 && n < g.least {
				return fmt.Sprintf("%s has %d pods placed of at least %d", name, n, g.least)
			}
			if n == 0 && len(g.names) > 0 {
				smallest = min(smallest, g.least)
			}
		}
		if free := nodes*cpus - used; free >= smallest {
			return fmt.Sprintf("%d places are free, and a gang waits that needs %d", free, smallest)
		}
		return ""
	}
	c.poll(fmt.Sprintf("seed %d: rest", seed), time.Second, func() bool { return verdict() == "" })
}
