package core

import (
	"context"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/kind"
	"github.com/yare-project/yare/kinds/fake"
)

var testTime = time.Date(2026, 5, 6, 7, 8, 9, 0, time.UTC)

func envWith(objects ...kind.Object) *fake.Env {
	env := &fake.Env{Time: testTime.Add(345 * time.Millisecond), Choices: kind.Settings{NodeAgentPort: 10250}}
	for _, o := range objects {
		switch o.(type) {
		case *corev1.Pod:
			env.Put("", "pods", o)
		case *corev1.Node:
			env.Put("", "nodes", o)
		case *policyv1.PodDisruptionBudget:
			env.Put("policy", "poddisruptionbudgets", o)
		}
	}
	return env
}

func storedPod(t *testing.T, env *fake.Env) *corev1.Pod {
	t.Helper()
	obj, err := env.Get(t.Context(), podResource, "default", "web")
	if err != nil {
		t.Fatal(err)
	}
	return obj.(*corev1.Pod)
}

func TestBinding(t *testing.T) {
	pod := newPod(func(p *corev1.Pod) { p.Status.NominatedNodeName = "n9" })
	env := envWith(pod)
	body := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", Annotations: map[string]string{"a": "b"}, Labels: map[string]string{"zone": "z1"}}, Target: corev1.ObjectReference{Kind: "Node", Name: "n1"}}
	if _, err := createBinding(t.Context(), env, pod, body, metav1.CreateOptions{DryRun: []string{"All"}}); err != nil {
		t.Fatal(err)
	}
	if storedPod(t, env).Spec.NodeName != "" {
		t.Fatal("a dry run bound the pod")
	}
	if _, err := kindOf(t, "Binding").Answer(kind.WithDryRun(t.Context()), env, body.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	if storedPod(t, env).Spec.NodeName != "" {
		t.Fatal("a dry run by the older path bound the pod")
	}
	if _, err := createBinding(t.Context(), env, pod, body, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	got := storedPod(t, env)
	if got.Spec.NodeName != "n1" || got.Status.NominatedNodeName != "" || got.Annotations["a"] != "b" || got.Labels["zone"] != "z1" {
		t.Errorf("bound pod: node %q nominated %q annotations %v labels %v", got.Spec.NodeName, got.Status.NominatedNodeName, got.Annotations, got.Labels)
	}
	want := []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(testTime)}}
	if d := cmp.Diff(want, got.Status.Conditions); d != "" {
		t.Error(d)
	}
	_, err := createBinding(t.Context(), env, pod, body, metav1.CreateOptions{})
	if !apierrors.IsConflict(err) || !strings.Contains(err.Error(), `Operation cannot be fulfilled on pods/binding "web": pod web is already assigned to node "n1"`) {
		t.Errorf("second binding: %v", err)
	}
}

func TestBindingRefusals(t *testing.T) {
	web := metav1.ObjectMeta{Name: "web"}
	for name, c := range map[string]struct {
		pod  func(*corev1.Pod)
		b    corev1.Binding
		want string
	}{
		"other pod": {nil, corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "u2"}, Target: corev1.ObjectReference{Name: "n"}}, "UID in precondition: u2"},
		"version":   {nil, corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "web", ResourceVersion: "1"}, Target: corev1.ObjectReference{Name: "n"}}, "ResourceVersion in precondition: 1"},
		"gated":     {gate, corev1.Binding{ObjectMeta: web, Target: corev1.ObjectReference{Name: "n"}}, "non-empty .spec.schedulingGates"},
		"going":     {func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: testTime} }, corev1.Binding{ObjectMeta: web, Target: corev1.ObjectReference{Name: "n"}}, "is being deleted"},
		"no target": {nil, corev1.Binding{ObjectMeta: web}, "target.name: Required value"},
		"no pod":    {nil, corev1.Binding{Target: corev1.ObjectReference{Name: "n"}}, "name in URL does not match name in Binding object"},
		"not its":   {nil, corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "api"}, Target: corev1.ObjectReference{Name: "n"}}, "name in URL does not match name in Binding object"},
		"no node":   {nil, corev1.Binding{ObjectMeta: web, Target: corev1.ObjectReference{Kind: "Pod", Name: "n"}}, "target.kind: Unsupported value"},
	} {
		pod := newPod()
		if c.pod != nil {
			pod = newPod(c.pod)
		}
		_, err := createBinding(t.Context(), envWith(pod), pod, &c.b, metav1.CreateOptions{})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// An eviction says whom it evicts, so that one sent to the wrong URL does nothing.
func TestEvictionOfAnother(t *testing.T) {
	for _, name := range []string{"", "api"} {
		pod := newPod()
		_, err := evict(t.Context(), envWith(pod), pod, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		if !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), "name in URL does not match name in Eviction object") {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func budget(allowed int32, change ...func(*policyv1.PodDisruptionBudget)) *policyv1.PodDisruptionBudget {
	b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "keep"},
		Spec:   policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
		Status: policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: allowed, CurrentHealthy: 2, DesiredHealthy: 2}}
	for _, f := range change {
		f(b)
	}
	return b
}

func runningPod(ready corev1.ConditionStatus) *corev1.Pod {
	return newPod(func(p *corev1.Pod) {
		p.Labels = map[string]string{"app": "web"}
		p.Spec.NodeName, p.Status.Phase = "n1", corev1.PodRunning
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}
	})
}

func TestEviction(t *testing.T) {
	evictOnce := func(env *fake.Env, pod *corev1.Pod) error {
		_, err := evict(context.Background(), env, pod, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "web"}}, metav1.CreateOptions{})
		return err
	}
	t.Run("no budget", func(t *testing.T) {
		env := envWith(runningPod("True"))
		if err := evictOnce(env, runningPod("True")); err != nil {
			t.Fatal(err)
		}
		if _, err := env.Get(t.Context(), podResource, "default", "web"); !apierrors.IsNotFound(err) {
			t.Errorf("the pod is still there: %v", err)
		}
	})
	t.Run("allowed", func(t *testing.T) {
		env := envWith(runningPod("True"), budget(1))
		if err := evictOnce(env, runningPod("True")); err != nil {
			t.Fatal(err)
		}
		obj, err := env.Get(t.Context(), budgetResource, "default", "keep")
		if err != nil {
			t.Fatal(err)
		}
		got := obj.(*policyv1.PodDisruptionBudget).Status
		if got.DisruptionsAllowed != 0 || got.DisruptedPods["web"].Time != testTime {
			t.Errorf("the budget was not charged: %+v", got)
		}
	})
	t.Run("refused", func(t *testing.T) {
		env := envWith(runningPod("True"), budget(0))
		err := evictOnce(env, runningPod("True"))
		if !apierrors.IsTooManyRequests(err) {
			t.Fatalf("want 429, got %v", err)
		}
		causes := err.(*apierrors.StatusError).ErrStatus.Details.Causes
		want := []metav1.StatusCause{{Type: policyv1.DisruptionBudgetCause, Message: "The disruption budget keep needs 2 healthy pods and has 2 currently"}}
		if d := cmp.Diff(want, causes); d != "" {
			t.Error(d)
		}
		if len(storedPod(t, env).Status.Conditions) != 1 {
			t.Error("a pod that stays was marked as going")
		}
	})
	t.Run("unready pods cost nothing when enough are healthy", func(t *testing.T) {
		env := envWith(runningPod("False"), budget(0))
		if err := evictOnce(env, runningPod("False")); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("unready pods wait when too few are healthy", func(t *testing.T) {
		few := func(b *policyv1.PodDisruptionBudget) { b.Status.CurrentHealthy = 1 }
		if err := evictOnce(envWith(runningPod("False"), budget(0, few)), runningPod("False")); !apierrors.IsTooManyRequests(err) {
			t.Errorf("got %v", err)
		}
		always := func(b *policyv1.PodDisruptionBudget) {
			few(b)
			b.Spec.UnhealthyPodEvictionPolicy = ptr.To(policyv1.AlwaysAllow)
		}
		if err := evictOnce(envWith(runningPod("False"), budget(0, always)), runningPod("False")); err != nil {
			t.Errorf("AlwaysAllow: %v", err)
		}
	})
	t.Run("two budgets", func(t *testing.T) {
		env := envWith(runningPod("True"), budget(1), budget(1, func(b *policyv1.PodDisruptionBudget) { b.Name = "too" }))
		if err := evictOnce(env, runningPod("True")); err == nil || !strings.Contains(err.Error(), "more than one PodDisruptionBudget") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("ended pods go without asking", func(t *testing.T) {
		pod := runningPod("True")
		pod.Status.Phase = corev1.PodFailed
		if err := evictOnce(envWith(pod, budget(0)), pod); err != nil {
			t.Fatal(err)
		}
	})
}

func testNode() *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Status: corev1.NodeStatus{
		Addresses:       []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: "n1"}, {Type: corev1.NodeInternalIP, Address: "192.0.2.7"}},
		DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: 12345}}}}
}

func TestConnectTargets(t *testing.T) {
	type connect func(context.Context, kind.Env, *corev1.Pod, string, url.Values) (kind.Target, error)
	two := func(p *corev1.Pod) {
		p.Spec.NodeName = "n1"
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "side", Image: "s:1", Ports: []corev1.ContainerPort{{ContainerPort: 8080}}})
	}
	for name, c := range map[string]struct {
		f     connect
		pod   func(*corev1.Pod)
		query string
		want  string // a URL, or a part of the error
	}{
		"log":            {podLog, nil, "follow=true&tailLines=5&timestamps=false&sinceTime=2026-01-01T00:00:00Z", "https://192.0.2.7:12345/containerLogs/default/web/main?follow=true&sinceTime=2026-01-01T00%3A00%3A00Z&tailLines=5"},
		"log which":      {podLog, two, "", "a container name must be specified for pod web, choose one of: [main side]"},
		"log named":      {podLog, two, "container=side&previous=1", "https://192.0.2.7:12345/containerLogs/default/web/side?previous=true"},
		"log unknown":    {podLog, nil, "container=x", "container x is not valid for pod web"},
		"log negative":   {podLog, nil, "tailLines=-1", "tailLines: Invalid value: -1: must be greater than or equal to 0"},
		"log two starts": {podLog, nil, "sinceSeconds=1&sinceTime=2026-01-01T00:00:00Z", "at most one of `sinceTime` or `sinceSeconds` may be specified"},
		"log no node":    {podLog, func(p *corev1.Pod) {}, "", ""},
		"exec no node":   {podExec, func(p *corev1.Pod) {}, "command=sh", "pod web does not have a host assigned"},
		"exec which":     {podExec, two, "", "a container name must be specified for pod web, choose one of: [main side]"},
		"exec":           {podExec, nil, "command=sh&command=-c&command=a%20b&stdin=true&stdout=true&tty=false", "https://192.0.2.7:12345/exec/default/web/main?command=sh&command=-c&command=a+b&input=1&output=1"},
		"exec nothing":   {podExec, nil, "stdout=true", "you must specify at least one command for the container"},
		"attach":         {podAttach, nil, "stdout=1&stderr=1&tty=1", "https://192.0.2.7:12345/attach/default/web/main?error=1&output=1&tty=1"},
		"forward":        {podPortForward, nil, "ports=80,81", "https://192.0.2.7:12345/portForward/default/web?port=80%2C81"},
		"forward wrong":  {podPortForward, nil, "ports=http", `"http" is not a port`},
		"proxy":          {podProxy, func(p *corev1.Pod) { two(p); p.Status.PodIPs = []corev1.PodIP{{IP: "10.1.2.3"}} }, "q=1", "http://10.1.2.3:8080/x/y?q=1"},
		"proxy loopback": {podProxy, func(p *corev1.Pod) { p.Status.PodIPs = []corev1.PodIP{{IP: "127.0.0.1"}} }, "", "address not allowed"},
	} {
		change := func(p *corev1.Pod) { p.Spec.NodeName = "n1" }
		if c.pod != nil {
			change = c.pod
		}
		query, err := url.ParseQuery(c.query)
		if err != nil {
			t.Fatal(err)
		}
		target, err := c.f(t.Context(), envWith(testNode()), newPod(change), "x/y", query)
		switch {
		case err != nil:
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v", name, err)
			}
		case target.URL == nil && c.want == "":
		case target.URL == nil || target.URL.String() != c.want:
			t.Errorf("%s: %s\nwant %s", name, target.URL, c.want)
		}
	}
	via := kind.WithVia(t.Context(), kind.Via{Scheme: "https", Port: "8443"})
	pod := newPod(func(p *corev1.Pod) { p.Status.PodIPs = []corev1.PodIP{{IP: "10.1.2.3"}} })
	if target, err := podProxy(via, envWith(), pod, "/", nil); err != nil || target.URL.String() != "https://10.1.2.3:8443/" || !target.InsecureTLS {
		t.Errorf("proxy to https:web:8443: %+v %v", target, err)
	}
}

func TestNodeProxy(t *testing.T) {
	target, err := nodeProxy(t.Context(), envWith(), testNode(), "metrics", nil)
	if err != nil || target.URL.String() != "https://192.0.2.7:12345/metrics" || target.Node != "n1" {
		t.Errorf("%+v %v", target, err)
	}
	target, err = nodeProxy(kind.WithVia(t.Context(), kind.Via{Port: "9100"}), envWith(), testNode(), "metrics", nil)
	if err != nil || target.URL.String() != "http://192.0.2.7:9100/metrics" || target.Node != "" {
		t.Errorf("%+v %v", target, err)
	}
}
