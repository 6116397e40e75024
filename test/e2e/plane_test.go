package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// newClusterAt is a cluster with ports and ranges made of one number, so that several run side by side: it uses https port n443, kubelet port
// n250, and the ranges 10.n+37.0.0/16 and 10.n+38.0.0/16.
func newClusterAt(t *testing.T, n int, more ...string) *cluster {
	t.Helper()
	c := newCluster(t)
	c.args = append([]string{
		"--data-dir", c.data(), "--write-kubeconfig", filepath.Join(c.dir, "config"), "--node-name", "harbour",
		"--https-listen-port", strconv.Itoa(n*1000 + 443), "--kubelet-port", strconv.Itoa(n*1000 + 250),
		"--cluster-cidr", fmt.Sprintf("10.%d.0.0/16", n+37), "--service-cidr", fmt.Sprintf("10.%d.0.0/16", n+38),
	}, more...)
	return c
}

func (c *cluster) data() string { return filepath.Join(c.dir, "data") }

// process is the real program in the foreground.
type process struct {
	t        *testing.T
	cmd      *exec.Cmd
	out, err *tap
	ended    chan struct{}
}

// tap keeps what a program prints, and tells of it.
type tap struct {
	mu   sync.Mutex
	text bytes.Buffer
	more chan struct{}
}

func newTap() *tap { return &tap{more: make(chan struct{}, 1)} }

func (b *tap) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case b.more <- struct{}{}:
	default:
	}
	return b.text.Write(p)
}

func (b *tap) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// start runs Yare in the foreground; it is killed at the end of the test if it is still there.
func (c *cluster) start(t *testing.T, args ...string) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.Command(c.yare, args...), out: newTap(), err: newTap(), ended: make(chan struct{})}
	p.cmd.Env, p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = c.env, c.root, p.out, p.err
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		_ = p.cmd.Wait()
	}()
	t.Cleanup(p.kill)
	return p
}

// plane starts a control plane alone and returns when it is announced.
func (c *cluster) plane(t *testing.T) *process {
	t.Helper()
	p := c.start(t, append([]string{"server", "--disable-agent", "--bind-address", "127.0.0.1"}, c.args...)...)
	p.says("Use it:")
	return p
}

// says waits until the program prints a text.
func (p *process) says(want string) {
	p.t.Helper()
	limit := time.After(patience)
	for !strings.Contains(p.out.String(), want) {
		select {
		case <-p.out.more:
		case <-p.ended:
			if !strings.Contains(p.out.String(), want) {
				p.t.Fatalf("%v ended without saying %q:\n%s%s", p.cmd.Args, want, p.out, p.err)
			}
		case <-limit:
			p.t.Fatalf("%v does not say %q:\n%s%s", p.cmd.Args, want, p.out, p.err)
		}
	}
}

// stop interrupts the program, as Ctrl-C does, and returns its exit code.
func (p *process) stop() int {
	p.t.Helper()
	_ = p.cmd.Process.Signal(syscall.SIGINT)
	select {
	case <-p.ended:
	case <-time.After(patience):
		p.t.Fatalf("%v does not end when interrupted:\n%s%s", p.cmd.Args, p.out, p.err)
	}
	return p.cmd.ProcessState.ExitCode()
}

// kill ends the program without warning.
func (p *process) kill() {
	_ = p.cmd.Process.Signal(syscall.SIGKILL) // fails once it has been waited for: the number is never somebody else's
	<-p.ended
}

// remove takes the cluster away with everything that it has.
func (c *cluster) remove() {
	c.t.Helper()
	c.down("--purge")
	if _, err := os.Stat(c.data()); !errors.Is(err, os.ErrNotExist) {
		c.t.Errorf("the data folder is still there after --purge: %v", err)
	}
	if left := c.traces(); len(left) > 0 {
		c.t.Errorf("the cluster leaves behind:\n%s", strings.Join(left, "\n"))
	}
	_ = os.RemoveAll(c.dir)
}

// api is a client of the cluster as its administrator.
func (c *cluster) api() kubernetes.Interface {
	c.t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(c.dir, "config"))
	if err != nil {
		c.t.Fatal(err)
	}
	config.QPS = -1
	config.Timeout = 20 * time.Second
	api, err := kubernetes.NewForConfig(config)
	if err != nil {
		c.t.Fatal(err)
	}
	return api
}

// box runs a pod of busybox with a shell command and waits until it is ready.
func (c *cluster) box(name, command string, flags ...string) {
	c.t.Helper()
	c.importBox()
	c.kubectl(append([]string{"run", name, "--image=yare.dev/busybox:1", "--image-pull-policy=Never"}, append(flags, "--command", "--", "sh", "-c", command)...)...)
	c.kubectl("wait", "--for=condition=Ready", "pod/"+name, "--timeout=60s")
}

func (c *cluster) importBox() {
	c.t.Helper()
	c.run(c.yare, "image", "import", "--data-dir", c.data(), filepath.Join(c.root, "bin/images/busybox.tar"))
}

// container tells which container a pod has, and how often it was restarted.
func (c *cluster) container(pod string) string {
	c.t.Helper()
	return c.kubectl("get", "pod", pod, "-o", "jsonpath={.metadata.uid} {.status.podIP} {.status.containerStatuses[0].containerID} {.status.containerStatuses[0].restartCount}")
}

// refused runs Yare with arguments that it must refuse: exit code 1, and one line on standard error that has the words.
func (c *cluster) refused(t *testing.T, args []string, words ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), c.yare, args...)
	cmd.Env, cmd.Dir = c.env, c.dir
	refusal(t, cmd, words...)
}

func refusal(t *testing.T, cmd *exec.Cmd, words ...string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	stuck := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	defer stuck.Stop()
	if err := cmd.Run(); cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != 1 {
		t.Errorf("%v: %v, not exit code 1\n%s%s", cmd.Args[1:], err, &stdout, &stderr)
		return
	}
	text := stderr.String()
	if strings.Count(text, "\n") != 1 || !strings.HasPrefix(text, "yare: ") {
		t.Errorf("%v: not one line that begins with \"yare: \":\n%s", cmd.Args[1:], text)
	}
	if err := wants(text, words...); err != nil {
		t.Errorf("%v: %v", cmd.Args[1:], err)
	}
	t.Logf("%s", strings.TrimSpace(text))
}
