package node_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/clock"

	"github.com/yare-project/yare/client"
	apifake "github.com/yare-project/yare/client/fake"
	"github.com/yare-project/yare/node"
	"github.com/yare-project/yare/node/cgroup"
	"github.com/yare-project/yare/node/cri"
	"github.com/yare-project/yare/node/host"
	"github.com/yare-project/yare/node/runtime/runtimetest"
	"github.com/yare-project/yare/node/volume"
)

// realMachine is an agent with a real container runtime, real mounts and real cgroups, over a fake API.
func realMachine(t *testing.T, objects ...client.Object) (*machineUnderTest, func(*node.Config)) {
	t.Helper()
	dir := t.TempDir()
	config := runtimetest.Config(t, dir)
	r := runtimetest.Start(t, config)
	runtimetest.ImportProg(t, r)
	conn, err := cri.Connect(t.Context(), r.Endpoint())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(t.Context()) })
	facts, err := host.Read()
	if err != nil {
		t.Fatal(err)
	}
	groups, err := cgroup.New(cgroup.Config{Parent: "/" + config.CgroupRoots[0], CPUs: facts.CPUs})
	if err != nil {
		t.Fatal(err)
	}
	m := &machineUnderTest{t: t, cgroups: config.CgroupRoots[0], root: filepath.Join(dir, "agent"), events: &recorded{}, clock: clock.RealClock{}}
	m.api = apifake.New(nil, objects...)
	real := func(c *node.Config) {
		c.Runtime, c.Images, c.Cgroups, c.Mounter, c.Host = conn, conn, groups, volume.Kernel{}, &facts
	}
	m.rt = nil
	m.run(real)
	t.Cleanup(func() {
		m.stop()
		if err := (volume.Kernel{}).UnmountUnder(m.root); err != nil {
			t.Error(err)
		}
		if err := groups.Close(); err != nil {
			t.Log(err) // the runtime's removal, which comes after this, ends what is left
		}
	})
	return m, real
}

// waitLog waits until a pod's container has printed text.
func (m *machineUnderTest) waitLog(pod, text string) {
	m.t.Helper()
	m.waitFor(pod+" prints "+text, func() bool {
		c, err := m.agent.Container("default", pod, "", "main", false)
		if err != nil {
			return false
		}
		b, _ := os.ReadFile(c.LogPath)
		return strings.Contains(string(b), text)
	})
}

func prog(args ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Containers[0].Image, p.Spec.Containers[0].Args = runtimetest.Image, args
	}
}

func TestRealContainers(t *testing.T) {
	m, real := realMachine(t,
		&corev1.ConfigMap{ObjectMeta: meta("cm"), Data: map[string]string{"greeting": "hello"}},
		&corev1.Secret{ObjectMeta: meta("sec"), Data: map[string][]byte{"password": []byte("geheim")}},
		&corev1.ServiceAccount{ObjectMeta: meta("default")})
	m.api.OnCreate("serviceaccounts/token", func(_ client.Object, body runtime.Object) (runtime.Object, bool, error) {
		tr := body.(*authv1.TokenRequest).DeepCopy()
		tr.Status = authv1.TokenRequestStatus{Token: "t", ExpirationTimestamp: metav1.NewTime(time.Now().Add(time.Hour))}
		return tr, false, nil
	})
	m.wait("node is ready", func() bool { return nodeCondition(m.node(), corev1.NodeReady).Status == corev1.ConditionTrue })

	t.Run("a plain pod runs, and how long it takes", func(t *testing.T) {
		m.t = t
		start := time.Now()
		m.create(newPod("plain", prog("wait")))
		m.waitReady("plain")
		t.Logf("ready after %s", time.Since(start).Round(time.Millisecond))
		c := container(m.pod("plain"), "main")
		if !strings.HasPrefix(c.ContainerID, "containerd://") || c.Image != runtimetest.Image {
			t.Errorf("container status %+v", c)
		}
		m.waitLog("plain", "waiting") // before that it knows no signal yet
		start = time.Now()
		m.delete("plain", nil)
		m.wait("gone", func() bool { return m.pod("plain") == nil })
		t.Logf("gone after %s", time.Since(start).Round(time.Millisecond))
	})
	t.Run("volumes, probes, limits and init containers", func(t *testing.T) { m.t = t; realVolumes(t, m) })
	t.Run("restart, exit codes and messages", func(t *testing.T) {
		m.t = t
		m.create(newPod("exits", prog("exit", "7"), restart(corev1.RestartPolicyNever)))
		m.create(newPod("tail", prog("print", "one", "two"), restart(corev1.RestartPolicyNever)))
		m.waitPhase("exits", corev1.PodFailed)
		m.waitPhase("tail", corev1.PodSucceeded)
		if got := container(m.pod("exits"), "main").State.Terminated; got.ExitCode != 7 || got.Reason != "Error" {
			t.Errorf("terminated: %+v", got)
		}
		v, err := m.agent.Container("default", "tail", "", "main", false)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := os.ReadFile(v.LogPath); err != nil || !strings.Contains(string(b), "stdout F two") {
			t.Errorf("log %q, %v", b, err)
		}
		m.create(newPod("crash", prog("wait")))
		m.waitReady("crash")
		kill(t, m, "crash")
		m.wait("restarted", func() bool { p := m.pod("crash"); return container(p, "main").RestartCount == 1 && isReady(p) })
		if got := container(m.pod("crash"), "main").LastTerminationState.Terminated; got == nil || got.ExitCode != 137 {
			t.Errorf("last state %+v", got)
		}
	})
	t.Run("the next agent adopts them", func(t *testing.T) {
		m.t = t
		before := id(m.pod("crash"), "main")
		m.stop()
		m.run(real)
		m.waitFor("known", func() bool {
			p, ok := m.agent.Pod("default", "crash")
			return ok && id(p, "main") == before && isReady(p)
		})
		kill(t, m, "crash")
		m.wait("its end is seen", func() bool {
			return waiting(m.pod("crash"), "main") == "CrashLoopBackOff" || container(m.pod("crash"), "main").RestartCount == 2
		})
	})
	t.Run("nothing is left", func(t *testing.T) {
		m.t = t
		for _, name := range []string{"full", "exits", "tail", "crash"} {
			m.delete(name, ptr(int64(3)))
		}
		m.wait("all gone", func() bool {
			return m.pod("full") == nil && m.pod("exits") == nil && m.pod("tail") == nil && m.pod("crash") == nil
		})
		left, _ := filepath.Glob(m.root + "/pods/[^.]*")
		groups, _ := filepath.Glob("/sys/fs/cgroup/*/" + m.cgroups + "/*/pod*")
		more, _ := filepath.Glob("/sys/fs/cgroup/*/" + m.cgroups + "/pod*")
		mounts, _ := os.ReadFile("/proc/self/mountinfo") // the node's memory folder is one
		if d := cmp.Diff([]string(nil), append(left, append(groups, more...)...)); d != "" || strings.Count(string(mounts), m.root+"/pods/") > 1 {
			t.Errorf("left (-want +got):\n%s\nmounts: %d", d, strings.Count(string(mounts), m.root+"/pods/"))
		}
	})
}

// kill kills a container's process, as a crash would.
func kill(t *testing.T, m *machineUnderTest, pod string) {
	t.Helper()
	dirs, _ := filepath.Glob("/sys/fs/cgroup/pids/" + m.cgroups + "/*/pod" + string(m.pod(pod).UID) + "/" + id(m.pod(pod), "main"))
	more, _ := filepath.Glob("/sys/fs/cgroup/" + m.cgroups + "/*/pod" + string(m.pod(pod).UID) + "/" + id(m.pod(pod), "main"))
	dirs = append(dirs, more...)
	if len(dirs) != 1 {
		t.Fatalf("cgroups of the container: %v", dirs)
	}
	b, err := os.ReadFile(dirs[0] + "/cgroup.procs")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Fields(string(b)) {
		var pid int
		if _, err := fmt.Sscan(line, &pid); err != nil {
			t.Fatal(err)
		}
		p, err := os.FindProcess(pid)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Kill(); err != nil {
			t.Fatal(err)
		}
	}
}

func realVolumes(t *testing.T, m *machineUnderTest) {
	m.create(newPod("full", prog("http", ":8080", "hi"), func(p *corev1.Pod) {
		init := ctr("init")
		init.Image, init.Args = runtimetest.Image, []string{"print", "ready to go"}
		init.VolumeMounts = []corev1.VolumeMount{mount("tmp", "/tmp")}
		p.Spec.InitContainers = []corev1.Container{init}
		p.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: ptr(int64(1000)), FSGroup: ptr(int64(2000)), RunAsNonRoot: ptr(true)}
		p.Spec.Volumes = []corev1.Volume{
			{Name: "cm", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "cm"}}}},
			{Name: "sec", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "sec"}}},
			{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
			{Name: "ram", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}}},
			{Name: "api", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
				{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}}}}}}}
		c := &p.Spec.Containers[0]
		c.Resources = corev1.ResourceRequirements{Requests: quantities("50m", "32Mi"), Limits: quantities("500m", "64Mi")}
		c.VolumeMounts = []corev1.VolumeMount{mount("cm", "/cm"), mount("sec", "/sec"), mount("tmp", "/tmp"), mount("ram", "/ram"), mount("api", "/api"),
			{Name: "cm", MountPath: "/one", SubPath: "greeting"}, {Name: "tmp", MountPath: "/deep", SubPath: "a/b"}}
		probe := func(h corev1.ProbeHandler) *corev1.Probe {
			return &corev1.Probe{PeriodSeconds: 1, FailureThreshold: 30, SuccessThreshold: 1, TimeoutSeconds: 2, ProbeHandler: h}
		}
		c.ReadinessProbe = probe(corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromInt32(8080)}})
		c.LivenessProbe = probe(corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(8080)}})
		c.StartupProbe = probe(corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"/prog", "print"}}})
	}))
	start := time.Now()
	m.waitReady("full")
	t.Logf("ready after %s", time.Since(start).Round(time.Millisecond))
	uid := m.pod("full").UID
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{m.root + "/pods/.memory ", string(uid) + "/volumes/kubernetes.io~empty-dir/ram ", string(uid) + "/volume-subpaths/cm/main/"} {
		if !strings.Contains(string(mounts), want) {
			t.Errorf("nothing is mounted at %s", want)
		}
	}
	cg := cgroupFile(t, m, uid, "cpu", "cpu.cfs_quota_us", "cpu.max")
	if !strings.HasPrefix(cg, "50000") && cg != "-1" && !strings.HasPrefix(cg, "max") {
		t.Errorf("CPU quota of the pod: %s", cg)
	}
}

// cgroupFile reads a limit of a pod's cgroup, by its v1 or its v2 name.
func cgroupFile(t *testing.T, m *machineUnderTest, uid types.UID, controller, v1, v2 string) string {
	t.Helper()
	for _, pattern := range []string{"/sys/fs/cgroup/" + controller + "/" + m.cgroups + "/*/pod" + string(uid) + "/" + v1,
		"/sys/fs/cgroup/" + m.cgroups + "/*/pod" + string(uid) + "/" + v2} {
		if found, _ := filepath.Glob(pattern); len(found) == 1 {
			b, err := os.ReadFile(found[0])
			if err != nil {
				t.Fatal(err)
			}
			return strings.TrimSpace(string(b))
		}
	}
	t.Fatalf("the pod has no cgroup with %s", v1)
	return ""
}
