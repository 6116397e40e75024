package garbagecollector_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yare-project/yare/client"
	ct "github.com/yare-project/yare/controllers/controllertest"
	"github.com/yare-project/yare/controllers/garbagecollector"
	"github.com/yare-project/yare/controllers/served"
	"github.com/yare-project/yare/internal/resource"
)

func list(context.Context) ([]served.Resource, error) {
	all := []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"}
	r := func(group, resource, kind string, namespaced bool) served.Resource {
		return served.Resource{GroupVersionResource: schema.GroupVersionResource{Group: group, Version: "v1", Resource: resource}, Kind: kind, Namespaced: namespaced, Verbs: all}
	}
	return []served.Resource{r("", "configmaps", "ConfigMap", true), r("", "pods", "Pod", true), r("", "nodes", "Node", false),
		r("apps", "deployments", "Deployment", true), r("apps", "replicasets", "ReplicaSet", true)}, nil
}

func meta(name string, owners ...metav1.OwnerReference) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: ct.Namespace, Name: name, OwnerReferences: owners}
}

func cm(name string, owners ...metav1.OwnerReference) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: meta(name, owners...)}
}

func ref(o client.Object, blocks bool) metav1.OwnerReference {
	gvk, _ := client.KindOf(o)
	version, kind := gvk.ToAPIVersionAndKind()
	return metav1.OwnerReference{APIVersion: version, Kind: kind, Name: o.GetName(), UID: o.GetUID(), BlockOwnerDeletion: &blocks}
}

func names(s *ct.Stage) []string {
	out := []string{}
	for _, m := range ct.All[*corev1.ConfigMap](s) {
		out = append(out, m.Name)
	}
	slices.Sort(out)
	return out
}

func expect(s *ct.Stage, what string, want ...string) {
	s.Helper()
	if want == nil {
		want = []string{}
	}
	ct.UntilEqual(s, what, want, func() []string { return names(s) })
	s.Settled()
	if got := names(s); !slices.Equal(want, got) {
		s.Fatalf("%s: settled at %v, want %v", what, got, want)
	}
}

func with(p metav1.DeletionPropagation) metav1.DeleteOptions {
	return metav1.DeleteOptions{PropagationPolicy: &p}
}

func TestBackgroundDeletionCascades(t *testing.T) {
	s := ct.New(t, garbagecollector.Descriptor(list)).Go()
	a := s.Put(cm("a"))
	b := s.Put(cm("b", ref(a, true)))
	s.Put(cm("c", ref(b, true)), cm("other"))
	expect(s, "all there", "a", "b", "c", "other")
	ct.Delete(s, a.(*corev1.ConfigMap), with(metav1.DeletePropagationBackground))
	expect(s, "the chain went", "other")
}

func TestDependentWithAnotherOwnerStays(t *testing.T) {
	s := ct.New(t, garbagecollector.Descriptor(list)).Go()
	a, b := s.Put(cm("a")), s.Put(cm("b"))
	s.Put(cm("c", ref(a, true), ref(b, true)))
	ct.Delete(s, a.(*corev1.ConfigMap), metav1.DeleteOptions{})
	expect(s, "kept by b", "b", "c")
	ct.UntilEqual(s, "the dangling reference is taken away", []types.UID{b.GetUID()}, func() (out []types.UID) {
		for _, r := range ct.Get[*corev1.ConfigMap](s, "c").OwnerReferences {
			out = append(out, r.UID)
		}
		return out
	})
	ct.Delete(s, b.(*corev1.ConfigMap), metav1.DeleteOptions{})
	expect(s, "nobody keeps it")
}

func TestAbsentOwners(t *testing.T) {
	s := ct.New(t, garbagecollector.Descriptor(list))
	gone := ref(cm("gone"), true)
	gone.UID = "never-was"
	s.Put(cm("before", gone)) // there before the collector starts
	s.Go()
	expect(s, "found at the start")
	namesake := s.Put(cm("namesake"))
	stale := ref(namesake, true)
	stale.UID = "of-an-earlier-one"
	s.Put(cm("after", stale))
	expect(s, "an owner with the name but another uid is not it", "namesake")

	elsewhere := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "elsewhere", Name: "x"}}
	s.Put(elsewhere)
	s.Put(cm("cross", ref(ct.AllIn[*corev1.ConfigMap](s, "elsewhere")[0], true)))
	expect(s, "an owner in another namespace does not count", "namesake")
	s.Put(cm("unknown", metav1.OwnerReference{APIVersion: "example.com/v1", Kind: "Unknown", Name: "u", UID: "u"}))
	expect(s, "an owner of a kind that is not served keeps its dependent", "namesake", "unknown")
}

func TestClusterOwner(t *testing.T) {
	s := ct.New(t, garbagecollector.Descriptor(list)).Go()
	n := s.Put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}).(*corev1.Node)
	s.Put(cm("a", ref(n, false)))
	expect(s, "kept", "a")
	ct.Delete(s, n, metav1.DeleteOptions{})
	expect(s, "gone with its node")
}

func TestForegroundDeletionWaitsForDependents(t *testing.T) {
	s := ct.New(t, garbagecollector.Descriptor(list)).Go()
	owner := s.Put(cm("owner")).(*corev1.ConfigMap)
	held := cm("held", ref(owner, true))
	held.Finalizers = []string{"example.com/hold"}
	s.Put(held, cm("free", ref(owner, true)), cm("late", ref(owner, false)))
	ct.Delete(s, owner, with(metav1.DeletePropagationForeground))
	expect(s, "waits for the one that blocks and is held", "held", "late", "owner")
	ct.Change(s, held, func(m *corev1.ConfigMap) { m.Finalizers = nil })
	expect(s, "all went, the one that does not block too")
}

func TestOrphanDeletionKeepsDependents(t *testing.T) {
	s := ct.New(t, garbagecollector.Descriptor(list)).Go()
	owner := s.Put(cm("owner")).(*corev1.ConfigMap)
	s.Put(cm("a", ref(owner, true)), cm("b", ref(owner, true)))
	ct.Delete(s, owner, with(metav1.DeletePropagationOrphan))
	expect(s, "dependents stay", "a", "b")
	if refs := ct.Get[*corev1.ConfigMap](s, "a").OwnerReferences; len(refs) != 0 {
		t.Errorf("an orphan keeps the owner %v", refs)
	}
}

func TestForegroundCircleIsBroken(t *testing.T) {
	s := ct.New(t, garbagecollector.Descriptor(list)).Go()
	a := s.Put(cm("a")).(*corev1.ConfigMap)
	b := s.Put(cm("b", ref(a, true))).(*corev1.ConfigMap)
	ct.Change(s, a, func(m *corev1.ConfigMap) { m.OwnerReferences = []metav1.OwnerReference{ref(b, true)} })
	s.Settled()
	ct.Delete(s, a, with(metav1.DeletePropagationForeground))
	expect(s, "both went")
}

func TestNothingIsDeletedWhenTheServerCannotSay(t *testing.T) {
	s := ct.New(t, garbagecollector.Descriptor(list)).Go()
	s.Settled()
	s.Server.FailWith(func(verb string, ref resource.Ref, _ runtime.Object) error {
		if verb == "get" {
			return errors.New("not now")
		}
		return nil
	})
	s.Put(cm("a", metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "gone", UID: "gone"}))
	expect(s, "kept in doubt", "a")
}

func TestDeploymentToPods(t *testing.T) {
	s := ct.New(t, garbagecollector.Descriptor(list)).Go()
	d := s.Put(&appsv1.Deployment{ObjectMeta: meta("d")}).(*appsv1.Deployment)
	rs := s.Put(&appsv1.ReplicaSet{ObjectMeta: meta("rs", ref(d, true))})
	for _, n := range []string{"p1", "p2", "p3"} {
		s.Put(&corev1.Pod{ObjectMeta: meta(n, ref(rs, true))})
	}
	ct.Delete(s, d, with(metav1.DeletePropagationForeground))
	ct.UntilEqual(s, "everything went", 0, func() int {
		return len(ct.All[*corev1.Pod](s)) + len(ct.All[*appsv1.ReplicaSet](s)) + len(ct.All[*appsv1.Deployment](s))
	})
}
