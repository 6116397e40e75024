package codec_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/yare-project/yare/apiserver/codec"
	"github.com/yare-project/yare/apiserver/stored"
)

// numbers are quantities, and whether one is read.
var numbers = map[string]bool{
	"1": true, "100m": true, "1.5Gi": true, "1e3": true, "1E9999": true, "-1e-9999": true, "1e00000009": true, strings.Repeat("9", 900): true, "1Ei": true, "": true,
	"1e10000": false, "1E+999999999": false, "1e-999999999": false, ".1e0123456": false, strings.Repeat("9", 1500): false, "0." + strings.Repeat("1", 100000): false, "1" + strings.Repeat("0", 400000) + "Ki": false,
}

func podTarget() codec.Target {
	return codec.Target{Kind: corev1.SchemeGroupVersion.WithKind("Pod"), New: func() runtime.Object { return &corev1.Pod{} }}
}

// TestOutsizedQuantitiesAreNotRead reads each as a limit, where it is refused, and as a label, where it is a text like others.
func TestOutsizedQuantitiesAreNotRead(t *testing.T) {
	for number, ok := range numbers {
		name := number[:min(len(number), 20)]
		limit := `{"spec":{"containers":[{"name":"c","resources":{"limits":{"cpu":"` + number + `"}}}]}}`
		before := time.Now()
		_, _, err := codec.Decode([]byte(limit), codec.JSON, podTarget(), metav1.FieldValidationStrict)
		// The text "" is no quantity.
		if refused := err != nil && strings.Contains(err.Error(), "spec.containers[0].resources.limits.cpu: the quantity") && strings.Contains(err.Error(), "out of reach"); refused == ok {
			t.Errorf("%s as a limit: %v", name, err)
		}
		label := `{"metadata":{"annotations":{"a":"` + number + `"}},"spec":{"containers":[{"name":"` + number + `","resources":{"limits":{"cpu":"1"}}}]}}`
		if _, _, err := codec.Decode([]byte(label), codec.JSON, podTarget(), metav1.FieldValidationStrict); err != nil {
			t.Errorf("%s as a text: %v", name, err)
		}
		if d := time.Since(before); d > 10*time.Second {
			t.Errorf("%s took %v", name, d)
		}
	}
	bare := `{"spec":{"overhead":{"cpu":1e99999}}}`
	if _, _, err := codec.Decode([]byte(bare), codec.JSON, podTarget(), metav1.FieldValidationStrict); err == nil || !strings.Contains(err.Error(), "out of reach") {
		t.Errorf("a number that is no text: %v", err)
	}
}

// TestOutsizedQuantitiesInProtobuf gives a limit of the same length another text.
func TestOutsizedQuantitiesInProtobuf(t *testing.T) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Annotations: map[string]string{"1e99999": "1e99999"}}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "1e-99999", Resources: corev1.ResourceRequirements{
		Limits: corev1.ResourceList{"cpu": resource.MustParse("7654321"), "1e99999": resource.MustParse("1")}}}}}}
	data, err := stored.EncodeProtobuf(p, corev1.SchemeGroupVersion.WithKind("Pod"))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := codec.Decode(data.Whole, codec.Protobuf, podTarget(), metav1.FieldValidationStrict); err != nil {
		t.Errorf("texts alone: %v", err)
	}
	changed := strings.Replace(string(data.Whole), "7654321", "1e99999", 1)
	if _, _, err := codec.Decode([]byte(changed), codec.Protobuf, podTarget(), metav1.FieldValidationStrict); err == nil || !strings.Contains(err.Error(), "out of reach") {
		t.Errorf("the limit: %v", err)
	}
}

func BenchmarkCheckQuantities(b *testing.B) {
	doc := []byte(`{"metadata":{"name":"web-7d4b8c9f6d-2xkqp","labels":{"app":"web"}},"spec":{"containers":[{"name":"c","image":"registry.example.com/web@sha256:a` + strings.Repeat("8e12345a", 8) + `","resources":{"limits":{"cpu":"1","memory":"1Gi"}}}]},"status":{"phase":"Running"}}`)
	b.ReportAllocs()
	for b.Loop() {
		if err := codec.CheckQuantities(doc, &corev1.Pod{}); err != nil {
			b.Fatal(err)
		}
	}
}

// FuzzQuantity reads a limit: one that is taken can be counted with at once.
func FuzzQuantity(f *testing.F) {
	for number := range numbers {
		f.Add(number)
	}
	f.Add("1E-00000000000000000000000009999")
	f.Add("+.e+1")
	other := resource.MustParse("100m")
	f.Fuzz(func(t *testing.T, number string) {
		text, err := json.Marshal(number)
		if err != nil {
			t.Fatal(err)
		}
		obj, _, err := codec.Decode([]byte(`{"spec":{"overhead":{"cpu":`+string(text)+`}}}`), codec.JSON, podTarget(), metav1.FieldValidationStrict)
		if err != nil {
			return
		}
		before := time.Now()
		q := obj.(*corev1.Pod).Spec.Overhead["cpu"]
		q.Cmp(other)
		q.Add(other)
		_ = q.String()
		_, _ = q.Value(), q.MilliValue()
		if d := time.Since(before); d > 5*time.Second {
			t.Errorf("%q is counted with in %v", number, d)
		}
	})
}
