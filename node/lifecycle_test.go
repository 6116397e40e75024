package node_test

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/yare-project/yare/client"
	crifake "github.com/yare-project/yare/node/cri/fake"
)

func TestCrashedContainerRestartsWithBackoff(t *testing.T) {
	m := newMachine(t, true)
	m.create(newPod("web"))
	m.waitReady("web")
	first := id(m.pod("web"), "main")
	m.rt.Exit(first, 7)
	m.wait("restarted at once", func() bool { p := m.pod("web"); return container(p, "main").RestartCount == 1 && isReady(p) })
	last := container(m.pod("web"), "main").LastTerminationState.Terminated
	if last == nil || last.ExitCode != 7 || last.Reason != "Error" {
		t.Errorf("last state: %+v, want exit code 7 with reason Error", last)
	}

	m.rt.Exit(id(m.pod("web"), "main"), 7)
	m.wait("held back", func() bool { return waiting(m.pod("web"), "main") == "CrashLoopBackOff" })
	p := m.pod("web")
	if got := container(p, "main").State.Waiting.Message; !strings.HasPrefix(got, "back-off 10s restarting failed container=main pod=web_default(") {
		t.Errorf("message %q", got)
	}
	if p.Status.Phase != corev1.PodRunning {
		t.Errorf("phase %s, want Running while a container waits to start again", p.Status.Phase)
	}
	m.fake.Step(9 * time.Second)
	if got := container(m.pod("web"), "main").RestartCount; got != 1 {
		t.Errorf("restart count %d after 9 s, want 1", got)
	}
	m.fake.Step(time.Second)
	m.wait("restarted after 10 s", func() bool { p := m.pod("web"); return container(p, "main").RestartCount == 2 && isReady(p) })
	m.rt.Exit(id(m.pod("web"), "main"), 7)
	m.wait("held back for twice as long", func() bool {
		w := container(m.pod("web"), "main").State.Waiting
		return w != nil && strings.HasPrefix(w.Message, "back-off 20s")
	})
	if !m.events.has("Warning BackOff: Back-off restarting failed container main in pod web_default(") {
		t.Errorf("no BackOff event in:\n%s", m.events.all())
	}
}

func TestPhaseFollowsFromExitCodesAndRestartPolicy(t *testing.T) {
	for _, test := range []struct {
		name    string
		policy  corev1.RestartPolicy
		command string
		phase   corev1.PodPhase
		reason  string
	}{
		{"ok", corev1.RestartPolicyNever, "exit 0", corev1.PodSucceeded, "PodCompleted"},
		{"bad", corev1.RestartPolicyNever, "exit 3", corev1.PodFailed, "PodFailed"},
		{"onfailure", corev1.RestartPolicyOnFailure, "exit 0", corev1.PodSucceeded, "PodCompleted"},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := newMachine(t, false)
			m.create(newPod(test.name, restart(test.policy), command("sh", "-c", test.command)))
			m.waitPhase(test.name, test.phase)
			p := m.pod(test.name)
			if c := condition(p, corev1.PodReady); c.Status != corev1.ConditionFalse || c.Reason != test.reason {
				t.Errorf("Ready is %s/%s, want False/%s", c.Status, c.Reason, test.reason)
			}
			if container(p, "main").State.Terminated == nil {
				t.Errorf("container state %+v, want terminated", container(p, "main").State)
			}
			m.waitFor("the sandbox is stopped", func() bool { return slices.Contains(m.rt.Calls(), "StopPodSandbox "+test.name) })
			if _, n := m.rt.Size(); n != 1 {
				t.Errorf("%d containers left, want 1: its log must stay readable", n)
			}
			m.delete(test.name, nil)
			m.wait("the pod is gone", func() bool { return m.pod(test.name) == nil })
		})
	}
}

func TestInitContainersRunInOrderBeforeMain(t *testing.T) {
	m := newMachine(t, false)
	m.create(newPod("web", func(p *corev1.Pod) {
		p.Spec.InitContainers = []corev1.Container{ctr("one", "true"), ctr("two", "true")}
	}))
	m.waitReady("web")
	var starts []string
	for _, c := range m.rt.Calls() {
		if name, ok := strings.CutPrefix(c, "StartContainer "); ok {
			starts = append(starts, name)
		}
	}
	if d := cmp.Diff([]string{"one", "two", "main"}, starts); d != "" {
		t.Errorf("starts (-want +got):\n%s", d)
	}
	if c := condition(m.pod("web"), corev1.PodInitialized); c.Status != corev1.ConditionTrue {
		t.Errorf("Initialized is %+v", c)
	}
}

func TestFailedInitContainerFailsPodThatNeverRestarts(t *testing.T) {
	m := newMachine(t, false)
	m.create(newPod("web", restart(corev1.RestartPolicyNever), func(p *corev1.Pod) {
		p.Spec.InitContainers = []corev1.Container{ctr("init", "sh", "-c", "exit 9")}
	}))
	m.waitPhase("web", corev1.PodFailed)
	if got := waiting(m.pod("web"), "main"); got != "PodInitializing" {
		t.Errorf("main waits because of %q, want PodInitializing", got)
	}
}

func TestSidecarStartsBeforeMainAndEndsAfterIt(t *testing.T) {
	m := newMachine(t, false)
	var healthy bool
	asked := make(chan struct{}, 100)
	gate := make(chan struct{})
	m.rt.OnExec(func(c *runtimeapi.ContainerStatus, _ []string) (string, string, int) {
		select {
		case asked <- struct{}{}:
		default:
		}
		select {
		case <-gate:
			healthy = true
			return "", "", 0
		default:
			return "", "not yet", 1
		}
	})
	m.create(newPod("web", func(p *corev1.Pod) {
		side := ctr("side")
		side.RestartPolicy = ptr(corev1.ContainerRestartPolicyAlways)
		side.StartupProbe = &corev1.Probe{PeriodSeconds: 1, FailureThreshold: 100, SuccessThreshold: 1, TimeoutSeconds: 1,
			ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"check"}}}}
		p.Spec.InitContainers = []corev1.Container{side}
	}))
	<-asked
	<-asked
	if m.rt.Find("web", "main") != nil {
		t.Fatal("main was made before the sidecar had started")
	}
	close(gate)
	m.waitReady("web")
	if !healthy {
		t.Error("ready without the sidecar's startup probe")
	}
	m.delete("web", nil)
	m.wait("the pod is gone", func() bool { return m.pod("web") == nil })
	calls := m.rt.Calls()
	if slices.Index(calls, "StopContainer main") > slices.Index(calls, "StopContainer side") {
		t.Errorf("main was stopped after its sidecar: %v", calls)
	}
}

func TestSidecarDoesNotKeepAFinishedPodRunning(t *testing.T) {
	m := newMachine(t, false)
	m.create(newPod("job", restart(corev1.RestartPolicyNever), command("true"), func(p *corev1.Pod) {
		side := ctr("side")
		side.RestartPolicy = ptr(corev1.ContainerRestartPolicyAlways)
		p.Spec.InitContainers = []corev1.Container{side}
	}))
	m.waitPhase("job", corev1.PodSucceeded)
}

func TestRestartRulesOfAContainer(t *testing.T) {
	m := newMachine(t, false)
	m.create(newPod("rules", restart(corev1.RestartPolicyNever), func(p *corev1.Pod) {
		c := &p.Spec.Containers[0]
		c.RestartPolicy = ptr(corev1.ContainerRestartPolicyNever)
		c.RestartPolicyRules = []corev1.ContainerRestartRule{{Action: corev1.ContainerRestartRuleActionRestart,
			ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: corev1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{42}}}}
	}))
	m.waitReady("rules")
	m.rt.Exit(id(m.pod("rules"), "main"), 42)
	m.wait("42 restarts", func() bool { p := m.pod("rules"); return container(p, "main").RestartCount == 1 && isReady(p) })
	m.rt.Exit(id(m.pod("rules"), "main"), 1)
	m.waitPhase("rules", corev1.PodFailed)
}

func TestRestartAllContainers(t *testing.T) {
	m := newMachine(t, false)
	m.create(newPod("all", func(p *corev1.Pod) {
		p.Spec.InitContainers = []corev1.Container{ctr("init", "true")}
		p.Spec.Containers = append(p.Spec.Containers, ctr("other"))
		c := &p.Spec.Containers[0]
		c.RestartPolicy = ptr(corev1.ContainerRestartPolicyNever)
		c.RestartPolicyRules = []corev1.ContainerRestartRule{{Action: corev1.ContainerRestartRuleActionRestartAllContainers,
			ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: corev1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{88}}}}
	}))
	m.waitReady("all")
	m.rt.Exit(id(m.pod("all"), "main"), 88)
	m.wait("all three ran again", func() bool {
		p := m.pod("all")
		return container(p, "main").RestartCount == 1 && container(p, "other").RestartCount == 1 && container(p, "init").RestartCount == 1 && isReady(p)
	})
}

func TestGracePeriodThenKill(t *testing.T) {
	m := newMachine(t, true)
	m.rt.Program("img/main:1", func(ctx context.Context, _ *crifake.Process) int { <-ctx.Done(); return 0 }) // ignores the stop signal
	m.create(newPod("stubborn"))
	m.waitReady("stubborn")
	m.delete("stubborn", ptr(int64(5)))
	m.waitFor("asked to stop", func() bool { return slices.Contains(m.rt.Calls(), "StopContainer main") && m.fake.HasWaiters() })
	if m.pod("stubborn") == nil {
		t.Fatal("gone before its grace period was over")
	}
	m.waitFor("killed after 5 s", func() bool {
		m.fake.Step(time.Second)
		return m.pod("stubborn") == nil
	})
}

func TestForceDeletedPodIsStillStopped(t *testing.T) {
	m := newMachine(t, false)
	m.create(newPod("web"))
	m.waitReady("web")
	m.delete("web", ptr(int64(0)))
	m.waitFor("everything is removed", func() bool { s, c := m.rt.Size(); return s == 0 && c == 0 })
	m.waitFor("its folder too", func() bool { e, err := os.ReadDir(m.root + "/pods"); return err == nil && len(e) == 0 })
}

func TestActiveDeadline(t *testing.T) {
	m := newMachine(t, true)
	m.create(newPod("slow", func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = ptr(int64(60)) }))
	m.waitReady("slow")
	m.fake.Step(61 * time.Second)
	m.waitPhase("slow", corev1.PodFailed)
	p := m.pod("slow")
	if p.Status.Reason != "DeadlineExceeded" || p.Status.Message != "Pod was active on the node longer than the specified deadline" {
		t.Errorf("reason %q, message %q", p.Status.Reason, p.Status.Message)
	}
	m.waitFor("the container is stopped", func() bool { return slices.Contains(m.rt.Calls(), "StopContainer main") })
}

func TestChangedImageReplacesTheContainer(t *testing.T) {
	m := newMachine(t, false)
	m.create(newPod("web"))
	m.waitReady("web")
	if _, err := client.Of[*corev1.Pod](m.api).Patch(context.Background(), "default", "web", types.JSONPatchType,
		[]byte(`[{"op":"replace","path":"/spec/containers/0/image","value":"img/main:2"}]`), ""); err != nil {
		t.Fatal(err)
	}
	m.wait("runs the new image", func() bool { p := m.pod("web"); return container(p, "main").Image == "img/main:2" && isReady(p) })
	if !m.events.has("Normal Killing: Container main definition changed, will be restarted") {
		t.Errorf("no Killing event in:\n%s", m.events.all())
	}
}

func TestEphemeralContainer(t *testing.T) {
	m := newMachine(t, false)
	m.create(newPod("web"))
	m.waitReady("web")
	p := m.pod("web").DeepCopy()
	p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{TargetContainerName: "main",
		EphemeralContainerCommon: corev1.EphemeralContainerCommon(ctr("debug", "sh", "-c", "exit 0"))}}
	if _, err := client.Of[*corev1.Pod](m.api).Update(context.Background(), p); err != nil {
		t.Fatal(err)
	}
	m.wait("it has run", func() bool { return container(m.pod("web"), "debug").State.Terminated != nil })
	config := m.rt.ContainerConfig(id(m.pod("web"), "debug"))
	ns := config.Linux.SecurityContext.NamespaceOptions
	if ns.Pid != runtimeapi.NamespaceMode_TARGET || ns.TargetId != id(m.pod("web"), "main") {
		t.Errorf("process namespace %v of %q, want that of main", ns.Pid, ns.TargetId)
	}
	if !isReady(m.pod("web")) {
		t.Error("the pod is not ready because of its ephemeral container")
	}
}

func TestTerminationMessage(t *testing.T) {
	m := newMachine(t, false)
	m.rt.Program("img/main:1", func(_ context.Context, p *crifake.Process) int {
		for _, mount := range p.Config.Mounts {
			if mount.ContainerPath == "/dev/termination-log" {
				_ = os.WriteFile(mount.HostPath, []byte("out of ideas"), 0o600)
			}
		}
		return 1
	})
	m.rt.Program("img/logs:1", func(_ context.Context, p *crifake.Process) int {
		_, _ = p.Stdout.Write([]byte("first\nlast words\n"))
		return 1
	})
	m.create(newPod("file", restart(corev1.RestartPolicyNever)))
	m.create(newPod("logs", restart(corev1.RestartPolicyNever), func(p *corev1.Pod) {
		p.Spec.Containers[0].Image = "img/logs:1"
		p.Spec.Containers[0].TerminationMessagePolicy = corev1.TerminationMessageFallbackToLogsOnError
	}))
	m.waitPhase("file", corev1.PodFailed)
	m.waitPhase("logs", corev1.PodFailed)
	if got := container(m.pod("file"), "main").State.Terminated.Message; got != "out of ideas" {
		t.Errorf("message from the file: %q", got)
	}
	if got := container(m.pod("logs"), "main").State.Terminated.Message; got != "first\nlast words\n" {
		t.Errorf("message from the log: %q", got)
	}
}

func TestOOMKilled(t *testing.T) {
	m := newMachine(t, false)
	m.create(newPod("web", restart(corev1.RestartPolicyNever)))
	m.waitReady("web")
	m.rt.OOMKill(id(m.pod("web"), "main"))
	m.waitPhase("web", corev1.PodFailed)
	if got := container(m.pod("web"), "main").State.Terminated.Reason; got != "OOMKilled" {
		t.Errorf("reason %q", got)
	}
}

func TestReadinessGate(t *testing.T) {
	m := newMachine(t, false)
	m.create(newPod("web", func(p *corev1.Pod) {
		p.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "example.com/gate"}}
	}))
	m.wait("containers are ready", func() bool {
		c := condition(m.pod("web"), corev1.ContainersReady)
		return c != nil && c.Status == corev1.ConditionTrue
	})
	if c := condition(m.pod("web"), corev1.PodReady); c.Status != corev1.ConditionFalse || c.Reason != "ReadinessGatesNotReady" {
		t.Fatalf("Ready is %+v", c)
	}
	if _, err := client.Of[*corev1.Pod](m.api).Patch(context.Background(), "default", "web", types.StrategicMergePatchType,
		[]byte(`{"status":{"conditions":[{"type":"example.com/gate","status":"True"}]}}`), "status"); err != nil {
		t.Fatal(err)
	}
	m.waitReady("web")
	if c := condition(m.pod("web"), "example.com/gate"); c == nil {
		t.Error("the gate's condition was lost")
	}
}

func TestDeletionDuringAPullEndsAtOnce(t *testing.T) {
	m := newMachine(t, false)
	m.rt.Missing("img/main:1")
	block := make(chan struct{})
	defer close(block)
	m.rt.OnPull(func(string, *runtimeapi.AuthConfig) error { <-block; return nil })
	m.create(newPod("web"))
	m.waitFor("pulling", func() bool { return len(m.rt.Pulls()) == 1 })
	m.delete("web", nil)
	m.wait("the pod is gone", func() bool { return m.pod("web") == nil })
}

func TestStatusIsWrittenSparingly(t *testing.T) {
	m := newMachine(t, false)
	m.create(newPod("web"))
	m.waitReady("web")
	m.rt.BreakStreams() // a full list of the runtime is no news
	m.create(newPod("other"))
	m.waitReady("other")
	n := 0
	for _, a := range m.api.Actions(false) {
		if a.Ref.Resource == "pods" && a.Ref.Name == "web" && a.Ref.Subresource == "status" {
			n++
		}
	}
	if n > 4 {
		t.Errorf("%d status writes for one start, want at most 4", n)
	}
}

func TestFinalizerKeepsThePodButNotItsContainers(t *testing.T) {
	m := newMachine(t, false)
	m.create(newPod("web", func(p *corev1.Pod) { p.Finalizers = []string{"example.com/wait"} }))
	m.waitReady("web")
	m.delete("web", nil)
	m.waitFor("removed from the runtime", func() bool { s, _ := m.rt.Size(); return s == 0 })
	m.wait("its last status is there", func() bool { p := m.pod("web"); return p != nil && p.Status.Phase == corev1.PodFailed })
	if _, err := client.Of[*corev1.Pod](m.api).Patch(context.Background(), "default", "web", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), ""); err != nil {
		t.Fatal(err)
	}
	m.wait("gone", func() bool { return m.pod("web") == nil })
	m.waitFor("forgotten", func() bool { return len(m.agent.Pods()) == 0 })
}

func TestObservedGeneration(t *testing.T) {
	m := newMachine(t, false)
	m.create(newPod("web", func(p *corev1.Pod) { p.Generation = 3 }))
	m.waitReady("web")
	p := m.pod("web")
	if p.Status.ObservedGeneration != 3 || condition(p, corev1.PodReady).ObservedGeneration != 3 {
		t.Errorf("observed generation %d, of Ready %d, want 3", p.Status.ObservedGeneration, condition(p, corev1.PodReady).ObservedGeneration)
	}
}
