package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/yare-project/yare/internal/pidfile"
)

// TestShop goes through a cluster's life: it starts, runs the example, is used in the ways that its users know, is killed and started
// again, and goes without a trace.
func TestShop(t *testing.T) {
	c := newCluster(t)
	before, alone := look(t, c.dir), len(names("/run/yare/*")) == 0
	defer func() {
		c.down("--purge")
		if left := c.traces(); len(left) > 0 {
			t.Errorf("left behind:\n%s", strings.Join(left, "\n"))
		}
		if alone { // else the other clusters' pods come and go
			before.check(t, look(t, c.dir))
		}
		if _, err := os.Stat(filepath.Join(c.dir, "data")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the data folder is still there after --purge: %v", err)
		}
		_ = os.RemoveAll(c.dir)
	}()
	t.Logf("up:\n%s", c.up())
	for _, step := range []struct {
		name string
		do   func(*testing.T)
	}{
		{"the node is ready", c.nodeReady},
		{"images come from files", c.importImages},
		{"the example runs", c.apply},
		{"Services answer", c.services},
		{"names resolve", c.names},
		{"logs follow", c.logs},
		{"exec with a terminal", c.exec},
		{"port-forward", c.portForward},
		{"kubectl's reading commands", c.reading},
		{"server-side apply and diff", c.serverSide},
		{"scale", c.scale},
		{"rollout restart and undo", c.rollouts},
		{"watch", c.watch},
		{"a killed container restarts", c.restart},
		{"a deleted pod is replaced", c.replace},
		{"a ServiceAccount's rights hold", c.rights},
		{"a kill loses nothing", c.kill},
	} {
		ok := t.Run(step.name, func(t *testing.T) {
			outer := c.t
			c.t = t
			defer func() { c.t = outer }()
			step.do(t)
		})
		if !ok {
			t.Log(c.diagnose())
			return
		}
	}
}

func (c *cluster) nodeReady(*testing.T) {
	c.contains("get nodes", c.kubectl("get", "nodes", "-o", "wide"), "harbour", "Ready", "v1.36", "containerd://")
	c.contains("readyz", c.kubectl("get", "--raw", "/readyz?verbose"), "readyz check passed")
}

func (c *cluster) importImages(*testing.T) {
	dir := filepath.Join(c.dir, "data")
	c.contains("image import", c.run(c.yare, "image", "import", "--data-dir", dir, filepath.Join(c.root, "bin/images/shop.tar")), "yare.dev/shop:1")
	// An archive that is put into the folder is imported by itself.
	archive, err := os.ReadFile(filepath.Join(c.root, "bin/images/busybox.tar"))
	if err != nil {
		c.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "images", "busybox.tar"), archive, 0o600); err != nil {
		c.t.Fatal(err)
	}
	c.until("the import of a dropped archive", func() error {
		return wants(c.run(c.yare, "image", "list", "--data-dir", dir), "yare.dev/busybox:1")
	})
}

func wants(out string, words ...string) error {
	for _, w := range words {
		if !strings.Contains(out, w) {
			return fmt.Errorf("no %q in:\n%s", w, out)
		}
	}
	return nil
}

func (c *cluster) apply(t *testing.T) {
	start := time.Now()
	c.kubectl("apply", "-f", "examples/shop")
	c.kubectl("rollout", "status", "deployment/shop", "--timeout=90s")
	t.Logf("three replicas ready after %s", time.Since(start).Round(time.Millisecond))
	c.contains("get deployment", c.kubectl("get", "deployment", "shop"), "3/3")
	c.kubectl("run", "box", "--image=yare.dev/busybox:1", "--image-pull-policy=Never", "--command", "--", "sleep", "86400")
	c.kubectl("wait", "--for=condition=Ready", "pod/box", "--timeout=60s")
}

func (c *cluster) services(t *testing.T) {
	ip := strings.TrimSpace(c.kubectl("get", "service", "shop", "-o", "jsonpath={.spec.clusterIP}"))
	node := strings.TrimSpace(c.kubectl("get", "node", "harbour", "-o", "jsonpath={.status.addresses[0].address}"))
	for what, url := range map[string]string{"ClusterIP": "http://" + ip + "/", "NodePort": "http://" + node + ":30080/"} {
		c.until(what+" from the host", func() error { return wants(get(url), "Welcome aboard") })
		c.contains(what+" from a pod", c.kubectl("exec", "box", "--", "wget", "-q", "-O", "-", url), "Welcome aboard")
	}
	request, _ := http.NewRequest(http.MethodGet, "http://"+ip+"/prices", nil)
	request.Header.Set("X-Api-Key", "open-sesame")
	c.contains("the Secret and the ConfigMap as files", do(request), "compass")
}

func get(url string) string {
	request, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return err.Error()
	}
	return do(request)
}

func do(request *http.Request) string {
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Do(request)
	if err != nil {
		return err.Error()
	}
	defer answer.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(answer.Body, 1<<20))
	return string(body)
}

func (c *cluster) names(*testing.T) {
	for _, name := range []string{"shop", "shop.default", "shop.default.svc.cluster.local"} {
		c.contains(name, c.kubectl("exec", "box", "--", "wget", "-q", "-O", "-", "http://"+name+"/"), "Welcome aboard")
	}
	c.contains("resolv.conf", c.kubectl("exec", "box", "--", "cat", "/etc/resolv.conf"), "nameserver 10.53.0.10", "default.svc.cluster.local")
	c.contains("the API server's name", c.kubectl("exec", "box", "--", "nslookup", "kubernetes.default.svc.cluster.local"), "10.53.0.1")
}

func (c *cluster) pod() string {
	return strings.Fields(c.kubectl("get", "pods", "-l", "app=shop", "-o", "jsonpath={.items[*].metadata.name}"))[0]
}

func (c *cluster) logs(t *testing.T) {
	pod := c.pod()
	c.contains("logs", c.kubectl("logs", pod), "the shop is open")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	follow := exec.CommandContext(ctx, c.yare, "kubectl", "logs", "-f", "--tail=1", pod)
	follow.Env = c.env
	out, err := follow.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := follow.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cancel(); _ = follow.Wait() }()
	ip := strings.TrimSpace(c.kubectl("get", "pod", pod, "-o", "jsonpath={.status.podIP}"))
	get("http://" + ip + ":8080/sisters")
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if strings.Contains(lines.Text(), "/sisters") {
			return
		}
	}
	t.Error("a line that was written while the log was followed did not come")
}

func (c *cluster) exec(t *testing.T) {
	c.contains("exec", c.kubectl("exec", "box", "--", "sh", "-c", "echo out; echo err >&2"), "out", "err")
	out, err := c.tryKubectl("exec", "box", "--", "sh", "-c", "exit 7")
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 7 {
		t.Errorf("the exit code of a command is not passed on: %v\n%s", err, out)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.yare, "kubectl", "exec", "-i", "box", "--", "cat")
	cmd.Env, cmd.Stdin = c.env, strings.NewReader("through the pipe")
	if got, err := cmd.CombinedOutput(); err != nil || string(got) != "through the pipe" {
		t.Errorf("exec -i: %q, %v", got, err)
	}
	// script gives kubectl a terminal, as a person at a keyboard has.
	cmd = exec.CommandContext(ctx, "script", "-qec", c.yare+" kubectl exec -it box -- sh -c 'tty; stty size'", "/dev/null")
	cmd.Env = c.env
	got, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(got), "/dev/pts/") {
		t.Errorf("exec -it: %q, %v", got, err)
	}
}

func (c *cluster) portForward(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.yare, "kubectl", "port-forward", "service/shop", "18080:80")
	cmd.Env = c.env
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cancel(); _ = cmd.Wait() }()
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("port-forward says nothing: %v", err)
	}
	for range 3 {
		c.contains("through the forwarded port", get("http://127.0.0.1:18080/"), "Welcome aboard")
	}
}

func (c *cluster) reading(*testing.T) {
	pod := c.pod()
	c.contains("describe pod", c.kubectl("describe", "pod", pod), "Successfully assigned default/"+pod, "Started", "ReplicaSet/shop-")
	c.contains("describe deployment", c.kubectl("describe", "deployment", "shop"), "ScalingReplicaSet", "Available")
	c.contains("describe service", c.kubectl("describe", "service", "shop"), "30080/TCP")
	c.contains("describe node", c.kubectl("describe", "node", "harbour"), "Allocated resources", "KubeletReady")
	c.contains("explain", c.kubectl("explain", "deployment.spec.strategy"), "KIND:", "rollingUpdate")
	c.contains("explain a pod's field", c.kubectl("explain", "pod.spec.containers.livenessProbe.httpGet"), "path")
	c.contains("api-resources", c.kubectl("api-resources"), "deployments", "deploy", "networkpolicies")
	c.contains("get all", c.kubectl("get", "all"), "deployment.apps/shop", "service/shop", "replicaset.apps/shop-")
	c.contains("auth can-i", c.kubectl("auth", "can-i", "create", "pods"), "yes")
	c.contains("get -o yaml", c.kubectl("get", "deployment", "shop", "-o", "yaml"), "apiVersion: apps/v1", "availableReplicas: 3")
	if out, err := c.tryKubectl("get", "ships"); err == nil {
		c.t.Errorf("a kind that does not exist: %s", out)
	} else {
		c.contains("a kind that does not exist", out, `the server doesn't have a resource type "ships"`)
	}
}

func (c *cluster) serverSide(t *testing.T) {
	if out, err := c.tryKubectl("diff", "-f", "examples/shop"); err != nil {
		t.Errorf("diff of what was applied: %v\n%s", err, out)
	}
	changed := filepath.Join(c.dir, "changed.yaml")
	text, err := os.ReadFile(filepath.Join(c.root, "examples/shop/shop.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(changed, []byte(strings.Replace(string(text), "Welcome aboard", "Ahoy", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := c.tryKubectl("diff", "-f", changed)
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("diff of a change: %v", err)
	}
	c.contains("diff of a change", out, "+  greeting: Ahoy", "-  greeting: Welcome aboard")
	c.contains("apply --server-side", c.kubectl("apply", "--server-side", "--force-conflicts", "-f", "examples/shop"), "serverside-applied")
	out, err = c.tryKubectl("apply", "--server-side", "--field-manager=other", "-f", changed)
	if err == nil {
		t.Errorf("two managers of one field do not conflict: %s", out)
	}
	c.contains("a conflict", out, ".data.greeting", "conflict")
	out, err = c.tryKubectl("apply", "--server-side", "--dry-run=server", "-f", filepath.Join("test", "e2e", "testdata", "typo.yaml"))
	if err == nil {
		t.Errorf("a misspelt field is accepted: %s", out)
	}
	c.contains("a misspelt field", out, "replica")
}

func (c *cluster) scale(*testing.T) {
	c.kubectl("scale", "deployment/shop", "--replicas=5")
	c.kubectl("rollout", "status", "deployment/shop", "--timeout=60s")
	c.contains("scaled up", c.kubectl("get", "deployment", "shop"), "5/5")
	c.kubectl("scale", "deployment/shop", "--replicas=3")
	c.until("scaled down", func() error {
		if n := len(strings.Fields(c.kubectl("get", "pods", "-l", "app=shop", "-o", "name"))); n != 3 {
			return fmt.Errorf("%d pods", n)
		}
		return nil
	})
}

func (c *cluster) rollouts(*testing.T) {
	old := c.pod()
	c.kubectl("rollout", "restart", "deployment/shop")
	c.kubectl("rollout", "status", "deployment/shop", "--timeout=90s")
	c.until("the old pods are gone", func() error {
		if out := c.kubectl("get", "pods", "-l", "app=shop", "-o", "name"); strings.Contains(out, old) {
			return fmt.Errorf("%s is still among %s", old, out)
		}
		return nil
	})
	c.kubectl("set", "env", "deployment/shop", "GREETING=Ahoy")
	c.kubectl("rollout", "status", "deployment/shop", "--timeout=90s")
	c.contains("rollout history", c.kubectl("rollout", "history", "deployment/shop"), "REVISION", "3")
	c.kubectl("rollout", "undo", "deployment/shop")
	c.kubectl("rollout", "status", "deployment/shop", "--timeout=90s")
	c.contains("after undo", c.kubectl("get", "deployment", "shop", "-o", "jsonpath={.spec.template.spec.containers[0].env[0]}"), "configMapKeyRef")
}

func (c *cluster) watch(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.yare, "kubectl", "get", "configmaps", "-w")
	cmd.Env = c.env
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cancel(); _ = cmd.Wait() }()
	lines := bufio.NewScanner(out)
	for lines.Scan() && !strings.HasPrefix(lines.Text(), "shop ") {
	}
	c.kubectl("create", "configmap", "seen", "--from-literal=a=b")
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "seen ") {
			return
		}
	}
	t.Error("get -w did not show a new object")
}

func (c *cluster) restart(*testing.T) {
	pod := c.pod()
	ip := strings.TrimSpace(c.kubectl("get", "pod", pod, "-o", "jsonpath={.status.podIP}"))
	request, _ := http.NewRequest(http.MethodPost, "http://"+ip+":8080/crash", nil)
	do(request)
	c.until("the container restarts", func() error {
		return wants(c.kubectl("get", "pod", pod, "-o", "jsonpath={.status.containerStatuses[0]}"), `"restartCount":1`, `"ready":true`, `"exitCode":3`)
	})
	c.contains("logs --previous", c.kubectl("logs", "--previous", pod), "the shop is open")
}

func (c *cluster) replace(*testing.T) {
	pod := c.pod()
	c.kubectl("delete", "pod", pod)
	c.until("a replacement", func() error {
		if out := c.kubectl("get", "pods", "-l", "app=shop"); strings.Contains(out, pod) {
			return fmt.Errorf("the deleted pod is still there:\n%s", out)
		}
		return wants(c.kubectl("get", "deployment", "shop"), "3/3")
	})
}

func (c *cluster) rights(*testing.T) {
	ip := strings.TrimSpace(c.kubectl("get", "service", "shop", "-o", "jsonpath={.spec.clusterIP}"))
	c.contains("a pod reads what its Role allows", get("http://"+ip+"/sisters"), "shop-")
	as := "--as=system:serviceaccount:default:shop"
	c.contains("allowed", c.kubectl("auth", "can-i", "list", "pods", as), "yes")
	out, err := c.tryKubectl("get", "secrets", as)
	if err == nil {
		c.t.Errorf("the service account reads Secrets: %s", out)
	}
	c.contains("refused", out, `User "system:serviceaccount:default:shop" cannot list resource "secrets" in API group "" in the namespace "default"`)
}

// kill ends Yare without warning. Its containers run on, and the next start finds them and every object.
func (c *cluster) kill(t *testing.T) {
	c.kubectl("create", "configmap", "last", "--from-literal=a=b")
	type pod struct {
		Metadata struct{ Name, UID string }
		Status   struct {
			ContainerStatuses []struct {
				ContainerID  string
				RestartCount int
			}
		}
	}
	pods := func() map[string]pod {
		var list struct{ Items []pod }
		if err := json.Unmarshal([]byte(c.kubectl("get", "pods", "-o", "json")), &list); err != nil {
			t.Fatal(err)
		}
		out := map[string]pod{}
		for _, p := range list.Items {
			out[p.Metadata.Name] = p
		}
		return out
	}
	before := pods()
	p, alive, err := pidfile.Read(filepath.Join(c.dir, "data", "yare.pid"))
	if err != nil || !alive {
		t.Fatalf("the process: alive %v, %v", alive, err)
	}
	if err := syscall.Kill(p.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	c.until("the process is gone", func() error {
		if p.Alive() {
			return errors.New("still there")
		}
		return nil
	})
	c.up()
	c.kubectl("get", "configmap", "last")
	after := pods()
	for name, was := range before {
		is, ok := after[name]
		if !ok || is.Metadata.UID != was.Metadata.UID {
			t.Errorf("pod %s is lost", name)
			continue
		}
		if fmt.Sprint(is.Status) != fmt.Sprint(was.Status) {
			t.Errorf("pod %s: its container did not run on: %+v, was %+v", name, is.Status, was.Status)
		}
	}
	c.kubectl("rollout", "status", "deployment/shop", "--timeout=60s")
	c.contains("exec after the restart", c.kubectl("exec", "box", "--", "echo", "still here"), "still here")
}
