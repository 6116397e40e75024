package runtime_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/yare-project/yare/node/runtime"
	"github.com/yare-project/yare/node/runtime/runtimetest"
)

// One life: a pod runs, survives the daemon's crash and Yare's, and leaves nothing.
func TestPodLifeAcrossCrashes(t *testing.T) {
	cfg := runtimetest.Config(t, t.TempDir())
	r := runtimetest.Start(t, cfg)
	runtimetest.ImportProg(t, r)
	p := runtimetest.RunPod(t, r, "life")
	ev := runtimetest.Events(t, r)
	id := p.Run("main", "wait")
	short := p.Run("short", "exit", "3")
	runtimetest.Await(t, ev, short, cri.ContainerEventType_CONTAINER_STOPPED_EVENT)
	if s := p.Status(short); s.State != cri.ContainerState_CONTAINER_EXITED || s.ExitCode != 3 {
		t.Errorf("a program that exits 3 has state %v, exit code %d", s.State, s.ExitCode)
	}
	if got := p.Exec(id, "/prog", "print", "hello", "there"); got != "hello\nthere\n" {
		t.Errorf("exec printed %q", got)
	}
	if ip, err := netip.ParseAddr(p.IP()); err != nil || !cfg.PodCIDRs[0].Contains(ip) {
		t.Errorf("pod address %q is not in %s", p.IP(), cfg.PodCIDRs[0])
	}

	// Yare is killed and started again: the daemon is taken over, the container runs on.
	daemon := daemonPID(t, r)
	r.Detach()
	r = runtimetest.Start(t, cfg)
	p.Reconnect(r)
	if now := daemonPID(t, r); now != daemon {
		t.Errorf("the daemon was not taken over: process %d became %d", daemon, now)
	}
	mustRun(t, p, id, "Yare's restart")
	// What the checks of leftovers look for is there while the pod runs.
	if m := runtimetest.Observe(t, cfg); m.Mounts == "" || m.Interfaces == "" || m.Cgroups == "" || strings.Count(m.Processes, "\n") < 4 || !m.RunDir {
		t.Errorf("a running pod is not observed: %+v", m)
	}

	// The daemon is killed, and comes back by itself.
	if err := syscall.Kill(daemon, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	awaitSuccessor(t, r, daemon)
	mustRun(t, p, id, "the daemon's crash")

	// Yare ends in order and starts: same again.
	if err := r.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	r = runtimetest.Start(t, cfg)
	p.Reconnect(r)
	mustRun(t, p, id, "a stop and a start")
	log, err := os.ReadFile(p.LogPath("main"))
	if err != nil || !strings.Contains(string(log), " stdout F waiting\n") {
		t.Errorf("container log is %q, %v", log, err)
	}

	if err := r.Remove(t.Context()); err != nil {
		t.Errorf("remove: %v", err)
	}
	mustBeGone(t, cfg)
}

func mustBeGone(t *testing.T, cfg runtime.Config) {
	t.Helper()
	if diff := cmp.Diff(runtimetest.Machine{}, runtimetest.Observe(t, cfg)); diff != "" {
		t.Errorf("the runtime left something behind (-nothing +left):\n%s", diff)
	}
}

func mustRun(t *testing.T, p *runtimetest.Pod, id, after string) {
	t.Helper()
	if s := p.Status(id); s.State != cri.ContainerState_CONTAINER_RUNNING {
		t.Fatalf("after %s the container is %v", after, s.State)
	}
	if got := p.Exec(id, "/prog", "print", "again"); got != "again\n" {
		t.Errorf("after %s exec printed %q", after, got)
	}
}

// Daemon and Yare are gone, and so are the programs: Remove still leaves nothing.
func TestRemoveAfterEverythingWasKilled(t *testing.T) {
	cfg := runtimetest.Config(t, t.TempDir())
	r := runtimetest.Start(t, cfg)
	runtimetest.ImportProg(t, r)
	runtimetest.RunPod(t, r, "left").Run("main", "wait")
	runtimetest.RunPod(t, r, "hostpid", func(c *cri.PodSandboxConfig) {
		c.Linux.SecurityContext = &cri.LinuxSandboxSecurityContext{NamespaceOptions: &cri.NamespaceOption{Network: cri.NamespaceMode_NODE, Pid: cri.NamespaceMode_NODE, Ipc: cri.NamespaceMode_NODE}}
		c.Hostname = ""
	})
	pid := daemonPID(t, r)
	r.Detach()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	broken := cfg
	broken.BinDir = t.TempDir()
	if err := runtime.Remove(t.Context(), broken); err != nil {
		t.Errorf("remove: %v", err)
	}
	mustBeGone(t, cfg)
}

// Two clusters on one machine: removing one leaves the other's pod running and reachable.
func TestTwoRuntimesSideBySide(t *testing.T) {
	one, two := runtimetest.Config(t, t.TempDir()), runtimetest.Config(t, t.TempDir())
	a, b := runtimetest.Start(t, one), runtimetest.Start(t, two)
	if a.ID() == b.ID() || a.Endpoint() == b.Endpoint() || a.Bridge() == b.Bridge() {
		t.Fatalf("two runtimes share a name: %s %s", a.Endpoint(), b.Endpoint())
	}
	runtimetest.ImportProg(t, a)
	runtimetest.ImportProg(t, b)
	runtimetest.RunPod(t, a, "a").Run("main", "wait")
	p := runtimetest.RunPod(t, b, "b", func(c *cri.PodSandboxConfig) {
		c.PortMappings = []*cri.PortMapping{{ContainerPort: 8080, HostPort: 31999, Protocol: cri.Protocol_TCP}}
	})
	id := p.Run("web", "http", ":8080", "from b")
	if err := a.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustBeGone(t, one)
	mustRun(t, p, id, "the other's removal")
	for _, addr := range []string{net.JoinHostPort(p.IP(), "8080"), hostAddress(t) + ":31999"} {
		if body, err := get(t, "http://"+addr); err != nil || body != "from b" {
			t.Errorf("%s answers %q, %v", addr, body, err)
		}
	}
	if err := b.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustBeGone(t, one)
	mustBeGone(t, two)
}

// get retries while the program in the container is starting to listen.
func get(t *testing.T, url string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for tick := time.NewTicker(50 * time.Millisecond); ; {
		req, err := http.NewRequestWithContext(ctx, "GET", url, nil)
		if err != nil {
			return "", err
		}
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			defer resp.Body.Close()
			b, err := io.ReadAll(resp.Body)
			return string(b), err
		}
		select {
		case <-ctx.Done():
			return "", err
		case <-tick.C:
		}
	}
}

// hostAddress is an address of this machine other than loopback.
func hostAddress(t *testing.T) string {
	t.Helper()
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && !n.IP.IsLoopback() {
			return n.IP.String()
		}
	}
	t.Skip("SKIPPED, NOT TESTED: this machine has no address but loopback")
	return ""
}

// A changed program or setting means another daemon; containers run on.
func TestChangedSettingsReplaceTheDaemon(t *testing.T) {
	cfg := runtimetest.Config(t, t.TempDir())
	r := runtimetest.Start(t, cfg)
	runtimetest.ImportProg(t, r)
	p := runtimetest.RunPod(t, r, "kept")
	id := p.Run("main", "wait")
	old := daemonPID(t, r)
	r.Detach()
	conf := filepath.Join(stateDir(r), "containerd.json")
	b, err := os.ReadFile(conf)
	if err != nil {
		t.Fatal(err)
	}
	var rec map[string]any
	if err := json.Unmarshal(b, &rec); err != nil {
		t.Fatal(err)
	}
	rec["fingerprint"] = "of another version"
	b, _ = json.Marshal(rec)
	if err := os.WriteFile(conf, b, 0o600); err != nil {
		t.Fatal(err)
	}
	r = runtimetest.Start(t, cfg)
	p.Reconnect(r)
	if now := daemonPID(t, r); now == old {
		t.Error("the old daemon was taken over although its settings differ")
	}
	mustRun(t, p, id, "the daemon's replacement")
}

func TestMissingProgramsAreNamed(t *testing.T) {
	_, err := runtime.Start(t.Context(), runtime.Config{Dir: t.TempDir(), BinDir: t.TempDir()})
	if err == nil || !strings.Contains(err.Error(), "containerd-shim-runc-v2") || !strings.Contains(err.Error(), "make programs") {
		t.Errorf("error should name the programs and the remedy: %v", err)
	}
}

func TestExternalRuntimeIsOnlyConnectedTo(t *testing.T) {
	cfg := runtimetest.Config(t, t.TempDir())
	r := runtimetest.Start(t, cfg)
	ext, err := runtime.Start(t.Context(), runtime.Config{Endpoint: r.Endpoint()})
	if err != nil {
		t.Fatal(err)
	}
	if err := ext.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := cri.NewRuntimeServiceClient(r.Conn()).Version(t.Context(), &cri.VersionRequest{}); err != nil {
		t.Errorf("removing an external runtime ended it: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := runtime.Start(ctx, runtime.Config{Endpoint: "unix:///nowhere.sock"}); err == nil || !strings.Contains(err.Error(), "/nowhere.sock") {
		t.Errorf("error should name the endpoint: %v", err)
	}
}

func TestBrokenDaemonSaysWhy(t *testing.T) {
	runtimetest.BinDir(t)
	cfg := runtime.Config{Dir: t.TempDir(), BinDir: t.TempDir(), RunDir: filepath.Join("/run", fmt.Sprintf("yare-t%d", os.Getpid()))}
	t.Cleanup(func() { _ = runtime.Remove(context.Background(), cfg); os.RemoveAll(cfg.RunDir) })
	for _, p := range []string{"containerd", "containerd-shim-runc-v2", "runc", "bridge", "host-local", "portmap", "pause"} {
		script := "#!/bin/sh\necho the disk is on fire >&2\nexit 1\n"
		if err := os.WriteFile(filepath.Join(cfg.BinDir, p), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	_, err := runtime.Start(t.Context(), cfg)
	if err == nil || !strings.Contains(err.Error(), "the disk is on fire") || !strings.Contains(err.Error(), "containerd.log") {
		t.Errorf("error should show the daemon's last words and its log: %v", err)
	}
}

func stateDir(r *runtime.Runtime) string {
	return filepath.Dir(strings.TrimPrefix(r.Endpoint(), "unix://"))
}

func daemonPID(t *testing.T, r *runtime.Runtime) int {
	t.Helper()
	pid := tryDaemonPID(r)
	if pid == 0 {
		t.Fatal("no daemon is recorded")
	}
	return pid
}

func tryDaemonPID(r *runtime.Runtime) int {
	b, _ := os.ReadFile(filepath.Join(stateDir(r), "containerd.json"))
	var rec struct{ PID int }
	_ = json.Unmarshal(b, &rec)
	return rec.PID
}

// awaitSuccessor waits until another daemon than the old one answers: a bounded
// poll, because its start is nobody's event.
func awaitSuccessor(t *testing.T, r *runtime.Runtime, old int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			t.Fatal("the daemon did not come back")
		case <-tick.C:
		}
		if pid := tryDaemonPID(r); pid == 0 || pid == old {
			continue
		}
		if _, err := cri.NewRuntimeServiceClient(r.Conn()).Version(ctx, &cri.VersionRequest{}, grpc.WaitForReady(true)); err == nil {
			return
		}
	}
}
