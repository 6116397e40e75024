package apply_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/yare-project/yare/apiserver/apply"
)

// BenchmarkApplyWide makes an object of many fields by an apply: what a field costs must not grow with their number.
func BenchmarkApplyWide(b *testing.B) {
	for _, n := range []int{1000, 10000, 80000} {
		b.Run(fmt.Sprint("labels=", n), func(b *testing.B) {
			labels := map[string]any{}
			for i := range n {
				labels[fmt.Sprint("k", i)] = "v"
			}
			config := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "p", "labels": labels}}}
			m, v := apply.For(pods, apply.NewTypes(scheme(b))), &pods.Versions[0]
			live := &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Name: "p"}}
			for b.Loop() {
				if _, err := m.Apply(live, config, v, "", "kubectl", false); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*n), "µs/field")
		})
	}
}
