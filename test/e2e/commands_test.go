package e2e

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/yare-project/yare/internal/pidfile"
)

// TestCommandsOfAControlPlane: join tokens, completion, version, and what they say when no Yare runs.
func TestCommandsOfAControlPlane(t *testing.T) {
	c := newClusterAt(t, 17)
	defer c.remove()
	folder := []string{"--data-dir", c.data()}
	token := func(args ...string) []string { return append(append([]string{"token"}, args...), folder...) }
	c.refused(t, token("list"), "no Yare runs from this data folder", "yare up", c.data())
	p := c.plane(t)
	made := strings.TrimSpace(c.run(c.yare, token("create", "--ttl", "1h")...))
	id, secret, ok := strings.Cut(made[strings.LastIndex(made, ":")+1:], ".")
	if !ok || len(id) != 6 || len(secret) != 16 || !strings.HasPrefix(made, "K10") {
		t.Errorf("the token is %q", made)
	}
	list := c.run(c.yare, token("list")...)
	c.contains("token list", list, id, "EXPIRES")
	if strings.Contains(list, secret) {
		t.Errorf("token list shows the secret:\n%s", list)
	}
	c.run(c.yare, token("delete", id)...)
	c.refused(t, token("delete", id), id, "yare token list")
	c.refused(t, token("create", "--ttl", "-1h"), "--ttl")
	if out := c.run(c.yare, token("list")...); strings.Contains(out, id) {
		t.Errorf("a deleted token is still listed:\n%s", out)
	}
	c.refused(t, append([]string{"image", "list"}, folder...), "only a control plane")
	c.contains("version", c.run(c.yare, "version"), "yare ", "Kubernetes API v1.36")
	if code := p.stop(); code != 0 || p.err.String() != "" {
		t.Errorf("exit code %d:\n%s", code, p.err)
	}
	c.refused(t, token("list"), "no Yare runs from this data folder")

	script := c.run(c.yare, "completion", "bash")
	path := filepath.Join(c.dir, "completion")
	if err := os.WriteFile(path, []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	c.run("bash", "-c", "source "+path+" && complete -p yare")
	c.contains("what completes `yare i`", c.run(c.yare, "__complete", "i"), "image")
}

// TestForeground: in the foreground Yare tells its steps and ends when interrupted. Its containers run on; the next start finds them, and
// down takes them away, however often it is said.
func TestForeground(t *testing.T) {
	c := newClusterAt(t, 17)
	defer c.remove()
	up := append([]string{"up"}, c.args...)
	p := c.start(t, up...)
	p.says("Use it:")
	c.contains("the steps", p.out.String(), "open the store", "serve the API", "start the container runtime", "node is ready", " ms  (at ")
	c.box("box", "sleep 86397")
	before := c.container("box")
	if code := p.stop(); code != 0 || strings.Contains(p.err.String(), "ERROR") || strings.Contains(p.err.String(), "yare: ") {
		t.Errorf("exit code %d after an interrupt:\n%s", code, p.err)
	}
	if !strings.Contains(commandLines(), "sleep 86397") {
		t.Error("the container ended with Yare")
	}
	if _, alive, err := pidfile.Read(filepath.Join(c.data(), "yare.pid")); alive || err != nil {
		t.Errorf("the process file after the end: alive %v, %v", alive, err)
	}

	c.up()
	c.contains("a second up", c.up(), "runs from "+c.data()+" already")
	c.contains("exec after the restart", c.kubectl("exec", "box", "--", "echo", "still here"), "still here")
	if after := c.container("box"); after != before {
		t.Errorf("the container did not run on: %s, was %s", after, before)
	}

	for range 2 {
		c.down()
		if left := c.traces(); len(left) > 0 {
			t.Errorf("left after down:\n%s", strings.Join(left, "\n"))
		}
	}
	if strings.Contains(commandLines(), "sleep 86397") {
		t.Error("the container outlives down")
	}
	if _, err := os.Stat(filepath.Join(c.data(), "db")); err != nil {
		t.Errorf("down without --purge took the data: %v", err)
	}

	// What down left is enough to start again, with the same objects.
	p = c.start(t, up...)
	p.says("Use it:")
	c.kubectl("wait", "--for=condition=Ready", "pod/box", "--timeout=60s")
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	<-p.ended
	if code := p.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit code %d after SIGTERM:\n%s", code, p.err)
	}
	c.down("--purge")
	c.down("--purge")
	if _, err := os.Stat(c.data()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the data folder after --purge: %v", err)
	}
}
