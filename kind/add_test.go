package kind_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/yare-project/yare/kind"
)

func group() *kind.Group {
	return &kind.Group{Name: "apps", Versions: []string{"v1"}, AddToScheme: []func(*runtime.Scheme) error{appsv1.AddToScheme, corev1.AddToScheme}}
}

func TestWhatFollowsFromTheType(t *testing.T) {
	g := group()
	k := kind.Add(g, kind.Def[appsv1.Deployment]{Names: kind.Names{Plural: "deployments"}})
	if k.Names.Kind != "Deployment" || k.Names.Singular != "deployment" || k.Hub.String() != "apps/v1, Kind=Deployment" || !k.HasStatus || k.Spec == nil || len(k.Verbs) != 8 {
		t.Fatalf("derived %+v", k)
	}
	if _, ok := k.Versions[0].NewList().(*appsv1.DeploymentList); !ok || len(g.Kinds) != 1 {
		t.Fatal("no list, or no kind in the group")
	}
	plain := kind.Add(&kind.Group{Versions: []string{"v1"}, AddToScheme: g.AddToScheme}, kind.Def[corev1.ConfigMap]{Names: kind.Names{Plural: "configmaps"}})
	if plain.HasStatus || plain.Spec != nil || plain.CopyStatus != nil {
		t.Fatalf("a ConfigMap has %+v", plain)
	}
}

func TestCopiedStatusSharesNothing(t *testing.T) {
	k := kind.Add(group(), kind.Def[appsv1.Deployment]{Names: kind.Names{Plural: "deployments"}})
	from := &appsv1.Deployment{Status: appsv1.DeploymentStatus{Replicas: 2, Conditions: []appsv1.DeploymentCondition{{Type: "A"}}}}
	to := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "kept"}, Status: appsv1.DeploymentStatus{Replicas: 9}}
	k.CopyStatus(to, from)
	if d := cmp.Diff(from.Status, to.Status); d != "" || to.Name != "kept" {
		t.Fatal(d, to.Name)
	}
	to.Status.Conditions[0].Type = "B"
	if from.Status.Conditions[0].Type != "A" {
		t.Fatal("the copy shares memory with its source")
	}
	k.ResetStatus(to)
	if d := cmp.Diff(appsv1.DeploymentStatus{}, to.Status); d != "" {
		t.Fatal(d)
	}
}

// A nil old object must reach a kind's functions as a nil pointer of its type.
func TestNilStaysNil(t *testing.T) {
	called := false
	k := kind.Add(group(), kind.Def[appsv1.Deployment]{Names: kind.Names{Plural: "deployments"}, Prepare: func(_, old *appsv1.Deployment) { called = old == nil }})
	if k.Prepare(&appsv1.Deployment{}, nil); !called {
		t.Fatal("old was not nil")
	}
}

func TestWrongDefinitionsDoNotStart(t *testing.T) {
	for name, add := range map[string]func(){
		"no plural":   func() { kind.Add(group(), kind.Def[appsv1.Deployment]{}) },
		"no metadata": func() { kind.Add(group(), kind.Def[corev1.Container]{Names: kind.Names{Plural: "containers"}}).New() },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			add()
		}()
	}
}
