package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/yare-project/yare/scheduler/command"
	"github.com/yare-project/yare/yaretest"
)

// The scheduler of main.go, on a real API server, puts a pod on the cleanest node and tells why none will do.
func TestPodsGoWherePowerIsClean(t *testing.T) {
	s := yaretest.Start(t)
	api, err := kubernetes.NewForConfig(s.Config())
	if err != nil {
		t.Fatal(err)
	}
	node(t, api, "dirty", "900")
	node(t, api, "middling", "400")
	node(t, api, "clean", "50")
	c := command.New(command.WithPlugin(Name, New))
	c.SetArgs([]string{"--kubeconfig", kubeconfig(t, s), "--config", "scheduler.yaml", "--log-level", "warn"})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.ExecuteContext(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})

	pod(t, api, "web", "1")
	if p := await(t, api, "web", func(p *corev1.Pod) bool { return p.Spec.NodeName != "" }); p.Spec.NodeName != "clean" {
		t.Errorf("the pod went to %s", p.Spec.NodeName)
	}
	pod(t, api, "large", "7")
	if p := await(t, api, "large", func(p *corev1.Pod) bool { return p.Spec.NodeName != "" }); p.Spec.NodeName != "middling" {
		t.Errorf("what does not fit on the cleanest went to %s", p.Spec.NodeName)
	}
	pod(t, api, "huge", "7500m")
	const want = "1 node(s) had power of more than 500 g/kWh"
	await(t, api, "huge", func(p *corev1.Pod) bool {
		return len(p.Status.Conditions) > 0 && strings.Contains(p.Status.Conditions[0].Message, want)
	})
}

func kubeconfig(t *testing.T, s *yaretest.Server) string {
	t.Helper()
	text, err := s.Kubeconfig()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func node(t *testing.T, api kubernetes.Interface, name, carbon string) {
	t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"example.com/carbon": carbon}}}
	room := corev1.ResourceList{"cpu": resource.MustParse("7500m"), "memory": resource.MustParse("8Gi"), "pods": resource.MustParse("10")}
	if name == "middling" {
		room["cpu"] = resource.MustParse("7")
	}
	n.Status = corev1.NodeStatus{Allocatable: room, Capacity: room, Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}
	if _, err := api.CoreV1().Nodes().Create(t.Context(), n, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for body, sub := range map[string]string{`{"spec":{"taints":null}}`: "", status(t, n): "status"} {
		subs := []string{}
		if sub != "" {
			subs = append(subs, sub)
		}
		if _, err := api.CoreV1().Nodes().Patch(t.Context(), name, types.MergePatchType, []byte(body), metav1.PatchOptions{}, subs...); err != nil {
			t.Fatal(err)
		}
	}
}

func status(t *testing.T, n *corev1.Node) string {
	text, err := json.Marshal(map[string]any{"status": n.Status})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func pod(t *testing.T, api kubernetes.Interface, name, cpu string) {
	t.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{SchedulerName: "greenest", Containers: []corev1.Container{{Name: "c", Image: "example.org/web:1",
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse(cpu)}}}}}}
	if _, err := api.CoreV1().Pods("default").Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// await is a bounded wait for a state of a pod.
func await(t *testing.T, api kubernetes.Interface, name string, done func(*corev1.Pod) bool) *corev1.Pod {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	w, err := api.CoreV1().Pods("default").Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	var last *corev1.Pod
	for e := range w.ResultChan() {
		if p, ok := e.Object.(*corev1.Pod); ok {
			if last = p; done(p) {
				return p
			}
		}
	}
	t.Fatalf("%s: not within 20 s: %+v", name, last)
	return nil
}
