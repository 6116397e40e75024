package apiserver_test

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/yare-project/yare/internal/resource"
	"github.com/yare-project/yare/kind"
)

func podRef(name string) resource.Ref {
	return resource.Ref{GroupVersionResource: corev1.SchemeGroupVersion.WithResource("pods"), Namespace: "ns", Name: name}
}

func TestLocalSharesTheStoresObjects(t *testing.T) {
	h := start(t)
	ctx := within(t)
	l := h.local()
	mine := configMap("a", map[string]string{"k": "v"})
	made, err := l.Create(ctx, configMaps(), mine, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if mine.UID != "" || mine.ResourceVersion != "" {
		t.Error("the caller's object was changed")
	}
	ref := configMaps()
	ref.Name = "a"
	got := must(l.Get(ctx, ref, metav1.GetOptions{}))
	items, meta, err := l.List(ctx, configMaps(), metav1.ListOptions{})
	if err != nil || len(items) != 1 || meta.ResourceVersion == "" {
		t.Fatal(items, meta, err)
	}
	if got != made || items[0] != made {
		t.Error("get, list and create hand out different objects")
	}
	w := must(l.Watch(ctx, configMaps(), metav1.ListOptions{ResourceVersion: meta.ResourceVersion}))
	defer w.Stop()
	change := got.DeepCopyObject().(*corev1.ConfigMap)
	change.Data["k"] = "w"
	changed := must(l.Update(ctx, ref, change, metav1.UpdateOptions{}))
	if e := next(t, w); e.Object != changed {
		t.Error("the watch hands out another object")
	}
	if _, err := l.Update(ctx, ref, made, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("a stale update: %v", err)
	}
	patched := must(l.Patch(ctx, ref, types.MergePatchType, []byte(`{"data":{"p":"q"}}`), metav1.PatchOptions{}))
	if patched.(*corev1.ConfigMap).Data["p"] != "q" {
		t.Error("the patch is not there")
	}
	if _, err := l.Delete(ctx, ref, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Get(ctx, ref, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
}

func TestLocalSubresources(t *testing.T) {
	h := start(t)
	ctx := within(t)
	l := h.local()
	must(l.Create(ctx, podRef(""), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns"}}, metav1.CreateOptions{}))
	binding := podRef("p")
	binding.Subresource = "binding"
	if _, err := l.Create(ctx, binding, &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Target: corev1.ObjectReference{Name: "n1"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	p := must(l.Get(ctx, podRef("p"), metav1.GetOptions{})).DeepCopyObject().(*corev1.Pod)
	if p.Spec.NodeName != "n1" {
		t.Fatal("not bound")
	}
	p.Status.Phase, p.Spec.NodeName = corev1.PodRunning, "elsewhere"
	status := podRef("p")
	status.Subresource = "status"
	got := must(l.Update(ctx, status, p, metav1.UpdateOptions{})).(*corev1.Pod)
	if got.Status.Phase != corev1.PodRunning || got.Spec.NodeName != "n1" {
		t.Fatalf("made %+v", got)
	}
	deps := resource.Ref{GroupVersionResource: appsv1.SchemeGroupVersion.WithResource("deployments"), Namespace: "ns"}
	u := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "d"}, "spec": map[string]any{"selector": map[string]any{}}}}
	must(l.Create(ctx, deps, u, metav1.CreateOptions{}))
	deps.Name, deps.Subresource = "d", "scale"
	s := must(l.Get(ctx, deps, metav1.GetOptions{})).(*autoscalingv1.Scale)
	s.Spec.Replicas = 4
	if s = must(l.Update(ctx, deps, s, metav1.UpdateOptions{})).(*autoscalingv1.Scale); s.Spec.Replicas != 4 {
		t.Fatal(s)
	}
	if _, err := l.Create(ctx, deps, &corev1.Pod{}, metav1.CreateOptions{}); err == nil {
		t.Error("a post to scale went through")
	}
	deps.Name, deps.Subresource = "", ""
	if _, err := l.Create(ctx, deps, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "x"}}, metav1.CreateOptions{}); !apierrors.IsBadRequest(err) {
		t.Errorf("a pod as a deployment: %v", err)
	}
}

func TestLocalWatchEndsWithTheServer(t *testing.T) {
	h := start(t)
	w := must(h.local().Watch(within(t), configMaps(), metav1.ListOptions{}))
	h.server.Drain()
	select {
	case e, open := <-w.ResultChan():
		if open {
			t.Fatalf("got %+v", e)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the watch goes on")
	}
}

func TestEventsExpire(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))
	h := start(t, func(c *apiserverConfig) { c.Clock, c.Settings = clock, kind.Settings{EventTTL: time.Hour} })
	ctx := within(t)
	go func() { _ = h.server.Run(ctx) }()
	c := h.client().CoreV1().Events("ns")
	w := must(c.Watch(ctx, metav1.ListOptions{}))
	defer w.Stop()
	must(c.Create(ctx, &corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{}))
	expect(t, w, "ADDED a")
	b := must(c.Create(ctx, &corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: "b"}}, metav1.CreateOptions{}))
	expect(t, w, "ADDED b")
	born := clock.Now()
	clock.Step(30 * time.Minute)
	b.Count = 2
	must(c.Update(ctx, b, metav1.UpdateOptions{}))
	expect(t, w, "MODIFIED b")
	rewritten := clock.Now()
	go func() { // time flies, but lets everybody look at it
		for ctx.Err() == nil {
			<-time.After(time.Millisecond)
			clock.Step(time.Minute)
		}
	}()
	expect(t, w, "DELETED a")
	if age := clock.Since(born); age < time.Hour {
		t.Errorf("a went after %s", age)
	}
	expect(t, w, "DELETED b")
	if age := clock.Since(rewritten); age < time.Hour {
		t.Errorf("b went %s after it was last written", age)
	}
}

func TestKindsComeAndGo(t *testing.T) {
	h := start(t)
	ctx := within(t)
	more := &kind.Group{Versions: []string{"v1"}, AddToScheme: groups()[0].AddToScheme}
	kind.Add(more, kind.Def[corev1.Secret]{Names: kind.Names{Plural: "secrets"}})
	before := h.server.Registry().Revision()
	if err := h.server.Registry().Add(more.Kinds...); err != nil {
		t.Fatal(err)
	}
	c := h.client().CoreV1().Secrets("ns")
	must(c.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}}, metav1.CreateOptions{}))
	h.server.Registry().Remove(more.Kinds[0].Resource())
	if _, err := c.Get(ctx, "s", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	if h.server.Registry().Revision() == before {
		t.Error("the revision stands still")
	}
	if err := h.server.Registry().Add(more.Kinds...); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Get(ctx, "s", metav1.GetOptions{}); err != nil {
		t.Fatalf("what was stored is lost: %v", err)
	}
}
