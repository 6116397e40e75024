// Package e2e drives the real binary with real containers, through kubectl, as a user would.
package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// patience bounds every wait; what is waited for usually takes a second or two.
const patience = 90 * time.Second

// cluster is one running Yare.
type cluster struct {
	t    *testing.T
	root string // of the repository
	yare string
	dir  string
	env  []string
	args []string
}

// newCluster picks a folder, ports and ranges of its own, so that a cluster which runs on the machine already is left alone.
func newCluster(t *testing.T) *cluster {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("NOT TESTED: needs root, to run containers")
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{t: t, root: root, yare: filepath.Join(root, "bin", "yare")}
	if _, err := os.Stat(c.yare); err != nil {
		t.Skipf("NOT TESTED: %v; run `make build programs images` first, or `make test`", err)
	}
	if c.dir, err = os.MkdirTemp("", "yare-e2e-"); err != nil {
		t.Fatal(err)
	}
	c.env = append(os.Environ(), "KUBECONFIG="+filepath.Join(c.dir, "config"))
	c.args = []string{"--data-dir", filepath.Join(c.dir, "data"), "--write-kubeconfig", filepath.Join(c.dir, "config"),
		"--https-listen-port", "16443", "--kubelet-port", "11250", "--cluster-cidr", "10.52.0.0/16", "--service-cidr", "10.53.0.0/16",
		"--node-name", "harbour"}
	return c
}

// run runs a program and returns what it printed; a failure ends the test.
func (c *cluster) run(name string, args ...string) string {
	c.t.Helper()
	out, err := c.try(name, args...)
	if err != nil {
		c.t.Fatalf("%s %s: %v\n%s", filepath.Base(name), strings.Join(args, " "), err, out)
	}
	return out
}

func (c *cluster) try(name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(c.t.Context(), 2*patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env, cmd.Dir = c.env, c.root
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

func (c *cluster) up() string {
	c.t.Helper()
	return c.run(c.yare, append([]string{"up", "-d"}, c.args...)...)
}

func (c *cluster) down(flags ...string) string {
	c.t.Helper()
	return c.run(c.yare, append([]string{"down", "--data-dir", filepath.Join(c.dir, "data")}, flags...)...)
}

// kubectl runs the embedded kubectl, which is kubectl's own code.
func (c *cluster) kubectl(args ...string) string {
	c.t.Helper()
	return c.run(c.yare, append([]string{"kubectl"}, args...)...)
}

func (c *cluster) tryKubectl(args ...string) (string, error) {
	return c.try(c.yare, append([]string{"kubectl"}, args...)...)
}

// until tries again, soon, until f is content.
func (c *cluster) until(what string, f func() error) {
	c.t.Helper()
	deadline := time.Now().Add(patience)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			c.t.Fatalf("%s: not within %s: %v\n%s", what, patience, err, c.diagnose())
		}
		<-tick.C
	}
}

// diagnose is what a person would look at next.
func (c *cluster) diagnose() string {
	var out strings.Builder
	for _, args := range [][]string{{"get", "pods", "-A", "-o", "wide"}, {"get", "events", "-A"}, {"describe", "nodes"}} {
		text, _ := c.tryKubectl(args...)
		fmt.Fprintf(&out, "--- kubectl %s\n%s\n", strings.Join(args, " "), text)
	}
	log, _ := os.ReadFile(filepath.Join(c.dir, "data", "yare.log"))
	fmt.Fprintf(&out, "--- yare.log\n%s\n", tail(string(log), 4000))
	return out.String()
}

func tail(s string, n int) string {
	if len(s) > n {
		return "..." + s[len(s)-n:]
	}
	return s
}

// contains checks that a command's output has all the words.
func (c *cluster) contains(what, out string, words ...string) {
	c.t.Helper()
	for _, w := range words {
		if !strings.Contains(out, w) {
			c.t.Errorf("%s: %q is missing from:\n%s", what, w, out)
		}
	}
}
