package namespace_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/yare-project/yare/client"
	ct "github.com/yare-project/yare/controllers/controllertest"
	"github.com/yare-project/yare/controllers/namespace"
	"github.com/yare-project/yare/controllers/served"
)

func list(context.Context) ([]served.Resource, error) {
	all := []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"}
	r := func(resource, kind string, namespaced bool, verbs []string) served.Resource {
		return served.Resource{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: resource}, Kind: kind, Namespaced: namespaced, Verbs: verbs}
	}
	return []served.Resource{r("configmaps", "ConfigMap", true, all), r("pods", "Pod", true, all), r("services", "Service", true, all[:7]),
		r("nodes", "Node", false, all), r("bindings", "Binding", true, []string{"create"})}, nil
}

func meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: ct.Namespace, Name: name}
}

func TestContentGoesAndThenTheNamespace(t *testing.T) {
	s := ct.New(t, namespace.Descriptor(list)).Go()
	ns := s.Put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ct.Namespace}}).(*corev1.Namespace)
	s.Put(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "elsewhere", Name: "stays"}})
	s.Put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "stays"}})
	held := meta("held")
	held.Finalizers = []string{"example.com/hold"}
	s.Put(&corev1.ConfigMap{ObjectMeta: held}, &corev1.ConfigMap{ObjectMeta: meta("free")}, &corev1.Service{ObjectMeta: meta("svc")})
	p := &corev1.Pod{ObjectMeta: meta("pod"), Spec: corev1.PodSpec{NodeName: "n"}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}
	s.Put(p)
	ct.Delete(s, ns, metav1.DeleteOptions{})

	s.Until("the pod is asked to go", func() bool {
		q := ct.Get[*corev1.Pod](s, "pod")
		return q != nil && q.DeletionTimestamp != nil
	}, func() any { return ct.Get[*corev1.Pod](s, "pod") })
	s.Settled()
	if n := len(ct.All[*corev1.ConfigMap](s)); n != 2 {
		t.Fatalf("%d ConfigMaps are left while a pod still runs, want both", n)
	}
	now := int64(0)
	ct.Delete(s, ct.Get[*corev1.Pod](s, "pod"), metav1.DeleteOptions{GracePeriodSeconds: &now})
	ct.UntilEqual(s, "what is free went", []string{"held"}, func() (out []string) {
		for _, m := range ct.All[*corev1.ConfigMap](s) {
			out = append(out, m.Name)
		}
		for _, svc := range ct.All[*corev1.Service](s) {
			out = append(out, svc.Name)
		}
		return out
	})
	s.Settled()
	s.Clock.Step(2 * time.Second)
	remaining := func() string {
		ns, err := client.Of[*corev1.Namespace](s.Server).Get(context.Background(), "", ct.Namespace)
		if err != nil {
			return err.Error()
		}
		i := slices.IndexFunc(ns.Status.Conditions, func(c corev1.NamespaceCondition) bool { return c.Type == corev1.NamespaceFinalizersRemaining })
		if i < 0 {
			return ""
		}
		return string(ns.Status.Conditions[i].Status) + " " + ns.Status.Conditions[i].Message
	}
	ct.UntilEqual(s, "a condition names the finalizer", "True Some content in the namespace has finalizers remaining: example.com/hold in 1 resource instances", remaining)
	ct.Change(s, ct.Get[*corev1.ConfigMap](s, "held"), func(m *corev1.ConfigMap) { m.Finalizers = nil })
	s.Until("the namespace is gone", func() bool { return strings.Contains(remaining(), "not found") }, func() any { return remaining() })
	if len(ct.AllIn[*corev1.ConfigMap](s, "elsewhere")) != 1 || len(ct.AllIn[*corev1.Node](s, "")) != 1 {
		t.Error("objects outside the namespace were deleted")
	}
}

func TestALiveNamespaceIsLeftAlone(t *testing.T) {
	s := ct.New(t, namespace.Descriptor(list)).Go()
	s.Put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ct.Namespace}}, &corev1.ConfigMap{ObjectMeta: meta("a")})
	s.Settled()
	if n := len(ct.All[*corev1.ConfigMap](s)); n != 1 {
		t.Errorf("%d ConfigMaps in a live namespace, want 1", n)
	}
}
