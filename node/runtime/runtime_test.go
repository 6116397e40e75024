package runtime_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/yare-project/yare/node/image"
	"github.com/yare-project/yare/node/runtime"
)

const progImage = "example.test/prog:v1"

// binDir is where `make programs` puts containerd and the others.
func binDir(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED, NOT TESTED: running containers needs root; run the tests as root")
	}
	dir, err := filepath.Abs("../../bin")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{"containerd", "pause"} {
		if _, err := os.Stat(filepath.Join(dir, p)); err != nil {
			t.Fatalf("%s is not built: run `make programs` first: %v", p, err)
		}
	}
	return dir
}

var prog = sync.OnceValues(func() (string, error) {
	out := filepath.Join(os.TempDir(), "yare-test-prog")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", out, "./testdata/prog")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if b, err := cmd.CombinedOutput(); err != nil {
		return string(b), err
	}
	return out, nil
})

// progArchive is an image archive with the test program, named progImage.
func progArchive(t *testing.T) []byte {
	t.Helper()
	path, err := prog()
	if err != nil {
		t.Fatalf("build test program: %v: %s", err, path)
	}
	img, err := image.Build(image.Spec{Files: map[string]string{"/prog": path}, Entrypoint: []string{"/prog"}})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := image.Save(&b, progImage, img); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestMain(m *testing.M) {
	code := m.Run()
	if path, err := prog(); err == nil {
		os.Remove(path)
	}
	os.Exit(code)
}

// machine is what a removed runtime must leave as it was.
type machine struct{ Mounts, Links, Cgroups, Namespaces, Processes, Tables, Forward string }

func observeMachine(t *testing.T, dir string) machine {
	t.Helper()
	run := func(name string, args ...string) string {
		b, err := exec.Command(name, args...).CombinedOutput()
		if err != nil {
			t.Fatalf("%s %v: %v: %s", name, args, err, b)
		}
		return string(b)
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	forward, err := os.ReadFile("/proc/sys/net/ipv4/ip_forward")
	if err != nil {
		t.Fatal(err)
	}
	var ours []string
	for line := range strings.SplitSeq(run("ps", "-eo", "args"), "\n") {
		if strings.Contains(line, dir) || strings.Contains(line, "/run/yare/") || strings.HasPrefix(line, "/prog") || strings.HasPrefix(line, "/pause") {
			ours = append(ours, line)
		}
	}
	return machine{
		Mounts: string(mounts), Links: run("ip", "-o", "link", "show", "type", "bridge") + run("ip", "-o", "link", "show", "type", "veth"),
		Cgroups:    run("find", "/sys/fs/cgroup", "-type", "d", "-path", "*"+cgroupRoot+"*"),
		Namespaces: run("sh", "-c", "lsns -n -t net -o ns | wc -l"), Processes: strings.Join(ours, "\n"),
		Tables: run("nft", "list", "tables"), Forward: string(forward),
	}
}

const cgroupRoot = "yare-runtime-test"

func config(t *testing.T, dir string) runtime.Config {
	return runtime.Config{
		Dir: dir, BinDir: binDir(t), CgroupRoots: []string{cgroupRoot},
		PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.231.7.0/24")},
		Log:      slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
}

func start(t *testing.T, cfg runtime.Config) *runtime.Runtime {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	began := time.Now()
	r, err := runtime.Start(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("runtime ready after %v", time.Since(began).Round(time.Millisecond))
	return r
}

// pod is one sandbox with helpers around CRI.
type pod struct {
	t    *testing.T
	c    cri.RuntimeServiceClient
	id   string
	conf *cri.PodSandboxConfig
	logs string
}

func runPod(t *testing.T, r *runtime.Runtime, name string, change ...func(*cri.PodSandboxConfig)) *pod {
	t.Helper()
	p := &pod{t: t, c: cri.NewRuntimeServiceClient(r.Conn()), logs: t.TempDir()}
	p.conf = &cri.PodSandboxConfig{
		Metadata:     &cri.PodSandboxMetadata{Name: name, Namespace: "default", Uid: name + "-uid"},
		Hostname:     name,
		LogDirectory: p.logs,
		Linux:        &cri.LinuxPodSandboxConfig{CgroupParent: "/" + cgroupRoot + "/" + name},
	}
	for _, f := range change {
		f(p.conf)
	}
	began := time.Now()
	resp, err := p.c.RunPodSandbox(t.Context(), &cri.RunPodSandboxRequest{Config: p.conf})
	if err != nil {
		t.Fatalf("run pod: %v", err)
	}
	t.Logf("sandbox ran after %v", time.Since(began).Round(time.Millisecond))
	p.id = resp.PodSandboxId
	return p
}

func (p *pod) run(name string, args ...string) string {
	p.t.Helper()
	began := time.Now()
	created, err := p.c.CreateContainer(p.t.Context(), &cri.CreateContainerRequest{
		PodSandboxId: p.id, SandboxConfig: p.conf,
		Config: &cri.ContainerConfig{
			Metadata: &cri.ContainerMetadata{Name: name}, Image: &cri.ImageSpec{Image: progImage}, Args: args, LogPath: name + ".log",
			Linux: &cri.LinuxContainerConfig{
				Resources: &cri.LinuxContainerResources{OomScoreAdj: -997, MemoryLimitInBytes: 64 << 20, CpuQuota: 50000, CpuPeriod: 100000, CpuShares: 512},
				SecurityContext: &cri.LinuxContainerSecurityContext{
					Seccomp: &cri.SecurityProfile{ProfileType: cri.SecurityProfile_RuntimeDefault}, NoNewPrivs: true,
				},
			},
		},
	})
	if err != nil {
		p.t.Fatalf("create container: %v", err)
	}
	if _, err := p.c.StartContainer(p.t.Context(), &cri.StartContainerRequest{ContainerId: created.ContainerId}); err != nil {
		p.t.Fatalf("start container: %v", err)
	}
	p.t.Logf("container %s started after %v", name, time.Since(began).Round(time.Millisecond))
	return created.ContainerId
}

func (p *pod) state(id string) *cri.ContainerStatus {
	p.t.Helper()
	resp, err := p.c.ContainerStatus(p.t.Context(), &cri.ContainerStatusRequest{ContainerId: id})
	if err != nil {
		p.t.Fatal(err)
	}
	return resp.Status
}

func (p *pod) exec(id string, cmd ...string) string {
	p.t.Helper()
	resp, err := p.c.ExecSync(p.t.Context(), &cri.ExecSyncRequest{ContainerId: id, Cmd: cmd, Timeout: 20})
	if err != nil {
		p.t.Fatalf("exec %v: %v", cmd, err)
	}
	if resp.ExitCode != 0 {
		p.t.Fatalf("exec %v: exit code %d: %s", cmd, resp.ExitCode, resp.Stderr)
	}
	return string(resp.Stdout)
}

// events of containers, from now on.
func events(t *testing.T, r *runtime.Runtime) <-chan *cri.ContainerEventResponse {
	t.Helper()
	stream, err := cri.NewRuntimeServiceClient(r.Conn()).GetContainerEvents(t.Context(), &cri.GetEventsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	out := make(chan *cri.ContainerEventResponse, 100)
	go func() {
		defer close(out)
		for {
			e, err := stream.Recv()
			if err != nil {
				return
			}
			out <- e
		}
	}()
	return out
}

func await(t *testing.T, ch <-chan *cri.ContainerEventResponse, id string, want cri.ContainerEventType) {
	t.Helper()
	limit := time.After(20 * time.Second)
	for {
		select {
		case e, ok := <-ch:
			if !ok {
				t.Fatalf("event stream ended before %v of %s", want, id)
			}
			if e.ContainerId == id && e.ContainerEventType == want {
				return
			}
		case <-limit:
			t.Fatalf("no event %v of %s", want, id)
		}
	}
}

func importProg(t *testing.T, r *runtime.Runtime) {
	t.Helper()
	if _, err := r.Images().Import(t.Context(), bytes.NewReader(progArchive(t)), image.ImportOptions{}); err != nil {
		t.Fatal(err)
	}
}

// One life: a pod runs, survives the daemon's crash and Yare's, and leaves nothing.
func TestPodLifeAcrossCrashes(t *testing.T) {
	dir := t.TempDir()
	cfg := config(t, dir)
	before := observeMachine(t, dir)
	r := start(t, cfg)
	removed := false
	t.Cleanup(func() {
		if !removed {
			if err := runtime.Remove(context.Background(), cfg); err != nil {
				t.Errorf("clean up: %v", err)
			}
		}
	})
	importProg(t, r)
	p := runPod(t, r, "life")
	ev := events(t, r)
	id := p.run("main", "wait")
	short := p.run("short", "exit", "3")
	await(t, ev, short, cri.ContainerEventType_CONTAINER_STOPPED_EVENT)
	if s := p.state(short); s.State != cri.ContainerState_CONTAINER_EXITED || s.ExitCode != 3 {
		t.Errorf("a program that exits 3 has state %v, exit code %d", s.State, s.ExitCode)
	}
	if got := p.exec(id, "/prog", "print", "hello", "there"); got != "hello\nthere\n" {
		t.Errorf("exec printed %q", got)
	}
	addr, err := p.c.PodSandboxStatus(t.Context(), &cri.PodSandboxStatusRequest{PodSandboxId: p.id})
	if err != nil {
		t.Fatal(err)
	}
	if ip, err := netip.ParseAddr(addr.Status.Network.Ip); err != nil || !cfg.PodCIDRs[0].Contains(ip) {
		t.Errorf("pod address %q is not in %s", addr.Status.Network.Ip, cfg.PodCIDRs[0])
	}

	// Yare is killed and started again: the daemon is taken over, the container runs on.
	daemon := daemonPID(t, cfg)
	r.Detach()
	r = start(t, cfg)
	p.c = cri.NewRuntimeServiceClient(r.Conn())
	if now := daemonPID(t, cfg); now != daemon {
		t.Errorf("the daemon was not taken over: process %d became %d", daemon, now)
	}
	if s := p.state(id); s.State != cri.ContainerState_CONTAINER_RUNNING {
		t.Errorf("after Yare's restart the container is %v", s.State)
	}

	// The daemon is killed, and comes back by itself.
	if err := syscall.Kill(daemon, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	awaitDaemon(t, p.c, cfg, daemon)
	if s := p.state(id); s.State != cri.ContainerState_CONTAINER_RUNNING {
		t.Errorf("after the daemon's crash the container is %v", s.State)
	}
	if got := p.exec(id, "/prog", "print", "again"); got != "again\n" {
		t.Errorf("exec after the crash printed %q", got)
	}

	// Yare ends in order and starts: same again.
	if err := r.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	r = start(t, cfg)
	p.c = cri.NewRuntimeServiceClient(r.Conn())
	if s := p.state(id); s.State != cri.ContainerState_CONTAINER_RUNNING {
		t.Errorf("after a stop and start the container is %v", s.State)
	}
	log, err := os.ReadFile(filepath.Join(p.logs, "main.log"))
	if err != nil || !strings.Contains(string(log), " stdout F waiting\n") {
		t.Errorf("container log is %q, %v", log, err)
	}

	if err := r.Remove(t.Context()); err != nil {
		t.Errorf("remove: %v", err)
	}
	removed = true
	if diff := cmp.Diff(before, observeMachine(t, dir)); diff != "" {
		t.Errorf("the machine is not as it was before (-before +after):\n%s", diff)
	}
}

// Both the daemon and Yare are gone, and so is a shim: Remove still leaves nothing.
func TestRemoveAfterEverythingWasKilled(t *testing.T) {
	dir := t.TempDir()
	cfg := config(t, dir)
	before := observeMachine(t, dir)
	r := start(t, cfg)
	t.Cleanup(func() { _ = runtime.Remove(context.Background(), cfg) })
	importProg(t, r)
	runPod(t, r, "left").run("main", "wait")
	r.Detach()
	if err := syscall.Kill(daemonPID(t, cfg), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	// Without programs the daemon can't be started to help: the sweep does it all.
	broken := cfg
	broken.BinDir = t.TempDir()
	if err := runtime.Remove(t.Context(), broken); err != nil {
		t.Errorf("remove: %v", err)
	}
	if diff := cmp.Diff(before, observeMachine(t, dir)); diff != "" {
		t.Errorf("the machine is not as it was before (-before +after):\n%s", diff)
	}
}

func TestMissingProgramsAreNamed(t *testing.T) {
	_, err := runtime.Start(t.Context(), runtime.Config{Dir: t.TempDir(), BinDir: t.TempDir()})
	if err == nil || !strings.Contains(err.Error(), "containerd-shim-runc-v2") || !strings.Contains(err.Error(), "make programs") {
		t.Errorf("error should name the programs and the remedy: %v", err)
	}
}
