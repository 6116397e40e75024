package policy

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/yare-project/yare/client"
	ref "github.com/yare-project/yare/internal/resource"
)

// served answers lists of one resource.
type served struct {
	client.Transport
	items []runtime.Object
}

func (s served) List(_ context.Context, r ref.Ref, _ metav1.ListOptions) ([]runtime.Object, metav1.ListMeta, error) {
	if r.GroupVersionResource != NodeMetrics || r.Namespace != "" {
		panic(r)
	}
	return s.items, metav1.ListMeta{}, nil
}

func nodeMetrics(name string, usage map[string]any) runtime.Object {
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "metrics.k8s.io/v1beta1", "kind": "NodeMetrics", "metadata": map[string]any{"name": name}, "usage": usage}}
}

func TestUsageIsReadInCoresAndBytes(t *testing.T) {
	got, err := Usage{served{items: []runtime.Object{nodeMetrics("a", map[string]any{"cpu": "1500m", "memory": "2Gi"}), nodeMetrics("b", map[string]any{"cpu": "250000000n"})}}}.Read(t.Context())
	want := map[string]map[string]float64{"a": {"cpu": 1.5, "memory": 2 << 30}, "b": {"cpu": 0.25}}
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Error(err, d)
	}
	if _, err := (Usage{served{items: []runtime.Object{nodeMetrics("a", map[string]any{"cpu": "much"})}}}).Read(t.Context()); err == nil {
		t.Error("a usage that is no quantity is taken")
	}
}
