package main

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/yare-project/yare/internal/kubeconfig"
	"github.com/yare-project/yare/server"
	"github.com/yare-project/yare/why"
)

// plane is a control plane without a node in this process: API server, controllers and scheduler.
type plane struct {
	*testing.T
	kubeconfig string
	api        kubernetes.Interface
}

func startControlPlane(t *testing.T) *plane {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &server.Config{DataDir: t.TempDir(), Backend: server.Memory, BindAddress: netip.MustParseAddr("127.0.0.1"), Listener: l, HTTPSPort: l.Addr().(*net.TCPAddr).Port,
		NodeName: "none", WithoutNode: true, NodeIP: netip.MustParseAddr("127.0.0.1"), Log: slog.New(slog.NewTextHandler(io.Discard, nil))}
	if err := c.Complete(); err != nil {
		t.Fatal(err)
	}
	cluster, err := server.Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cluster.Wait(t.Context()) }()
	t.Cleanup(func() { // the test's context ends before
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	p := &plane{T: t, kubeconfig: filepath.Join(t.TempDir(), "kubeconfig")}
	if err := kubeconfig.Write(p.kubeconfig, cluster.Admin("test")); err != nil {
		t.Fatal(err)
	}
	rest, err := clientcmd.BuildConfigFromFlags("", p.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	rest.QPS = -1 // tests don't wait for turns
	if p.api, err = kubernetes.NewForConfig(rest); err != nil {
		t.Fatal(err)
	}
	return p
}

// addNode makes a node that nobody runs, but that is ready.
func (p *plane) addNode(name, cpu string, taints ...corev1.Taint) {
	p.Helper()
	capacity := corev1.ResourceList{"cpu": resource.MustParse(cpu), "memory": resource.MustParse("4Gi"), "pods": resource.MustParse("10")}
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}}, Spec: corev1.NodeSpec{Taints: taints},
		Status: corev1.NodeStatus{Capacity: capacity, Allocatable: capacity, Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "Test",
			LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now()}}}}
	if _, err := p.api.CoreV1().Nodes().Create(p.Context(), n, metav1.CreateOptions{}); err != nil {
		p.Fatal(err)
	}
	p.until("the taint of a new node is off", func() bool {
		n, err := p.api.CoreV1().Nodes().Get(p.Context(), name, metav1.GetOptions{})
		return err == nil && len(n.Spec.Taints) == len(taints)
	})
}

func (p *plane) addPod(name, cpu string) {
	p.Helper()
	o := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "none.invalid/x",
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse(cpu)}}}}}}
	if _, err := p.api.CoreV1().Pods("default").Create(p.Context(), o, metav1.CreateOptions{}); err != nil {
		p.Fatal(err)
	}
}

// until asks again, soon, until f is content.
func (p *plane) until(what string, f func() bool) {
	p.Helper()
	limit := time.After(15 * time.Second)
	for !f() {
		select {
		case <-limit:
			p.Fatalf("%s: not within 15 s", what)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (p *plane) why(args ...string) string {
	p.Helper()
	var out bytes.Buffer
	command := whyCommand()
	command.SetOut(&out)
	command.SetErr(&out)
	command.SetArgs(append([]string{"--kubeconfig", p.kubeconfig}, args...))
	if err := command.ExecuteContext(p.Context()); err != nil {
		p.Fatalf("why %v: %v", args, err)
	}
	return out.String()
}

func TestWhyOfAnUnschedulablePod(t *testing.T) {
	p := startControlPlane(t)
	p.addNode("small", "1")
	p.addNode("kept", "8", corev1.Taint{Key: "for", Value: "gpu", Effect: corev1.TaintEffectNoSchedule})
	p.addPod("big", "1500m")
	var message string
	p.until("the condition", func() bool {
		o, err := p.api.CoreV1().Pods("default").Get(t.Context(), "big", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range o.Status.Conditions {
			if c.Type == corev1.PodScheduled {
				message = c.Message
			}
		}
		return strings.Contains(message, "0/2 nodes")
	})
	const want = "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint(s)."
	const change = "smallest change: 500m more cpu on node small (1 free of 1); or tolerate taint for=gpu:NoSchedule of node kept."
	if !strings.HasPrefix(message, want) || !strings.HasSuffix(message, change) {
		t.Errorf("the condition says %q; want first %q, last %q", message, want, change)
	}
	p.until("the event", func() bool {
		list, err := p.api.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=big,reason=FailedScheduling"})
		return err == nil && len(list.Items) > 0 && strings.HasSuffix(list.Items[0].Message, change)
	})
	plain := p.why("pod/big")
	for _, s := range []string{"pod/big in default: without a node", "created", "no node fits", "Waits for: scheduler", "smallest change: 500m more cpu on node small (1 free of 1)",
		"or tolerate taint for=gpu:NoSchedule of node kept", "next: upon a change of:", "a pod gone"} {
		if !strings.Contains(plain, s) {
			t.Errorf("%q is not in\n%s", s, plain)
		}
	}
	var report why.Report
	if err := json.Unmarshal([]byte(p.why("pod", "big", "-o", "json")), &report); err != nil {
		t.Fatal(err)
	}
	if len(report.Waits) != 1 || len(report.Waits[0].Changes) != 2 || len(report.Unknown) > 0 {
		t.Errorf("the report is %+v", report)
	}
	// The suggestion is true: a node with that much more takes the pod.
	p.addNode("enough", "1500m")
	p.until("the pod is bound", func() bool {
		o, err := p.api.CoreV1().Pods("default").Get(t.Context(), "big", metav1.GetOptions{})
		return err == nil && o.Spec.NodeName == "enough"
	})
	if after := p.why("pod/big"); !strings.Contains(after, "bound to node enough") || !strings.Contains(after, "Waits for: node agent of enough") {
		t.Errorf("once it is bound:\n%s", after)
	}
}

func TestWhyRefuses(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	t.Setenv("HOME", t.TempDir())
	for _, c := range [][]string{{"web", "KIND/NAME"}, {"service/x", "no kind that can be explained"}, {"pod/x", "-o", "yaml", "plain or json"}, {"pod/x", "which cluster to ask"}} {
		want := c[len(c)-1]
		if got := fails(t, whyCommand(), c[:len(c)-1]...); !strings.Contains(got, want) {
			t.Errorf("%v: %q does not say %q", c, got, want)
		}
	}
}
