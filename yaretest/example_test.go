package yaretest_test

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/yare-project/yare/yaretest"
)

// launcher stands for the operator under test: it reports each Boat afloat. With controller-runtime it would be a Reconciler of a manager made
// from api.Config().
type launcher struct {
	boats dynamic.NamespaceableResourceInterface
}

func (l launcher) reconcile(ctx context.Context, namespace, name string) error {
	boat, err := l.boats.Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if err := unstructured.SetNestedField(boat.Object, true, "status", "afloat"); err != nil {
		return err
	}
	_, err = l.boats.Namespace(namespace).UpdateStatus(ctx, boat, metav1.UpdateOptions{})
	return err
}

var boats = schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: "boats"}

// TestTheLauncher is how a test of an operator looks: a server of its own, the operator's custom resources, and the operator against it.
func TestTheLauncher(t *testing.T) {
	api := yaretest.Start(t, yaretest.CRDs("testdata/crds"))
	client := dynamic.NewForConfigOrDie(api.Config()).Resource(boats)

	boat := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.org/v1", "kind": "Boat", "metadata": map[string]any{"name": "tern"}, "spec": map[string]any{"sails": int64(2)},
	}}
	if _, err := client.Namespace("default").Create(t.Context(), boat, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := (launcher{client}).reconcile(t.Context(), "default", "tern"); err != nil {
		t.Fatal(err)
	}
	got, err := client.Namespace("default").Get(t.Context(), "tern", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if afloat, _, _ := unstructured.NestedBool(got.Object, "status", "afloat"); !afloat {
		t.Errorf("the boat is not afloat: %v", got.Object)
	}
	if rig, _, _ := unstructured.NestedString(got.Object, "spec", "rig"); rig != "sloop" {
		t.Errorf("the rig is %q: its default is sloop", rig)
	}
}

// Example is the shortest use.
func Example() {
	var t *testing.T // a test's own
	_ = func() {
		api := yaretest.Start(t, yaretest.CRDs("../config/crd/bases"), yaretest.Controllers("garbage-collector", "namespace"))
		_ = api.Config() // for ctrl.NewManager, kubernetes.NewForConfig, dynamic.NewForConfig
	}
}
