package node_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func TestContainersAreAdoptedByTheNextAgent(t *testing.T) {
	m := newMachine(t, false)
	m.create(newPod("web", func(p *corev1.Pod) {
		p.Spec.Containers[0].ReadinessProbe = &corev1.Probe{PeriodSeconds: 10, FailureThreshold: 3, SuccessThreshold: 1, TimeoutSeconds: 1,
			ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"ready"}}}}
	}))
	m.create(newPod("gone"))
	m.waitReady("web")
	m.waitReady("gone")
	before, version := id(m.pod("web"), "main"), m.pod("web").ResourceVersion
	m.stop()
	m.delete("gone", ptr(int64(0)))
	for _, left := range []string{"/pods/old-uid/volumes/x", "/log/default_old_old-uid/main"} {
		if err := os.MkdirAll(m.root+left, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	m.run()
	defer m.stop()
	m.waitFor("what the API no longer has is removed", func() bool { s, _ := m.rt.Size(); return s == 1 })
	m.waitFor("the pod is known", func() bool {
		p, ok := m.agent.Pod("default", "web")
		return ok && isReady(p) && id(p, "main") == before
	})
	if got := m.pod("web").ResourceVersion; got != version {
		t.Errorf("the pod was written anew (version %s, before %s): %+v", got, version, m.pod("web").Status)
	}
	for _, left := range []string{"/pods/old-uid", "/log/default_old_old-uid"} {
		if _, err := os.Stat(m.root + left); !os.IsNotExist(err) {
			t.Errorf("%s of a pod that nobody knows is still there", left)
		}
	}
	m.rt.Exit(before, 1)
	m.wait("an exit after that is seen", func() bool { return container(m.pod("web"), "main").RestartCount == 1 })
}

func TestExitDuringABrokenEventStreamIsSeen(t *testing.T) {
	m := newMachine(t, false)
	m.create(newPod("web"))
	m.waitReady("web")
	m.rt.Fail("GetContainerEvents", errors.New("still down"))
	m.rt.BreakStreams()
	m.rt.Exit(id(m.pod("web"), "main"), 1)
	m.wait("restarted", func() bool { p := m.pod("web"); return container(p, "main").RestartCount == 1 && isReady(p) })
}

func TestDeadSandboxIsReplaced(t *testing.T) {
	m := newMachine(t, false)
	m.create(newPod("web", func(p *corev1.Pod) { p.Spec.InitContainers = []corev1.Container{ctr("init", "true")} }))
	m.waitReady("web")
	ip := m.pod("web").Status.PodIP
	m.rt.KillSandbox("web")
	m.wait("a new sandbox with a new address", func() bool { p := m.pod("web"); return isReady(p) && p.Status.PodIP != ip })
	if got := container(m.pod("web"), "init").RestartCount; got != 1 {
		t.Errorf("init container ran %d more times, want 1: a new sandbox starts from the beginning", got)
	}
	if !m.events.has("Normal SandboxChanged: Pod sandbox changed, it will be killed and re-created.") {
		t.Errorf("no SandboxChanged event in:\n%s", m.events.all())
	}
}

func TestFailedSandboxIsTriedAgain(t *testing.T) {
	m := newMachine(t, true)
	m.rt.Fail("RunPodSandbox", errors.New("no network"))
	m.create(newPod("web"))
	m.waitFor("told", func() bool {
		return m.events.has("Warning FailedCreatePodSandBox: Failed to create pod sandbox: no network")
	})
	m.wait("waiting", func() bool { return waiting(m.pod("web"), "main") == "ContainerCreating" })
	m.waitFor("ready after a retry", func() bool { m.fake.Step(500 * time.Millisecond); return isReady(m.pod("web")) })
}

func TestContainerThatCannotStart(t *testing.T) {
	m := newMachine(t, true)
	m.rt.Fail("StartContainer", errors.New("exec: \"nosuch\": not found"))
	m.create(newPod("web", restart(corev1.RestartPolicyAlways)))
	m.waitFor("told", func() bool {
		return m.events.has("spec.containers{main}", "Warning Failed: Error: exec: \"nosuch\": not found")
	})
	m.wait("started again", func() bool { p := m.pod("web"); return isReady(p) && container(p, "main").RestartCount == 1 })
	last := container(m.pod("web"), "main").LastTerminationState.Terminated
	if last == nil || last.Reason != "StartError" || last.ExitCode != 128 {
		t.Errorf("last state %+v, want StartError with 128", last)
	}
}

func TestLogsAreRotated(t *testing.T) {
	m := newMachine(t, true)
	m.create(newPod("web"))
	m.waitReady("web")
	got, err := m.agent.Container("default", "web", "", "main", false)
	if err != nil {
		t.Fatal(err)
	}
	for range 7 {
		if err := os.Truncate(got.LogPath, 11<<20); err != nil {
			t.Fatal(err)
		}
		m.waitFor("a new log", func() bool {
			m.fake.Step(10 * time.Second)
			info, err := os.Stat(got.LogPath)
			return err == nil && info.Size() == 0
		})
	}
	if old, _ := filepath.Glob(got.LogPath + ".*"); len(old) != 4 {
		t.Errorf("%d old logs, want 4 beside the present one", len(old))
	}
}

func TestFullEmptyDirEndsThePod(t *testing.T) {
	m := newMachine(t, true)
	limit := resource.MustParse("64Ki")
	m.create(newPod("web", func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: &limit}}}}
		p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{mount("tmp", "/tmp")}
	}))
	m.waitReady("web")
	if err := os.WriteFile(m.mountOf("web", "main", "/tmp").HostPath+"/big", make([]byte, 100<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	m.waitFor("failed", func() bool { m.fake.Step(10 * time.Second); return m.pod("web").Status.Phase == corev1.PodFailed })
	if p := m.pod("web"); p.Status.Reason != "Evicted" || p.Status.Message != `Usage of EmptyDir volume "tmp" exceeds the limit "64Ki". ` {
		t.Errorf("reason %q, message %q", p.Status.Reason, p.Status.Message)
	}
}
