package scheduler_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/yare-project/yare/scheduler"
	"github.com/yare-project/yare/scheduler/framework"
)

// holdLabelled is a user's plugin that holds pods with the label hold for a minute.
type holdLabelled struct{ held chan *corev1.Pod }

func (holdLabelled) Name() string { return "Hold" }
func (h holdLabelled) Permit(c *framework.Cycle, _ string) (*framework.Status, time.Duration) {
	if _, ok := c.Pod.Object.Labels["hold"]; !ok {
		return nil, 0
	}
	h.held <- c.Pod.Object
	return framework.Refuse(framework.Wait, "Hold"), time.Minute
}

func TestPermitHoldsPodsBack(t *testing.T) {
	profiles, err := scheduler.ParseConfig([]byte("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles: [{plugins: {permit: {enabled: [{name: Hold}]}}}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	hold := holdLabelled{make(chan *corev1.Pod, 10)}
	c := start(t, func(s *scheduler.Config) {
		s.Profiles = profiles
		s.Plugins = map[string]framework.Factory{"Hold": func([]byte, *framework.Handle) (framework.Plugin, error) { return hold, nil }}
	})
	marked := func(p *corev1.Pod) { p.Labels = map[string]string{"hold": ""} }
	c.server.MustCreate(node("a", "1"))
	c.server.MustCreate(pod("held", "600m", marked))
	<-hold.held
	c.server.MustCreate(pod("small", "400m"))
	c.wait("a pod that is not held goes on", func() bool { return c.nodeOf("small") == "a" })
	c.server.MustCreate(pod("late", "400m"))
	c.wait("the held pod's room is taken", func() bool { return strings.Contains(c.condition("late").Message, "Insufficient cpu") })
	c.scheduler.Allow(c.pod("held"))
	c.wait("the allowed pod is bound", func() bool { return c.nodeOf("held") == "a" })

	c.server.MustCreate(node("b", "1"))
	c.server.MustCreate(pod("timeout", "600m", marked))
	<-hold.held
	c.poll("a held pod that is never allowed goes back", time.Second, func() bool {
		return strings.Contains(c.condition("timeout").Message, "not permitted in time")
	})
}

func TestReadsAndWritesAreAllThatItDoes(t *testing.T) {
	c := start(t)
	c.server.MustCreate(node("a", "1"))
	c.server.MustCreate(pod("low", "1", priority(1)))
	c.wait("low is bound", func() bool { return c.nodeOf("low") == "a" })
	c.server.MustCreate(pod("high", "1", priority(9)))
	c.wait("low is told to leave", func() bool { p := c.pod("low"); return p != nil && p.DeletionTimestamp != nil })
	declared := map[string]bool{}
	for _, a := range append(scheduler.Reads(), scheduler.Writes()...) {
		for _, verb := range a.Verbs {
			declared[verb+" "+a.Resource] = true
		}
	}
	for _, a := range c.server.Actions(true) {
		name := a.Ref.Resource
		if a.Ref.Subresource != "" {
			name += "/" + a.Ref.Subresource
		}
		if !declared[a.Verb+" "+name] && !(a.Verb == "get" && name == "pods") { // the test itself gets pods
			t.Errorf("%s %s is not declared", a.Verb, name)
		}
	}
}
