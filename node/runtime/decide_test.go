package runtime

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDecide(t *testing.T) {
	able := facts{root: true, lowerOOMScore: true}
	for name, c := range map[string]struct {
		change func(*facts)
		want   settings
		err    string
	}{
		"able":                 {func(*facts) {}, settings{snapshotter: "overlayfs"}, ""},
		"not root":             {func(f *facts) { f.root = false }, settings{}, "run as root"},
		"no overlay":           {func(f *facts) { f.overlay = errors.New("EINVAL") }, settings{snapshotter: "native"}, ""},
		"no CAP_SYS_RESOURCE":  {func(f *facts) { f.lowerOOMScore = false }, settings{snapshotter: "overlayfs", restrictOOM: true}, ""},
		"no memory controller": {func(f *facts) { f.missing = []string{"cgroup controller memory"} }, settings{}, "kernel lacks cgroup controller memory"},
	} {
		t.Run(name, func(t *testing.T) {
			f := able
			c.change(&f)
			got, err := decide(f)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Fatalf("error is %v, want one with %q", err, c.err)
				}
				return
			}
			if got.snapshotter != c.want.snapshotter || got.restrictOOM != c.want.restrictOOM {
				t.Errorf("decided %+v", got)
			}
			if limited := got.snapshotter == "native" || got.restrictOOM; limited != (len(got.warnings) == 1) {
				t.Errorf("a limitation must be told, and nothing else: %q", got.warnings)
			}
		})
	}
}

func TestMissingFeatures(t *testing.T) {
	proc, v1, v2 := t.TempDir(), t.TempDir(), t.TempDir()
	make := func(dir, name, body string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(body), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, ns := range []string{"ipc", "mnt", "net", "uts"} {
		make(proc, "self/ns/"+ns, "")
	}
	for _, c := range []string{"cpu", "cpuset", "devices", "freezer", "memory"} {
		make(v1, c+"/tasks", "")
	}
	make(v2, "cgroup.controllers", "cpuset cpu io pids\n")
	if diff := cmp.Diff([]string{"pid namespaces", "cgroup controller pids (mounted on " + v1 + "/pids)"}, missingFeatures(proc, v1)); diff != "" {
		t.Errorf("version 1 (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"pid namespaces", "cgroup controller memory"}, missingFeatures(proc, v2)); diff != "" {
		t.Errorf("version 2 (-want +got):\n%s", diff)
	}
}

func TestStartTime(t *testing.T) {
	line := func(state, comm string) []byte {
		rest := make([]string, 48)
		for i := range rest {
			rest[i] = strconv.Itoa(i + 4) // each field holds its own number
		}
		return []byte("17 (" + comm + ") " + state + " " + strings.Join(rest, " "))
	}
	for _, comm := range []string{"x", "evil) R 1 2 (", ""} {
		if got, err := parseStartTime(line("S", comm)); err != nil || got != 22 {
			t.Errorf("command %q: field %d, %v; want 22", comm, got, err)
		}
	}
	if _, err := parseStartTime(line("Z", "gone")); err == nil {
		t.Error("a zombie counts as running")
	}
	if _, err := parseStartTime([]byte("17 (x) S 1")); err == nil {
		t.Error("a short line was accepted")
	}
}

func TestWhoBelongsToTheRuntime(t *testing.T) {
	shim := []byte("/x/containerd-shim-runc-v2\x00-namespace\x00k8s.io\x00-id\x00abc\x00-address\x00/run/yare/1/containerd.sock\x00")
	if !isShim(shim, "/run/yare/1/containerd.sock") || isShim(shim, "/run/yare/12/containerd.sock") || isShim(nil, "") {
		t.Error("a shim is told by the exact socket after -address")
	}
	ids := map[string]bool{"abc": true}
	for cgroup, want := range map[string]bool{
		"0::/kubepods/pod1/abc\n":                 true,
		"4:memory:/\n5:cpu:/kubepods/pod1/abc\n":  true,
		"0::/kubepods/pod1/abcd\n0::/abc/other\n": false,
		"": false,
	} {
		if got := inContainer([]byte(cgroup), ids); got != want {
			t.Errorf("%q: %v, want %v", cgroup, got, want)
		}
	}
}

func TestMountPoints(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mountinfo")
	text := `1 0 8:1 / / rw - ext4 /dev/vda rw
2 1 0:5 / /run/yare/1/rootfs rw - overlay overlay rw
3 2 0:6 / /run/yare/1/rootfs/a\040b rw - tmpfs tmpfs rw
4 1 0:7 / /run/yare/12/rootfs rw - overlay overlay rw
`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := mountPoints(path, "/run/yare/1")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"/run/yare/1/rootfs/a b", "/run/yare/1/rootfs"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestPathsOfDataFoldersDiffer(t *testing.T) {
	a := Config{Dir: "/var/lib/yare", RunDir: "/run/yare"}.paths()
	b := Config{Dir: "/var/lib/yare2", RunDir: "/run/yare"}.paths()
	if a.id == b.id || a.state == b.state || a.socket == b.socket {
		t.Errorf("two data folders share %q", a.state)
	}
	if err := a.validate(); err != nil {
		t.Error(err)
	}
	long := Config{Dir: "/d", RunDir: "/" + strings.Repeat("long", 20)}.paths()
	if err := long.validate(); err == nil || !strings.Contains(err.Error(), "107 bytes") {
		t.Errorf("a run folder that is too long for sockets: %v", err)
	}
}

func TestEnvironment(t *testing.T) {
	got := environment([]string{"PATH=/usr/bin", "HOME=/root", "NOTIFY_SOCKET=/run/n", "LISTEN_FDS=1", "CONTAINERD_ADDRESS=/run/containerd/containerd.sock"}, "/opt/yare")
	if diff := cmp.Diff([]string{"HOME=/root", "PATH=/opt/yare:/usr/bin"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Paths with quotes and backslashes stay inside their TOML strings.
func TestDaemonConfigQuotes(t *testing.T) {
	c := Config{Dir: `/data/it's "odd"\here`, BinDir: "/opt/bin", RunDir: "/run/yare", PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.42.0.0/24")}}
	b, err := daemonConfig(c, c.paths(), settings{snapshotter: "native", restrictOOM: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`root = "/data/it's \"odd\"\\here/containerd"` + "\n", `restrict_oom_score_adj = true`, `snapshotter = "native"`, `BinaryName = "/opt/bin/runc"`,
		`sandbox = "registry.k8s.io/pause:3.10.2"`, `netns_mounts_under_state_dir = true`, `SystemdCgroup = false`,
	} {
		if !strings.Contains(string(b), want) {
			t.Errorf("configuration lacks %s:\n%s", want, b)
		}
	}
}
