package kubeletapi_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	utilexec "k8s.io/client-go/util/exec"
	crisvc "k8s.io/cri-api/pkg/apis/runtime/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/yare-project/yare/node/cri"
	"github.com/yare-project/yare/node/kubeletapi"
	"github.com/yare-project/yare/node/runtime/runtimetest"
)

// real is the API before a real containerd.
func real(t *testing.T) (*api, func(name string) *runtimetest.Pod) {
	t.Helper()
	r := runtimetest.Prepared(t)
	conn, err := cri.Connect(t.Context(), r.Endpoint())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	a := serve(t, kubeletapi.Config{Runtime: conn, Images: conn})
	return a, func(name string) *runtimetest.Pod { return runtimetest.RunPod(t, r, name) }
}

// executors are the two ways in which clients stream.
func (a *api) executors(path string) map[string]remotecommand.Executor {
	a.t.Helper()
	u, err := url.Parse(a.url + path)
	if err != nil {
		a.t.Fatal(err)
	}
	s, err := remotecommand.NewSPDYExecutor(a.rest(), "POST", u)
	if err != nil {
		a.t.Fatal(err)
	}
	w, err := remotecommand.NewWebSocketExecutor(a.rest(), "GET", u.String())
	if err != nil {
		a.t.Fatal(err)
	}
	w4, err := remotecommand.NewWebSocketExecutorForProtocols(a.rest(), "GET", u.String(), "v4.channel.k8s.io")
	if err != nil {
		a.t.Fatal(err)
	}
	return map[string]remotecommand.Executor{"SPDY": s, "WebSocket": w, "WebSocket without v5": w4}
}

func TestStreamsOnRealContainers(t *testing.T) {
	a, runPod := real(t)
	p := runPod("s")
	id := p.Run("main", "wait")
	conf := p.Config("echo", "upper")
	conf.Stdin = true
	echo := p.Start(conf)
	web := p.Run("web", "http", ":8080", "hello from the pod")
	a.view.put(pod("s", runningStatus("main", id), runningStatus("echo", echo), runningStatus("web", web)))

	t.Run("exec", func(t *testing.T) {
		q := url.Values{"command": {"/prog", "upper"}, "input": {"1"}, "output": {"1"}, "error": {"1"}}
		for name, e := range a.executors("/exec/default/s/main?" + q.Encode()) {
			if name == "WebSocket without v5" {
				continue // that protocol can't tell the end of input
			}
			var out, errOut bytes.Buffer
			if err := e.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdin: strings.NewReader("a\nb\n"), Stdout: &out, Stderr: &errOut}); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if out.String() != "got a\ngot b\n" || errOut.String() != "end of input\n" {
				t.Errorf("%s: stdout %q, stderr %q", name, out.String(), errOut.String())
			}
		}
	})
	t.Run("exit code", func(t *testing.T) {
		q := url.Values{"command": {"/prog", "exit", "7"}, "output": {"1"}}
		for name, e := range a.executors("/exec/default/s/s-uid/main?" + q.Encode()) {
			err := e.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: io.Discard})
			if code, ok := err.(utilexec.CodeExitError); !ok || code.Code != 7 {
				t.Errorf("%s: error %v, want exit code 7", name, err)
			}
		}
	})
	t.Run("terminal", func(t *testing.T) {
		q := url.Values{"command": {"/prog", "print", "on a terminal"}, "output": {"1"}, "tty": {"1"}}
		for name, e := range a.executors("/exec/default/s/main?" + q.Encode()) {
			var out bytes.Buffer
			if err := e.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: &out, Tty: true}); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if out.String() != "on a terminal\r\n" {
				t.Errorf("%s: printed %q", name, out.String())
			}
		}
	})
	t.Run("attach", func(t *testing.T) {
		q := url.Values{"input": {"1"}, "output": {"1"}}
		for name, e := range a.executors("/attach/default/s/echo?" + q.Encode()) {
			stdin, send := io.Pipe()
			recv, stdout := io.Pipe()
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() {
				done <- e.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: stdin, Stdout: stdout})
				stdout.Close()
			}()
			fmt.Fprintln(send, name)
			if line, err := bufio.NewReader(recv).ReadString('\n'); err != nil || line != "got "+name+"\n" {
				t.Errorf("%s: read %q, %v", name, line, err)
			}
			cancel()
			<-done
		}
	})
	t.Run("port-forward", func(t *testing.T) {
		u, _ := url.Parse(a.url + "/portForward/default/s")
		tr, upgrader, err := spdy.RoundTripperFor(a.rest())
		if err != nil {
			t.Fatal(err)
		}
		tunnel, err := portforward.NewSPDYOverWebsocketDialer(u, a.rest())
		if err != nil {
			t.Fatal(err)
		}
		for name, d := range map[string]httpstream.Dialer{
			"SPDY": spdy.NewDialer(upgrader, &http.Client{Transport: tr}, "POST", u), "WebSocket": tunnel,
		} {
			if body := forwarded(t, d); body != "hello from the pod" {
				t.Errorf("%s: answered %q", name, body)
			}
		}
	})
	t.Run("run", func(t *testing.T) {
		if status, body := a.do("POST", "/run/default/s/main?cmd=/prog+print+one"); status != 200 || body != "one\n" {
			t.Errorf("status %d, body %q", status, body)
		}
		if status, body := a.do("POST", "/run/default/s/main?cmd=/prog+exit+4"); status != 500 || !strings.Contains(body, "exited with 4") {
			t.Errorf("status %d, body %q", status, body)
		}
	})
	t.Run("refusals", func(t *testing.T) {
		for path, want := range map[string]struct {
			status int
			text   string
		}{
			"/exec/default/none/main?command=x&output=1":        {404, `pod "none" does not exist`},
			"/exec/default/s/none?command=x&output=1":           {404, `container not found ("none")`},
			"/exec/default/s/other-uid/main?command=x&output=1": {404, `UID "other-uid"`},
			"/exec/default/s/main?command=x":                    {400, "at least 1 of stdin, stdout, stderr"},
			"/exec/default/s/main?output=1":                     {400, `"command"`},
		} {
			if status, body := a.do("POST", path); status != want.status || !strings.Contains(body, want.text) {
				t.Errorf("%s: %d %q, want %d with %q", path, status, body, want.status, want.text)
			}
		}
	})
	t.Run("running pods", func(t *testing.T) {
		_, body := a.do("GET", "/runningpods/")
		var list corev1.PodList
		if err := json.Unmarshal([]byte(body), &list); err != nil || len(list.Items) != 1 || list.Items[0].Name != "s" || len(list.Items[0].Spec.Containers) != 3 {
			t.Errorf("%v: %s", err, body)
		}
	})
	t.Run("statistics", func(t *testing.T) { a.checkStatistics(t) })
}

// forwarded fetches a page through a forwarded port.
func forwarded(t *testing.T, d httpstream.Dialer) string {
	t.Helper()
	stop, ready := make(chan struct{}), make(chan struct{})
	f, err := portforward.NewOnAddresses(d, []string{"127.0.0.1"}, []string{"0:8080"}, stop, ready, io.Discard, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- f.ForwardPorts() }()
	defer func() { close(stop); <-done }()
	select {
	case <-ready:
	case err := <-done:
		done <- err
		t.Fatalf("forward: %v", err)
	}
	ports, err := f.GetPorts()
	if err != nil {
		t.Fatal(err)
	}
	c := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := c.Get("http://" + net.JoinHostPort("127.0.0.1", fmt.Sprint(ports[0].Local)))
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	return string(b)
}

func (a *api) checkStatistics(t *testing.T) {
	t.Helper()
	_, body := a.do("GET", "/stats/summary")
	var sum stats.Summary
	if err := json.Unmarshal([]byte(body), &sum); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	if sum.Node.NodeName != "n1" || *sum.Node.Memory.WorkingSetBytes == 0 || *sum.Node.CPU.UsageCoreNanoSeconds == 0 || *sum.Node.Fs.CapacityBytes == 0 || sum.Node.Runtime.ImageFs == nil {
		t.Errorf("node statistics lack something: %s", body)
	}
	if len(sum.Pods) != 1 {
		t.Fatalf("%d pods: %s", len(sum.Pods), body)
	}
	p := sum.Pods[0]
	var names []string
	for _, c := range p.Containers {
		names = append(names, c.Name)
		if c.CPU == nil || c.CPU.UsageCoreNanoSeconds == nil || c.Memory == nil || c.Memory.WorkingSetBytes == nil || *c.Memory.WorkingSetBytes == 0 || c.Logs == nil || c.StartTime.IsZero() {
			t.Errorf("statistics of container %s lack something: %s", c.Name, body)
		}
	}
	if len(names) != 3 || p.PodRef.UID != "s-uid" || p.Memory == nil || p.CPU == nil || p.Network == nil || p.Network.Name != "eth0" || *p.EphemeralStorage.UsedBytes == 0 {
		t.Errorf("pod statistics lack something: %s", body)
	}
	_, text := a.do("GET", "/metrics/resource")
	for _, want := range []string{
		"\nnode_cpu_usage_seconds_total ", "\nnode_memory_working_set_bytes ", "\npod_cpu_usage_seconds_total{namespace=\"default\",pod=\"s\"} ",
		"\ncontainer_memory_working_set_bytes{container=\"main\",namespace=\"default\",pod=\"s\"} ", "\nresource_scrape_error 0\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("/metrics/resource lacks %q:\n%s", want, text)
		}
	}
	if _, text := a.do("GET", "/metrics/cadvisor"); !strings.Contains(text, "\ncontainer_network_receive_bytes_total{container=\"\",interface=\"eth0\",namespace=\"default\",pod=\"s\"} ") {
		t.Errorf("/metrics/cadvisor lacks the network:\n%s", text)
	}
}

func TestLogsOfRealContainers(t *testing.T) {
	a, runPod := real(t)
	p := runPod("l")
	conf := p.Config("echo", "upper")
	conf.Stdin, conf.StdinOnce = true, true
	id := p.Start(conf)
	old := p.Run("old", "print", "first run", "second line")
	st := runningStatus("echo", id)
	ended := corev1.ContainerStatus{Name: "old", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}}
	ended.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ContainerID: "containerd://" + old}
	pulling := corev1.ContainerStatus{Name: "pulling", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}}}
	a.view.put(pod("l", st, ended, pulling))

	follow, err := http.NewRequestWithContext(t.Context(), "GET", a.url+"/containerLogs/default/l/echo?follow=true", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := a.http(a.ca.client("admin")).Do(follow)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewReader(resp.Body)

	// Input by attach; its end ends the program, hence the log.
	send := make(chan string)
	go func() {
		e := a.executors("/attach/default/l/echo?input=1&output=1")["SPDY"]
		_ = e.StreamWithContext(context.Background(), remotecommand.StreamOptions{Stdin: &channelReader{c: send}, Stdout: io.Discard})
	}()
	send <- "one\n"
	expectLine(t, lines, "got one\n")
	if _, err := p.C.ReopenContainerLog(t.Context(), &crisvc.ReopenContainerLogRequest{ContainerId: id}); err != nil {
		t.Fatal(err)
	}
	send <- "two\n"
	expectLine(t, lines, "got two\n")
	close(send)
	expectLine(t, lines, "end of input\n")
	if rest, err := io.ReadAll(lines); err != nil || len(rest) > 0 {
		t.Errorf("after the container's end the log goes on: %q, %v", rest, err)
	}

	for path, want := range map[string]struct {
		status int
		body   string
	}{
		"old?previous=true":             {200, "first run\nsecond line\n"},
		"old?tailLines=1":               {200, "second line\n"},
		"old?limitBytes=5":              {200, "first"},
		"old?stream=Stderr":             {200, ""},
		"echo?stream=Stderr":            {200, "end of input\n"},
		"echo?previous=true":            {400, "previous terminated container \"echo\" in pod \"l\" not found\n"},
		"pulling":                       {400, "container \"pulling\" in pod \"l\" is waiting to start: trying and failing to pull image\n"},
		"none":                          {404, "container \"none\" not found in pod \"l\"\n"},
		"old?tailLines=-1":              {400, "invalid log option tailLines=\"-1\": must be at least 0\n"},
		"old?stream=Stdout&tailLines=1": {422, "`tailLines` and specific `stream` are mutually exclusive for now\n"},
	} {
		status, body := a.do("GET", "/containerLogs/default/l/"+path)
		if status != want.status {
			t.Errorf("%s: status %d: %s", path, status, body)
		}
		if diff := cmp.Diff(want.body, body); diff != "" {
			t.Errorf("%s (-want +got):\n%s", path, diff)
		}
	}
	if _, body := a.do("GET", "/containerLogs/default/l/old?timestamps=true&tailLines=1"); !strings.HasSuffix(body, "Z second line\n") && !strings.Contains(body, "+") {
		t.Errorf("with timestamps: %q", body)
	}
}

func expectLine(t *testing.T, r *bufio.Reader, want string) {
	t.Helper()
	if got, err := r.ReadString('\n'); err != nil || got != want {
		t.Fatalf("followed log says %q, %v; want %q", got, err, want)
	}
}

// channelReader reads what is sent until the channel closes.
type channelReader struct {
	c    chan string
	rest string
}

func (r *channelReader) Read(p []byte) (int, error) {
	for r.rest == "" {
		s, ok := <-r.c
		if !ok {
			return 0, io.EOF
		}
		r.rest = s
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}
