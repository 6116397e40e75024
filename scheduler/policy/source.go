package policy

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/yare-project/yare/client"
	ref "github.com/yare-project/yare/internal/resource"
)

// Source knows numbers about nodes from outside their objects. It is asked now and then, while a policy reads numbers.
type Source interface {
	Name() string
	// Read gives what is known of every node now, by node and by number's name. An error leaves what was known.
	Read(ctx context.Context) (map[string]map[string]float64, error)
}

// NodeMetrics is the resource of metrics.k8s.io, which metrics-server and its like serve.
var NodeMetrics = schema.GroupVersionResource{Group: "metrics.k8s.io", Version: "v1beta1", Resource: "nodes"}

// Usage is the Source of what nodes use by metrics.k8s.io, where the API serves it: cpu in cores, memory in bytes, and what else is reported.
type Usage struct{ Transport client.Transport }

// Name implements Source.
func (Usage) Name() string { return NodeMetrics.Group }

// Read implements Source.
func (u Usage) Read(ctx context.Context) (map[string]map[string]float64, error) {
	list, _, err := u.Transport.List(ctx, ref.Ref{GroupVersionResource: NodeMetrics}, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	out := map[string]map[string]float64{}
	for _, o := range list {
		u, ok := o.(*unstructured.Unstructured)
		if !ok {
			return nil, fmt.Errorf("%s: got a %T", NodeMetrics, o)
		}
		usage, _, err := unstructured.NestedStringMap(u.Object, "usage")
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", NodeMetrics, u.GetName(), err)
		}
		of := map[string]float64{}
		for name, text := range usage {
			q, err := resource.ParseQuantity(text)
			if err != nil {
				return nil, fmt.Errorf("%s %s: usage.%s: %w", NodeMetrics, u.GetName(), name, err)
			}
			of[name] = q.AsApproximateFloat64()
		}
		out[u.GetName()] = of
	}
	return out, nil
}
