package node_test

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func execProbe(word string) *corev1.Probe {
	return &corev1.Probe{PeriodSeconds: 1, FailureThreshold: 1, SuccessThreshold: 1, TimeoutSeconds: 1,
		ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{word}}}}
}

// answers makes the runtime answer commands by what the map says of their first word.
type answers map[string]*atomic.Bool

func (a answers) exec(_ *runtimeapi.ContainerStatus, cmd []string) (string, string, int) {
	if v := a[cmd[0]]; v != nil && v.Load() {
		return "fine", "", 0
	}
	return "not well", "", 1
}

func TestReadinessFollowsTheProbe(t *testing.T) {
	m := newMachine(t, false)
	a := answers{"ready": {}}
	m.rt.OnExec(a.exec)
	m.create(newPod("web", func(p *corev1.Pod) { p.Spec.Containers[0].ReadinessProbe = execProbe("ready") }))
	m.wait("running, not ready", func() bool {
		p := m.pod("web")
		c := condition(p, corev1.PodReady)
		return p.Status.Phase == corev1.PodRunning && c.Status == corev1.ConditionFalse && c.Reason == "ContainersNotReady" &&
			c.Message == "containers with unready status: [main]"
	})
	a["ready"].Store(true)
	start := time.Now()
	m.waitReady("web")
	if took := time.Since(start); took > 900*time.Millisecond {
		t.Logf("ready only %s after the probe would succeed", took)
	}
	a["ready"].Store(false)
	m.wait("not ready again", func() bool { return !isReady(m.pod("web")) })
	if !m.events.has("spec.containers{main}", "Warning Unhealthy: Readiness probe failed: not well") {
		t.Errorf("no Unhealthy event in:\n%s", m.events.all())
	}
	if got := container(m.pod("web"), "main").RestartCount; got != 0 {
		t.Errorf("a readiness probe restarted the container")
	}
}

func TestLivenessProbeRestarts(t *testing.T) {
	m := newMachine(t, false)
	a := answers{"alive": {}}
	a["alive"].Store(true)
	m.rt.OnExec(a.exec)
	m.create(newPod("web", func(p *corev1.Pod) { p.Spec.Containers[0].LivenessProbe = execProbe("alive") }))
	m.waitReady("web")
	a["alive"].Store(false)
	m.wait("restarted", func() bool { return container(m.pod("web"), "main").RestartCount >= 1 })
	for _, e := range []string{"Warning Unhealthy: Liveness probe failed: not well", "Normal Killing: Container main failed liveness probe, will be restarted"} {
		if !m.events.has(e) {
			t.Errorf("no event %q in:\n%s", e, m.events.all())
		}
	}
}

func TestStartupProbeHoldsBackTheOthersAndKills(t *testing.T) {
	m := newMachine(t, false)
	a := answers{"started": {}, "alive": {}}
	m.rt.OnExec(a.exec)
	slow := execProbe("started")
	slow.FailureThreshold = 3
	m.create(newPod("web", func(p *corev1.Pod) {
		p.Spec.Containers[0].StartupProbe = slow
		p.Spec.Containers[0].LivenessProbe = execProbe("alive")
	}))
	m.wait("killed by its startup probe", func() bool { return container(m.pod("web"), "main").RestartCount >= 1 })
	if m.events.has("Liveness probe failed") {
		t.Error("the liveness probe ran before the container had started")
	}
	if !m.events.has("Normal Killing: Container main failed startup probe, will be restarted") {
		t.Errorf("no Killing event in:\n%s", m.events.all())
	}
}

func TestProbesOverTheNetwork(t *testing.T) {
	var status atomic.Int32
	status.Store(503)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/healthz" || r.Header.Get("X-Probe") != "yes" || !strings.HasPrefix(r.Header.Get("User-Agent"), "kube-probe/") {
			w.WriteHeader(http.StatusTeapot)
			return
		}
		w.WriteHeader(int(status.Load()))
	}))
	defer web.Close()
	port := web.Listener.Addr().(*net.TCPAddr).Port
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server, service := grpc.NewServer(), health.NewServer()
	healthpb.RegisterHealthServer(server, service)
	go func() { _ = server.Serve(listener) }()
	defer server.Stop()
	service.SetServingStatus("shop", healthpb.HealthCheckResponse_SERVING)

	m := newMachine(t, false)
	probe := func(h corev1.ProbeHandler) *corev1.Probe {
		return &corev1.Probe{PeriodSeconds: 1, FailureThreshold: 1, SuccessThreshold: 1, TimeoutSeconds: 1, ProbeHandler: h}
	}
	m.create(newPod("http", func(p *corev1.Pod) {
		p.Spec.Containers[0].Ports = []corev1.ContainerPort{{Name: "web", ContainerPort: int32(port)}}
		p.Spec.Containers[0].ReadinessProbe = probe(corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Host: "127.0.0.1", Port: intstr.FromString("web"), Path: "/healthz",
			HTTPHeaders: []corev1.HTTPHeader{{Name: "X-Probe", Value: "yes"}}}})
	}))
	m.create(newPod("tcp", func(p *corev1.Pod) {
		p.Spec.Containers[0].ReadinessProbe = probe(corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Host: "127.0.0.1", Port: intstr.FromInt32(int32(port))}})
	}))
	m.create(newPod("grpc", func(p *corev1.Pod) {
		p.Spec.HostNetwork = true
		p.Spec.Containers[0].ReadinessProbe = probe(corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: int32(listener.Addr().(*net.TCPAddr).Port), Service: ptr("shop")}})
	}))
	m.waitReady("tcp")
	m.waitFor("told of the status", func() bool {
		return m.events.has("http", "Unhealthy: Readiness probe failed: HTTP probe failed with statuscode: 503")
	})
	status.Store(200)
	m.waitReady("http")
	// The node's address is not one of this machine: the probe can't reach the server, and says so.
	m.waitFor("told of the address", func() bool { return m.events.has("grpc", "Unhealthy: Readiness probe failed: ") })
}

func TestHooks(t *testing.T) {
	m := newMachine(t, false)
	var order []string
	m.rt.OnExec(func(_ *runtimeapi.ContainerStatus, cmd []string) (string, string, int) {
		order = append(order, cmd[0])
		return "", "", 0
	})
	m.create(newPod("web", func(p *corev1.Pod) {
		p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{
			PostStart: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"post"}}},
			PreStop:   &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"pre"}}},
		}
	}))
	m.waitReady("web")
	m.delete("web", nil)
	m.wait("gone", func() bool { return m.pod("web") == nil })
	if !slices.Equal(order, []string{"post", "pre"}) {
		t.Errorf("hooks ran: %v", order)
	}
}

func TestFailedPostStartKillsTheContainer(t *testing.T) {
	m := newMachine(t, true)
	m.rt.OnExec(func(*runtimeapi.ContainerStatus, []string) (string, string, int) { return "", "secret words", 1 })
	m.create(newPod("web", func(p *corev1.Pod) {
		p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"post"}}}}
	}))
	m.waitFor("told", func() bool { return m.events.has("Warning FailedPostStartHook: PostStartHook failed") })
	m.wait("restarting", func() bool { return container(m.pod("web"), "main").LastTerminationState.Terminated != nil })
	if m.events.has("secret words") {
		t.Error("the output of a hook is in an event")
	}
}

func TestImagePullFailureBacksOffAndRecovers(t *testing.T) {
	m := newMachine(t, true)
	m.rt.Missing("img/main:1")
	var ok atomic.Bool
	m.rt.OnPull(func(string, *runtimeapi.AuthConfig) error {
		if ok.Load() {
			return nil
		}
		return errors.New("manifest unknown")
	})
	m.create(newPod("web"))
	m.wait("ErrImagePull", func() bool { return waiting(m.pod("web"), "main") == "ErrImagePull" })
	if got := container(m.pod("web"), "main").State.Waiting.Message; got != "manifest unknown" {
		t.Errorf("message %q", got)
	}
	m.fake.Step(time.Second)
	m.wait("ImagePullBackOff", func() bool { return waiting(m.pod("web"), "main") == "ImagePullBackOff" })
	if got := container(m.pod("web"), "main").State.Waiting.Message; got != `Back-off pulling image "img/main:1": ErrImagePull: manifest unknown` {
		t.Errorf("message %q", got)
	}
	for _, e := range []string{`Normal Pulling: Pulling image "img/main:1"`, `Warning Failed: Failed to pull image "img/main:1": manifest unknown`,
		`Warning Failed: Error: ErrImagePull`, `Normal BackOff: Back-off pulling image "img/main:1"`, `Warning Failed: Error: ImagePullBackOff`} {
		if !m.events.has("spec.containers{main}", e) {
			t.Errorf("no event %q in:\n%s", e, m.events.all())
		}
	}
	ok.Store(true)
	m.fake.Step(10 * time.Second)
	m.waitReady("web")
	if !m.events.has(`Normal Pulled: Successfully pulled image "img/main:1" in `) {
		t.Errorf("no Pulled event in:\n%s", m.events.all())
	}
}

func TestPullSecretsReachTheRuntime(t *testing.T) {
	m := newMachine(t, false, &corev1.Secret{ObjectMeta: meta("regcred"), Type: corev1.SecretTypeDockerConfigJson, Data: map[string][]byte{
		".dockerconfigjson": []byte(`{"auths":{"https://registry.example.com:5000/":{"auth":"bWU6cHc="},"other.example.com":{"username":"x","password":"y"}}}`)}})
	m.rt.Missing("registry.example.com:5000/team/app:1")
	m.rt.OnPull(func(_ string, auth *runtimeapi.AuthConfig) error {
		if auth.GetUsername() != "me" || auth.GetPassword() != "pw" {
			return errors.New("unauthorized")
		}
		return nil
	})
	m.create(newPod("web", func(p *corev1.Pod) {
		p.Spec.Containers[0].Image = "registry.example.com:5000/team/app:1"
		p.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "regcred"}, {Name: "nosuch"}}
	}))
	m.waitReady("web")
	if !m.events.has("FailedToRetrieveImagePullSecret: Unable to retrieve some image pull secrets (nosuch);") {
		t.Errorf("the missing secret is not told of:\n%s", m.events.all())
	}
}

func TestPullPolicyNever(t *testing.T) {
	m := newMachine(t, false)
	m.rt.Missing("img/main:1")
	m.create(newPod("web", func(p *corev1.Pod) { p.Spec.Containers[0].ImagePullPolicy = corev1.PullNever }))
	m.wait("ErrImageNeverPull", func() bool { return waiting(m.pod("web"), "main") == "ErrImageNeverPull" })
	if len(m.rt.Pulls()) > 0 {
		t.Error("it was pulled")
	}
}
