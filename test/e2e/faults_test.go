package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// TestBadFlags: what cannot work is refused before anything is changed.
func TestBadFlags(t *testing.T) {
	c := newClusterAt(t, 17)
	defer os.RemoveAll(c.dir)
	server := append([]string{"server", "--disable-agent", "--bind-address", "127.0.0.1"}, c.args...)
	for _, f := range []struct{ flags, want string }{
		{"--cluster-cidr 10.54.0.0/16 --service-cidr 10.54.3.0/24", "overlap"},
		{"--cluster-cidr banana", `--cluster-cidr "banana" is not a range`},
		{"--service-cidr 10.55.0.0/30", "too small"},
		{"--cluster-dns 192.0.2.1", "not in --service-cidr"},
		{"--cluster-domain a_b..c", "--cluster-domain"},
		{"--node-name Big_Ship", "--node-name"},
		{"--node-ip here", "not an IP address"},
		{"--node-label x", "key=value"},
		{"--node-label =x", "--node-label"},
		{"--node-label a=b/c", "--node-label"},
		{"--https-listen-port 70000", "--https-listen-port 70000 is not a port"},
		{"--https-listen-port banana", "--https-listen-port"},
		{"--kubelet-port -1", "--kubelet-port -1 is not a port"},
		{"--service-node-port-range 5-1", "--service-node-port-range"},
		{"--bind-address 192.0.2.1", "--bind-address"},
		{"--store tape", "use disk or memory"},
		{"--log-level loud", "use debug, info, warn or error"},
		{"--no-such-flag", "--no-such-flag"},
		{"leftover", "leftover"},
	} {
		c.refused(t, append(server[:len(server):len(server)], strings.Fields(f.flags)...), f.want)
	}
	c.refused(t, []string{"sail"}, `unknown command "sail"`)
	if _, err := os.Stat(c.data()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a refused start made the data folder: %v", err)
	}
}

// TestNotRoot: who is not root hears so first, whatever else is wrong; a control plane alone is everybody's.
func TestNotRoot(t *testing.T) {
	c := newClusterAt(t, 17)
	defer os.RemoveAll(c.dir)
	const nobody = 65534
	// The checkout may lie where nobody else can reach it.
	program := filepath.Join(c.dir, "yare")
	copyFile(t, c.yare, program, 0o755)
	home := filepath.Join(c.dir, "home")
	for _, err := range []error{os.Chmod(c.dir, 0o755), os.Mkdir(home, 0o700), os.Chown(home, nobody, nobody)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	data := filepath.Join(home, "data")
	as := func(args ...string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), program, args...)
		cmd.Dir, cmd.Env = home, append(os.Environ(), "HOME="+home, "KUBECONFIG=")
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		return cmd
	}
	ports := []string{"--https-listen-port", "17443", "--kubelet-port", "17250"}
	for _, args := range [][]string{
		append([]string{"up", "--data-dir", data}, ports...),
		append([]string{"up", "-d", "--data-dir", data}, ports...),
		append([]string{"up", "-d"}, ports...), // the default folder, which only root can make
	} {
		refusal(t, as(args...), "not root", "run as root", "--disable-agent")
	}
	if _, err := os.Stat(data); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a refused start made the data folder: %v", err)
	}

	plane := as(append([]string{"server", "--disable-agent", "--bind-address", "127.0.0.1", "--data-dir", data}, ports...)...)
	p := &process{t: t, cmd: plane, out: newTap(), err: newTap(), ended: make(chan struct{})}
	plane.Stdout, plane.Stderr = p.out, p.err
	if err := plane.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { defer close(p.ended); _ = plane.Wait() }()
	t.Cleanup(p.kill)
	p.says("Use it:")
	if out, err := as("kubectl", "get", "--raw", "/readyz").CombinedOutput(); err != nil {
		t.Errorf("readyz: %v\n%s", err, out)
	}
	if out, err := as("down", "--data-dir", data, "--purge").CombinedOutput(); err != nil {
		t.Errorf("down: %v\n%s", err, out)
	}
	<-p.ended
	if _, err := os.Stat(data); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the data folder is still there after --purge: %v", err)
	}
}

func copyFile(t *testing.T, from, to string, mode fs.FileMode) {
	t.Helper()
	in, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, mode)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(out, in)
	if err := errors.Join(err, out.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestTheHostIsNotFit: a port that is taken, programs that are not there, a kubeconfig that cannot be kept.
func TestTheHostIsNotFit(t *testing.T) {
	c := newClusterAt(t, 17)
	defer c.remove()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	port := fmt.Sprint(taken.Addr().(*net.TCPAddr).Port)
	with := func(command string, flags ...string) []string {
		return append(append([]string{command}, c.args...), flags...)
	}
	c.refused(t, with("server", "--disable-agent", "--bind-address", "127.0.0.1", "--https-listen-port", port), "port "+port+" is in use", "--https-listen-port")
	c.refused(t, with("up", "--kubelet-port", port), "port "+port+" is in use", "--kubelet-port")
	c.refused(t, with("up", "-d", "--kubelet-port", port), "port "+port+" is in use", "--kubelet-port")

	empty := filepath.Join(c.dir, "empty")
	if err := os.Mkdir(empty, 0o700); err != nil {
		t.Fatal(err)
	}
	c.refused(t, with("up", "--runtime-dir", empty), "containerd", "runc", "not found in "+empty, "make programs")
	c.refused(t, with("up", "--container-runtime-endpoint", "unix://"+empty+"/none.sock"), empty+"/none.sock")

	garbage := filepath.Join(c.dir, "garbage")
	if err := os.WriteFile(garbage, []byte("clusters: ["), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, command := range [][]string{{"server", "--disable-agent"}, {"up"}, {"up", "-d"}} {
		// Without --write-kubeconfig the user's own file gets an entry, which it must be able to keep.
		cmd := exec.CommandContext(t.Context(), c.yare, append(command, "--data-dir", c.data(), "--https-listen-port", "17443", "--kubelet-port", "17250")...)
		cmd.Env = append(os.Environ(), "KUBECONFIG="+garbage)
		refusal(t, cmd, garbage, "mend or move it", "--write-kubeconfig")
	}
	if text, err := os.ReadFile(garbage); err != nil || string(text) != "clusters: [" {
		t.Errorf("a kubeconfig that cannot be read was changed: %q, %v", text, err)
	}
	c.refused(t, with("up", "--write-kubeconfig", empty), "--write-kubeconfig "+empty+" is not a file")
}

// TestOneFolderOneCluster: a second Yare on a data folder is refused, and the first does not notice.
func TestOneFolderOneCluster(t *testing.T) {
	c := newClusterAt(t, 17)
	defer c.remove()
	p := c.plane(t)
	c.refused(t, append(append([]string{"server", "--disable-agent"}, c.args...), "--https-listen-port", "18443"), c.data(), "in use by another Yare")
	c.kubectl("create", "configmap", "after")
	if code := p.stop(); code != 0 {
		t.Errorf("exit code %d after an interrupt:\n%s", code, p.err)
	}
}

// TestDamage: a data folder that lost something is refused as it is, and works again once what was lost is put back.
func TestDamage(t *testing.T) {
	c := newClusterAt(t, 17)
	defer c.remove()
	p := c.plane(t)
	c.kubectl("create", "configmap", "cargo", "--from-literal=a=b")
	p.stop()
	c.plane(t).stop() // sorts what the first run wrote into a table
	server := append([]string{"server", "--disable-agent"}, c.args...)
	db := filepath.Join(c.data(), "db")
	whole := files(t, db)
	broke := map[string]bool{}
	for name, content := range whole {
		path := filepath.Join(db, name)
		base := filepath.Base(name)
		// Markers and the lock are empty, the options are there for people, and the witness testifies about the others.
		if len(content) == 0 || strings.HasPrefix(base, "OPTIONS") || base == "WITNESS" || !live(whole, base) {
			continue
		}
		broken := []byte(content)
		for i := len(broken) / 4; i < len(broken)/4+min(64, len(broken)/2); i++ {
			broken[i] ^= 0xff
		}
		if err := os.WriteFile(path, broken, 0o600); err != nil {
			t.Fatal(err)
		}
		damage(t, c, server, db)
		broke[filepath.Ext(name)] = true
		// What the refused start left beside it goes too: the folder is as the last good run left it.
		restore(t, db, whole)
	}
	if !broke[".sst"] || !broke[".log"] {
		t.Errorf("of the store's files only %v were damaged", broke)
	}
	p = c.plane(t)
	c.contains("what was there before", c.kubectl("get", "configmap", "cargo", "-o", "jsonpath={.data.a}"), "b")
	p.stop()

	key := filepath.Join(c.data(), "pki", "ca.pem")
	if err := os.WriteFile(key, []byte("junk"), 0o600); err != nil {
		t.Fatal(err)
	}
	c.refused(t, server, key, "put back a copy")
}

// live tells whether the store still needs a file: of several manifests it is the one that the marker names.
func live(all map[string]string, base string) bool {
	if !strings.HasPrefix(base, "MANIFEST-") {
		return true
	}
	for name := range all {
		if strings.HasPrefix(name, "marker.manifest.") && strings.HasSuffix(name, base) {
			return true
		}
	}
	return false
}

// damage runs a start that must be refused for the state of its folder. Beside the refusal, the log may name the block that is damaged.
func damage(t *testing.T, c *cluster, args []string, db string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.yare, args...)
	cmd.Env = c.env
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("%v, not exit code 1:\n%s", err, out)
	}
	last := ""
	for line := range strings.Lines(string(out)) {
		if last = line; len(line) > 600 {
			t.Errorf("a line of %d bytes: %s...", len(line), line[:200])
		}
	}
	if err := wants(last, "yare: ", db, "damaged", "restore it from a backup", "move it away"); err != nil {
		t.Error(err)
	}
	t.Logf("%s", strings.TrimSpace(last))
}

func restore(t *testing.T, dir string, whole map[string]string) {
	t.Helper()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, content := range whole {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		name, _ := filepath.Rel(dir, path)
		out[name] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestDiskFull: while the disk is full, writes are refused with the reason and reads go on; afterwards everything works again by itself.
func TestDiskFull(t *testing.T) {
	c := newClusterAt(t, 17)
	defer c.remove()
	if err := os.Mkdir(c.data(), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", c.data(), "tmpfs", 0, "size=48m"); err != nil {
		t.Skipf("NOT TESTED: cannot mount a tmpfs: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(c.data(), unix.MNT_DETACH) })
	p := c.plane(t)
	c.kubectl("create", "configmap", "before", "--from-literal=a=b")
	ballast := filepath.Join(c.data(), "ballast")
	fill(t, ballast)

	for range 3 {
		out, err := c.tryKubectl("create", "configmap", "during", "--from-literal=a=b")
		if err == nil {
			t.Error("a write is accepted on a full disk")
		}
		c.contains("a write on a full disk", out, "disk is full", "nothing was written", "free some space")
	}
	c.contains("a read on a full disk", c.kubectl("get", "configmap", "before", "-o", "jsonpath={.data.a}"), "b")
	c.contains("health on a full disk", c.kubectl("get", "--raw", "/livez"), "ok")
	if out, err := c.tryKubectl("get", "configmap", "during"); err == nil {
		t.Errorf("a refused write is there: %s", out)
	}

	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	c.kubectl("create", "configmap", "after", "--from-literal=a=b")
	fill(t, ballast)
	if code := p.stop(); code != 0 {
		t.Errorf("exit code %d on a full disk:\n%s", code, p.err)
	}
	c.refused(t, append([]string{"server", "--disable-agent"}, c.args...), "no space left", c.data(), "free some room")
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	p = c.plane(t)
	want := []string{"configmap/after", "configmap/before", "configmap/kube-root-ca.crt"}
	if diff := cmp.Diff(want, strings.Fields(c.kubectl("get", "configmaps", "-o", "name"))); diff != "" {
		t.Errorf("objects after a restart (-want +got):\n%s", diff)
	}
	p.stop()
	if err := unix.Unmount(c.data(), 0); err != nil {
		t.Errorf("the data folder is still used: %v", err)
	}
}

// fill writes a file until there is no room.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, size := range []int{1 << 20, 4 << 10} {
		block := make([]byte, size)
		for err = nil; err == nil; _, err = f.Write(block) {
		}
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("the disk does not get full: %v", err)
		}
	}
}

// TestBadYAML: what is sent by mistake is refused with its place and reason, and changes nothing.
func TestBadYAML(t *testing.T) {
	c := newClusterAt(t, 17)
	defer c.remove()
	p := c.plane(t)
	const head = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: bad}\n"
	for _, bad := range []struct {
		name, yaml string
		want       []string
		applied    []string // by the server, whose rules for that are those of the schema; nil: want
	}{
		{"malformed", head + "data:\n  a: [\n", []string{"bad.yaml", "line 5"}, nil},
		{"oversized", head + "data:\n  a: " + strings.Repeat("x", 3200<<10) + "\n", []string{"Request entity too large", "3145728"}, nil},
		{"too much for one object", head + "data:\n  a: " + strings.Repeat("x", 1100<<10) + "\n", []string{`ConfigMap "bad" is invalid`, "1048576"}, nil},
		{"a field that does not exist", head + "datum: {a: b}\n", []string{`unknown field "datum"`}, []string{".datum: field not declared in schema"}},
		{"a field of another type", head + "data: {a: 1}\n", []string{"ConfigMap.data", "number", "of type string"}, []string{".data.a: expected string"}},
		{"a kind that does not exist", "apiVersion: v1\nkind: Ship\nmetadata: {name: bad}\n", []string{`no matches for kind "Ship" in version "v1"`}, nil},
		{"a group that does not exist", "apiVersion: sea.example/v1\nkind: Ship\nmetadata: {name: bad}\n", []string{`no matches for kind "Ship" in version "sea.example/v1"`}, nil},
		{"a name that is none", strings.Replace(head, "bad", "Big Ship", 1), []string{"metadata.name", "Big Ship"}, nil},
		{"a namespace that does not exist", strings.Replace(head, "name: bad", "name: bad, namespace: sea", 1), []string{`namespaces "sea" not found`}, nil},
	} {
		path := filepath.Join(c.dir, "bad.yaml")
		if err := os.WriteFile(path, []byte(bad.yaml), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, verb := range [][]string{{"create"}, {"apply", "--server-side"}} {
			out, err := c.tryKubectl(append(verb, "-f", path)...)
			if err == nil {
				t.Errorf("%s: %v accepts it: %s", bad.name, verb, out)
			}
			want := bad.want
			if verb[0] == "apply" && bad.applied != nil {
				want = bad.applied
			}
			if err := wants(out, want...); err != nil {
				t.Errorf("%s: %v: %v", bad.name, verb, err)
			}
			if len(out) > 2000 {
				t.Errorf("%s: %v: an answer of %d bytes", bad.name, verb, len(out))
			}
		}
	}
	if out := c.kubectl("get", "configmaps", "-o", "name"); strings.TrimSpace(out) != "configmap/kube-root-ca.crt" {
		t.Errorf("something was kept: %s", out)
	}
	p.stop()
}
