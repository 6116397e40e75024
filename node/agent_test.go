package node_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

func TestPodBecomesReadyAndIsDeleted(t *testing.T) {
	m := newMachine(t, false)
	m.create(newPod("web"))
	m.waitReady("web")
	p := m.pod("web")
	type facts struct {
		Phase                corev1.PodPhase
		QOS                  corev1.PodQOSClass
		HostIP               string
		HasIP, HasID, HasImg bool
		Started              bool
	}
	c := container(p, "main")
	got := facts{p.Status.Phase, p.Status.QOSClass, p.Status.HostIP, p.Status.PodIP != "", strings.HasPrefix(c.ContainerID, "fake://"), c.ImageID != "", *c.Started}
	want := facts{corev1.PodRunning, corev1.PodQOSBestEffort, "192.0.2.10", true, true, true, true}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("status (-want +got):\n%s", d)
	}
	conditions := map[corev1.PodConditionType]corev1.ConditionStatus{}
	for _, c := range p.Status.Conditions {
		conditions[c.Type] = c.Status
	}
	if d := cmp.Diff(map[corev1.PodConditionType]corev1.ConditionStatus{"PodReadyToStartContainers": "True", "Initialized": "True", "Ready": "True",
		"ContainersReady": "True", "PodScheduled": "True"}, conditions); d != "" {
		t.Errorf("conditions (-want +got):\n%s", d)
	}
	for _, e := range [][]string{
		{"spec.containers{main}", "Normal Pulled: Container image \"img/main:1\" already present on machine"},
		{"spec.containers{main}", "Normal Created: Container created"},
		{"spec.containers{main}", "Normal Started: Container started"},
	} {
		if !m.events.has(e...) {
			t.Errorf("no event %v in:\n%s", e, m.events.all())
		}
	}

	m.delete("web", nil)
	m.wait("the pod is gone", func() bool { return m.pod("web") == nil })
	if s, c := m.rt.Size(); s != 0 || c != 0 {
		t.Errorf("left in the runtime: %d sandboxes, %d containers", s, c)
	}
	if !m.events.has("Normal Killing: Stopping container main") {
		t.Errorf("no Killing event in:\n%s", m.events.all())
	}
}
