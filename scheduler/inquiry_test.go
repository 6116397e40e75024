package scheduler_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yare-project/yare/client"
)

// nodesIn are the nodes that an extender is asked about, sorted.
func nodesIn(args map[string]any) (names []string) {
	for _, n := range args["NodeNames"].([]any) {
		names = append(names, n.(string))
	}
	slices.Sort(names)
	return names
}

func without(names []string, which ...string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return slices.Contains(which, n) })
}

// nodesOf is where pods are, sorted.
func (c *cluster) nodesOf(names []string) string {
	var at []string
	for _, name := range names {
		at = append(at, c.nodeOf(name))
	}
	slices.Sort(at)
	return strings.Join(at, " ")
}

func TestExtendersFilterAndRateForGangs(t *testing.T) {
	var mu sync.Mutex
	asked := map[string]int{}
	c := start(t, withExtender(t, managed+", weight: 2", map[string]func(map[string]any) any{
		"filter": func(args map[string]any) any {
			mu.Lock()
			defer mu.Unlock()
			asked[podName(args)]++
			return map[string]any{"NodeNames": without(nodesIn(args), "a"), "FailedNodes": map[string]string{"a": "no x"}}
		},
		"prioritize": func(map[string]any) any {
			return []map[string]any{{"Host": "b", "Score": 1}, {"Host": "c", "Score": 9}, {"Host": "d", "Score": 10}}
		},
	}))
	for _, name := range []string{"a", "b", "c", "d"} {
		c.server.MustCreate(node(name, "1"))
		c.knows(name)
	}
	c.server.MustCreate(gang("ring", 2))
	ring := c.members("ring", 2, wantsX)
	c.wait("they are where the extender likes them best, one on each", func() bool { return c.nodesOf(ring) == "c d" })
	c.server.MustCreate(gang("more", 2))
	more := c.members("more", 2, wantsX)
	c.wait("a gang that the extender leaves too few nodes is refused whole, for its reason", func() bool {
		m := c.scheduled("more").Message
		return strings.Contains(m, `1 of its pods find a place, and 2 must at once`) && strings.Contains(m, "no x")
	})
	if n := c.bound(more); n != 0 {
		t.Errorf("%d pods of half a gang are bound", n)
	}
	c.server.MustCreate(node("e", "1"))
	c.wait("a node that the extender has nothing against lets it go", func() bool { return c.nodesOf(more) == "b e" })
	mu.Lock()
	defer mu.Unlock()
	if asked["ring-0"] != 1 || asked["ring-1"] != 1 {
		t.Errorf("asked about pods so often: %v; want once about each of ring", asked)
	}
}

// TestSlowExtenderHoldsUpNoOtherPodsForAGang has an extender think about a gang while the cluster changes.
func TestSlowExtenderHoldsUpNoOtherPodsForAGang(t *testing.T) {
	type question struct {
		pod   string
		nodes []string
	}
	asked, answer := make(chan question, 100), make(chan struct{})
	c := start(t, withExtender(t, managed, map[string]func(map[string]any) any{"filter": func(args map[string]any) any {
		q := question{podName(args), nodesIn(args)}
		asked <- q
		<-answer
		return map[string]any{"NodeNames": q.nodes}
	}}))
	for _, name := range []string{"a", "b"} {
		c.server.MustCreate(node(name, "1"))
		c.knows(name)
	}
	c.server.MustCreate(gang("ring", 2))
	ring := c.members("ring", 2, wantsX)
	first, second := <-asked, <-asked // at once: nobody has answered yet
	if first.pod == second.pod || !slices.Equal(first.nodes, []string{"a", "b"}) || !slices.Equal(second.nodes, []string{"a", "b"}) {
		t.Errorf("asked %v and %v, want about both pods and both nodes", first, second)
	}
	if w, ok, err := c.scheduler.Waiting(context.Background(), "default", "ring-0"); err != nil || !ok || w.Place != "asking" {
		t.Errorf("the pod is said to be %q (%v, %v), want asking", w.Place, ok, err)
	}
	c.server.MustCreate(pod("quick", "1", onlyOn("a")))
	c.wait("another pod takes a node meanwhile", func() bool { return c.nodeOf("quick") == "a" })
	c.server.MustCreate(node("c", "1"))
	c.knows("c")
	answer <- struct{}{}
	answer <- struct{}{}
	again := <-asked
	if !slices.Contains(again.nodes, "c") {
		t.Errorf("asked again about %v, want c, which came meanwhile", again)
	}
	close(answer)
	c.wait("the gang is placed on what is free now", func() bool { return c.nodesOf(ring) == "b c" })
}

func TestExtenderThatFailsHasTheGangRetried(t *testing.T) {
	var calls atomic.Int32
	c := start(t, withExtender(t, managed, map[string]func(map[string]any) any{"filter": func(args map[string]any) any {
		if calls.Add(1) == 1 {
			return nil
		}
		return map[string]any{"NodeNames": nodesIn(args)}
	}}))
	c.server.MustCreate(node("a", "4"))
	c.knows("a")
	c.server.MustCreate(gang("ring", 2))
	ring := c.members("ring", 2, wantsX)
	c.wait("the failure is told", func() bool {
		x := c.scheduled("ring")
		return x.Reason == corev1.PodReasonSchedulerError && strings.Contains(x.Message, "failed filter with extender at URL")
	})
	c.poll("it is placed after its back-off", time.Second, func() bool { return c.bound(ring) == 2 })
}

// TestGangThatChangesWhileExtendersThink loses a pod, and gets it back.
func TestGangThatChangesWhileExtendersThink(t *testing.T) {
	asked, answer := make(chan string, 100), make(chan struct{})
	c := start(t, withExtender(t, managed, map[string]func(map[string]any) any{"filter": func(args map[string]any) any {
		asked <- podName(args)
		<-answer
		return map[string]any{"NodeNames": nodesIn(args)}
	}}))
	c.server.MustCreate(node("a", "4"))
	c.knows("a")
	c.server.MustCreate(gang("ring", 2))
	c.members("ring", 2, wantsX)
	<-asked
	<-asked
	zero := int64(0)
	if err := client.Of[*corev1.Pod](c.server).Delete(context.Background(), "default", "ring-0", metav1.DeleteOptions{GracePeriodSeconds: &zero}); err != nil {
		t.Fatal(err)
	}
	c.poll("the scheduler heard of it", 0, func() bool {
		_, known, err := c.scheduler.Waiting(context.Background(), "default", "ring-0")
		return err == nil && !known
	})
	close(answer)
	c.poll("the other waits for its group", time.Second, func() bool {
		w, _, err := c.scheduler.Waiting(context.Background(), "default", "ring-1")
		return err == nil && w.Place == "gated"
	})
	c.server.MustCreate(pod("ring-2", "1", wantsX, in("ring")))
	c.wait("with another one both go", func() bool { return c.bound([]string{"ring-1", "ring-2"}) == 2 })
}

// TestMembersThatNeedEachOtherAreAskedAboutTogether: the second may go only where the first is, which the first question can't know.
func TestMembersThatNeedEachOtherAreAskedAboutTogether(t *testing.T) {
	c := start(t, withExtender(t, managed, map[string]func(map[string]any) any{"filter": func(args map[string]any) any {
		return map[string]any{"NodeNames": without(nodesIn(args), "a")}
	}}))
	for _, name := range []string{"a", "b"} {
		c.server.MustCreate(node(name, "4"))
		c.knows(name)
	}
	c.server.MustCreate(gang("ring", 3))
	c.server.MustCreate(pod("ring-0", "1", wantsX, in("ring"), priority(5), func(p *corev1.Pod) { p.Labels = map[string]string{"role": "head"} }))
	follow := func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
			TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"role": "head"}}}}}}
	}
	c.server.MustCreate(pod("ring-1", "1", wantsX, in("ring"), follow))
	c.server.MustCreate(pod("ring-2", "1", wantsX, in("ring"), follow))
	c.wait("all are where the extender lets them", func() bool { return c.nodesOf([]string{"ring-0", "ring-1", "ring-2"}) == "b b b" })
}
