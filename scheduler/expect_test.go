package scheduler_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/yare-project/yare/scheduler"
	"github.com/yare-project/yare/scheduler/framework"
)

// TestExpectedNodeIsTold follows KEP-5278: who waits on its way to a node says to which.
func TestExpectedNodeIsTold(t *testing.T) {
	profiles, err := scheduler.ParseConfig([]byte("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles: [{plugins: {permit: {enabled: [{name: Hold}]}}}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	hold := holdLabelled{make(chan *corev1.Pod, 10)}
	c := start(t, func(s *scheduler.Config) {
		s.Profiles = profiles
		s.Plugins = map[string]framework.Factory{"Hold": func([]byte, *framework.Handle) (framework.Plugin, error) { return hold, nil }}
	})
	c.server.MustCreate(node("a", "1"))
	c.server.MustCreate(pod("held", "1", func(p *corev1.Pod) { p.Labels = map[string]string{"hold": ""} }))
	<-hold.held
	c.wait("a pod that is held back says where it is going to be", func() bool { return c.pod("held").Status.NominatedNodeName == "a" })
	c.poll("it says so no longer once it is not permitted", time.Second, func() bool {
		p := c.pod("held")
		return c.condition("held").Message != "" && p.Status.NominatedNodeName == "" && p.Spec.NodeName == ""
	})
}

func TestExpectedNodeIsToldWhileVolumesAreBound(t *testing.T) {
	c := start(t)
	c.server.MustCreate(lateClass("local", "kubernetes.io/no-provisioner"))
	c.server.MustCreate(node("a", "8"))
	c.server.MustCreate(volumeOn("pv", "local", "a"))
	c.server.MustCreate(claim("data", "local"))
	c.server.MustCreate(pod("db", "100m", mounts("data")))
	c.wait("the pod says where it is going to be", func() bool { return c.pod("db").Status.NominatedNodeName == "a" && c.nodeOf("db") == "" })
	c.bind("data", "pv")
	c.wait("the pod is there", func() bool { return c.nodeOf("db") == "a" })
	c.server.MustCreate(pod("plain", "100m"))
	c.wait("the plain pod is bound", func() bool { return c.nodeOf("plain") == "a" })
	for _, a := range c.server.Actions(false) {
		if a.Verb == "patch" && a.Ref.Name == "plain" {
			t.Errorf("a pod that is bound at once was patched: %v", a)
		}
	}
}
