package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/yare-project/yare/internal/pidfile"
	"github.com/yare-project/yare/node/runtime"
)

const (
	joinSpace             = "yare-e2e-join" // the second machine
	joinLink, joinPeer    = "yarejoin0", "yarejoin1"
	firstAddr, secondAddr = "198.18.42.1", "198.18.42.2"
	joinServer            = "https://" + firstAddr + ":46443"
	firstName, secondName = "quay", "pier"
)

// fleet is a cluster with a second machine: a network namespace with an address of its own on a link to the host.
type fleet struct {
	*cluster
	second string // the second machine's data folder
	token  string
}

// TestJoin has a second machine join, run pods that reach those of the first, be killed, come back without its token, and leave.
func TestJoin(t *testing.T) {
	c := newCluster(t)
	c.args = []string{"--data-dir", filepath.Join(c.dir, "data"), "--write-kubeconfig", filepath.Join(c.dir, "config"),
		"--https-listen-port", "46443", "--kubelet-port", "41250", "--cluster-cidr", "10.82.0.0/16", "--service-cidr", "10.83.0.0/16",
		"--node-name", firstName, "--node-ip", firstAddr}
	f := &fleet{cluster: c, second: filepath.Join(c.dir, "second")}
	f.unplug() // what a killed run left
	before := look(t, c.dir)
	defer func() {
		f.leave()
		c.down("--purge")
		f.unplug()
		before.check(t, look(t, c.dir))
		_ = os.RemoveAll(c.dir)
	}()
	f.plug()
	t.Logf("up:\n%s", c.up())
	f.token = strings.TrimSpace(c.run(c.yare, "token", "create", "--data-dir", filepath.Join(c.dir, "data")))
	for _, step := range []struct {
		name string
		do   func(*testing.T)
	}{
		{"a machine joins with a token", f.join},
		{"the name of a living node is refused", f.double},
		{"pods run on both nodes", f.pods},
		{"logs and exec reach the second node", f.reach},
		{"pods of both nodes reach each other as themselves", f.across},
		{"Services and DNS work on both nodes", f.services},
		{"the node's certificate opens nothing that is not its own", f.confined},
		{"a killed node comes back without its token", f.comeBack},
		{"a node leaves", f.left},
	} {
		ok := t.Run(step.name, func(t *testing.T) {
			outer := c.t
			c.t = t
			defer func() { c.t = outer }()
			step.do(t)
		})
		if !ok {
			log, _ := os.ReadFile(filepath.Join(f.second, "yare.log"))
			t.Logf("%s--- second machine\n%s%s", c.diagnose(), tail(string(log), 4000), f.onSecondTry("ip", "route"))
			return
		}
	}
}

// plug makes the second machine.
func (f *fleet) plug() {
	f.t.Helper()
	for _, line := range []string{
		"netns add " + joinSpace,
		"link add " + joinLink + " type veth peer name " + joinPeer + " netns " + joinSpace,
		"addr add " + firstAddr + "/24 dev " + joinLink,
		"link set " + joinLink + " up",
		"-n " + joinSpace + " addr add " + secondAddr + "/24 dev " + joinPeer,
		"-n " + joinSpace + " link set " + joinPeer + " up",
		"-n " + joinSpace + " link set lo up",
		"-n " + joinSpace + " route add default via " + firstAddr,
	} {
		f.run("ip", strings.Fields(line)...)
	}
}

func (f *fleet) unplug() {
	_, _ = f.try("ip", "link", "del", joinLink)
	_, _ = f.try("ip", "netns", "del", joinSpace)
}

// onSecond runs a program on the second machine. Unlike `ip netns exec`, nsenter leaves the control groups' mounts in sight.
func (f *fleet) onSecond(name string, args ...string) string {
	f.t.Helper()
	return f.run("nsenter", append([]string{"--net=/run/netns/" + joinSpace, name}, args...)...)
}

func (f *fleet) onSecondTry(name string, args ...string) string {
	out, _ := f.try("nsenter", append([]string{"--net=/run/netns/" + joinSpace, name}, args...)...)
	return out
}

func (f *fleet) startSecond(flags ...string) string {
	f.t.Helper()
	return f.onSecond(f.yare, append([]string{"node", "-d", "--server", joinServer, "--data-dir", f.second, "--node-name", secondName, "--node-ip", secondAddr,
		"--kubelet-port", "41250"}, flags...)...)
}

func (f *fleet) leave() {
	if _, err := os.Stat(f.second); err == nil {
		f.onSecond(f.yare, "down", "--purge", "--data-dir", f.second)
	}
}

func (f *fleet) get(path string, args ...string) string {
	f.t.Helper()
	return strings.TrimSpace(f.kubectl(append([]string{"get", "-o", "jsonpath=" + path}, args...)...))
}

func (f *fleet) join(t *testing.T) {
	f.contains("yare node", f.startSecond("--token", f.token), "get a certificate", "is ready")
	f.contains("get nodes", f.kubectl("get", "nodes", "-o", "wide"), firstName, secondName, firstAddr, secondAddr)
	for _, name := range []string{firstName, secondName} {
		if ready := f.get(`{.status.conditions[?(@.type=="Ready")].status}`, "node", name); ready != "True" {
			t.Errorf("node %s: Ready is %q", name, ready)
		}
	}
	if a, b := f.get("{.spec.podCIDRs}", "node", firstName), f.get("{.spec.podCIDRs}", "node", secondName); a == b || a == "" || b == "" {
		t.Errorf("pod ranges are %q and %q, want two", a, b)
	}
	f.contains("get csr", f.kubectl("get", "csr"), "kube-apiserver-client-kubelet", "kubelet-serving", "system:node:"+secondName, "Approved,Issued")
}

func (f *fleet) double(t *testing.T) {
	out, err := f.try("nsenter", "--net=/run/netns/"+joinSpace, f.yare, "node", "--server", joinServer, "--token", f.token,
		"--data-dir", filepath.Join(f.dir, "third"), "--node-name", secondName, "--node-ip", secondAddr, "--kubelet-port", "41251")
	if err == nil {
		t.Fatalf("a second %s joined:\n%s", secondName, out)
	}
	f.contains("the refusal", out, "--node-name", "kubectl delete node "+secondName)
}

// fleetObjects has a Secret that the second node's pod uses, one that no pod uses, and a Service for each node's pod.
const fleetObjects = `
apiVersion: v1
kind: Secret
metadata: {name: mine}
stringData: {word: mine}
---
apiVersion: v1
kind: Secret
metadata: {name: other}
stringData: {word: other}
---
apiVersion: v1
kind: Service
metadata: {name: on-first}
spec: {type: NodePort, selector: {at: first}, ports: [{port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: on-second}
spec: {selector: {at: second}, ports: [{port: 80}]}
`

// fleetPod is a web server on a node that tells who asks, and its own name.
const fleetPod = `
---
apiVersion: v1
kind: Pod
metadata: {name: %[1]s, labels: {at: %[1]s}}
spec:
  nodeName: %[2]s
  terminationGracePeriodSeconds: 0
  containers:
  - name: who
    image: yare.dev/busybox:1
    command: [sh, -c, 'echo "$HOSTNAME listens"; mkdir -p /www/cgi-bin; cd /www/cgi-bin; (echo "#!/bin/sh"; echo "echo; echo \$HOSTNAME sees \$REMOTE_ADDR") >who; chmod +x who; exec httpd -f -p 80 -h /www']
    readinessProbe: {tcpSocket: {port: 80}, periodSeconds: 1}
`

const secretMount = `    volumeMounts: [{name: mine, mountPath: /mine}]
  volumes: [{name: mine, secret: {secretName: mine}}]
`

func (f *fleet) pods(t *testing.T) {
	for _, dir := range []string{filepath.Join(f.dir, "data"), f.second} {
		f.contains("image import", f.run(f.yare, "image", "import", "--data-dir", dir, filepath.Join(f.root, "bin/images/busybox.tar")), "yare.dev/busybox:1")
	}
	manifest := filepath.Join(f.dir, "fleet.yaml")
	text := fleetObjects + fmt.Sprintf(fleetPod, "first", firstName) + fmt.Sprintf(fleetPod, "second", secondName) + secretMount
	if err := os.WriteFile(manifest, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	f.kubectl("apply", "-f", manifest)
	f.kubectl("wait", "--for=condition=Ready", "pod/first", "pod/second", "--timeout=60s")
	f.contains("get pods", f.kubectl("get", "pods", "-o", "wide"), firstName, secondName)
}

func (f *fleet) reach(*testing.T) {
	f.contains("logs", f.kubectl("logs", "second"), "second listens")
	f.contains("exec", f.kubectl("exec", "second", "--", "cat", "/mine/word"), "mine")
}

// ask has a pod fetch a URL and say who it was to the answering pod.
func (f *fleet) ask(from, host string) (answer string) {
	f.t.Helper()
	f.until(from+" asks "+host, func() (err error) {
		answer, err = f.tryKubectl("exec", from, "--", "wget", "-q", "-O", "-", "http://"+host+"/cgi-bin/who")
		if err != nil {
			err = fmt.Errorf("%w: %s", err, answer)
		}
		return err
	})
	return answer
}

// across: neither routes nor masquerade may hide which pod speaks.
func (f *fleet) across(*testing.T) {
	first, second := f.get("{.status.podIP}", "pod", "first"), f.get("{.status.podIP}", "pod", "second")
	f.contains("the first's answer", f.ask("second", first), "first sees", second+"]")
	f.contains("the second's answer", f.ask("first", second), "second sees", first+"]")
}

func (f *fleet) services(*testing.T) {
	first, second := f.get("{.status.podIP}", "pod", "first"), f.get("{.status.podIP}", "pod", "second")
	f.contains("by ClusterIP", f.ask("second", f.get("{.spec.clusterIP}", "svc", "on-first")), "first sees", second+"]")
	f.contains("by name, on the second", f.ask("second", "on-first.default.svc.cluster.local"), "first sees", second+"]")
	f.contains("by name, on the first", f.ask("first", "on-second"), "second sees", first+"]")
	f.contains("the API server, from the second", f.kubectl("exec", "second", "--", "sh", "-c", `printf 'GET / HTTP/1.0\r\n\r\n' | nc -w 5 kubernetes.default.svc.cluster.local 443`), "HTTPS server")
	port := f.get("{.spec.ports[0].nodePort}", "svc", "on-first")
	f.contains("by the second node's NodePort", f.ask("first", secondAddr+":"+port), "first sees")
}

// confined asks as the node, with the certificate that it got.
func (f *fleet) confined(t *testing.T) {
	cert := filepath.Join(f.second, "pki", "node-client-"+secondName+".pem")
	as := func(args ...string) (string, error) {
		return f.tryKubectl(append([]string{"--kubeconfig", "/dev/null", "--server", joinServer, "--certificate-authority", filepath.Join(f.second, "pki", "cluster-ca.pem"),
			"--client-certificate", cert, "--client-key", cert}, args...)...)
	}
	if out, err := as("get", "secret", "mine"); err != nil {
		t.Errorf("the Secret of the node's own pod: %v\n%s", err, out)
	}
	for _, args := range [][]string{
		{"get", "secret", "other"}, {"get", "secrets"}, {"get", "secrets", "-n", "kube-system"},
		{"label", "node", firstName, "stolen=yes"}, {"label", "node", secondName, "node-restriction.kubernetes.io/x=yes"}, {"delete", "pod", "first", "--wait=false"},
	} {
		out, err := as(args...)
		if err == nil || !strings.Contains(strings.ToLower(out), "forbidden") && !strings.Contains(out, "is not allowed") {
			t.Errorf("kubectl %v as the second node: %v\n%s", args, err, out)
		}
	}
}

func (f *fleet) comeBack(t *testing.T) {
	id, _, _ := strings.Cut(f.token[strings.Index(f.token, "::")+2:], ".")
	f.run(f.yare, "token", "delete", id, "--data-dir", filepath.Join(f.dir, "data"))
	container := f.get("{.status.containerStatuses[0].containerID}", "pod", "second")
	p, alive, err := pidfile.Read(filepath.Join(f.second, "yare.pid"))
	if err != nil || !alive {
		t.Fatalf("the node's process file: alive %v, %v", alive, err)
	}
	if err := syscall.Kill(p.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	f.until("the killed node is gone", func() error {
		if p.Alive() {
			return errors.New("still there")
		}
		return nil
	})
	first, second := f.get("{.status.podIP}", "pod", "first"), f.get("{.status.podIP}", "pod", "second")
	f.contains("while the node's Yare is down", f.ask("first", second), "second sees", first)
	f.contains("yare node, again", f.startSecond(), "is ready")
	f.until("exec works again", func() error {
		_, err := f.tryKubectl("exec", "second", "--", "true")
		return err
	})
	if now := f.get("{.status.containerStatuses[0].containerID} {.status.containerStatuses[0].restartCount}", "pod", "second"); now != container+" 0" {
		t.Errorf("the container is %s, it was %s", now, container)
	}
}

func (f *fleet) left(t *testing.T) {
	f.onSecond(f.yare, "down", "--purge", "--data-dir", f.second)
	links := strings.Fields(f.onSecond("ip", "-br", "link"))
	if slices.ContainsFunc(links, func(l string) bool { return strings.HasPrefix(l, "yare-") || strings.HasPrefix(l, "veth") }) {
		t.Errorf("links are left on the second machine: %v", links)
	}
	if routes := f.onSecond("ip", "route"); strings.Contains(routes, "10.8") {
		t.Errorf("routes are left on the second machine:\n%s", routes)
	}
	if rules := f.onSecond("nft", "list", "ruleset"); strings.TrimSpace(rules) != "" {
		t.Errorf("rules are left on the second machine:\n%s", rules)
	}
	if _, err := os.Stat(f.second); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the second machine's data folder after --purge: %v", err)
	}
	id := runtime.Config{Dir: filepath.Join(f.second, "runtime")}.ID()
	for _, trace := range slices.Concat(processes(f.second), mounts(f.second)) {
		if strings.Contains(trace, f.second) || strings.Contains(trace, id) {
			t.Errorf("left of the second machine: %s", trace)
		}
	}
	f.contains("the first machine's pod", f.kubectl("exec", "first", "--", "wget", "-q", "-O", "-", "http://on-first/cgi-bin/who"), "first sees")
	f.kubectl("delete", "node", secondName)
	f.until("the route to the second machine's pods goes", func() error {
		if out := f.run("ip", "route", "show", "proto", "89"); strings.Contains(out, secondAddr) {
			return errors.New(out)
		}
		return nil
	})
}
