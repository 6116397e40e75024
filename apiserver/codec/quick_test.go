package codec

import (
	"encoding/json"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/randfill"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/yare-project/yare/internal/jsonread/odd"
)

// What quick accepts, the API's own decoder accepts without a word, and both read the same.
func agree(t *testing.T, data []byte, a, b any) {
	t.Helper()
	if !quick(data, a) {
		return
	}
	faults, err := kjson.UnmarshalStrict(data, b)
	if err != nil || len(faults) > 0 {
		t.Fatalf("quick read what is not plain: %v %v\n%s", faults, err, data)
	}
	if d := cmp.Diff(b, a); d != "" {
		t.Fatalf("(-theirs +quick):\n%s\nin %s", d, data)
	}
}

func TestQuickAgreesWithTheAPIsDecoder(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	fill := randfill.NewWithSeed(int64(seed)).NilChance(0.6).NumElements(1, 2).MaxDepth(14).Funcs(
		func(q *resource.Quantity, c randfill.Continue) {
			*q = *resource.NewQuantity(c.Int63n(1000), resource.BinarySI)
		},
		func(v *intstr.IntOrString, c randfill.Continue) { *v = intstr.FromInt32(c.Int31n(100)) },
		func(tm *metav1.Time, c randfill.Continue) { *tm = metav1.Unix(c.Int63n(1<<31), 0) },
		func(f *metav1.FieldsV1, c randfill.Continue) { f.Raw = []byte(`{"f:a":{}}`) },
		func(s *string, c randfill.Continue) { *s = []string{"", "a", "<b>", "é", "a\"b"}[c.Intn(5)] })
	read := 0
	for range 150 {
		pod, deploy := &corev1.Pod{}, &appsv1.Deployment{}
		fill.Fill(pod)
		fill.Fill(deploy)
		for _, doc := range [][]byte{must(json.Marshal(pod)), must(json.Marshal(deploy))} {
			var tree map[string]any
			if err := json.Unmarshal(doc, &tree); err != nil {
				t.Fatal(err)
			}
			for _, data := range [][]byte{doc, must(json.Marshal(odd.Exchange(r, tree)))} {
				agree(t, data, &corev1.Pod{}, &corev1.Pod{})
				agree(t, data, &appsv1.Deployment{}, &appsv1.Deployment{})
			}
		}
		if quick(must(json.Marshal(pod)), &corev1.Pod{}) {
			read++
		}
	}
	if read < 110 {
		t.Errorf("only %d of 150 plain documents were read quickly", read)
	}
}

func TestQuickLeavesOdditiesToTheAPIsDecoder(t *testing.T) {
	for name, doc := range map[string]string{
		"unknown field": `{"metadata":{"name":"a"},"unheardOf":1}`,
		"given twice":   `{"metadata":{"name":"a"},"metadata":{"name":"b"}}`,
		"other case":    `{"Metadata":{"name":"a"}}`,
		"wrong type":    `{"metadata":{"name":1}}`,
		"not UTF-8":     "{\"metadata\":{\"name\":\"\xff\"}}",
		"trailing":      `{} {}`,
		"truncated":     `{"metadata":`,
	} {
		pod := &corev1.Pod{}
		if quick([]byte(doc), pod) {
			t.Errorf("%s: read", name)
		}
		if d := cmp.Diff(&corev1.Pod{}, pod); d != "" {
			t.Errorf("%s: left something behind:\n%s", name, d)
		}
	}
}

func FuzzQuick(f *testing.F) {
	f.Add([]byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","labels":{"a":"b"}},"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"10m"}}}]}}`))
	for _, s := range odd.Values {
		f.Add([]byte(`{"spec":{"containers":[{"ports":[{"containerPort":` + s + `}],"env":` + s + `}],"activeDeadlineSeconds":` + s + `},"status":{"startTime":` + s + `}}`))
	}
	f.Fuzz(func(t *testing.T, data []byte) { agree(t, data, &corev1.Pod{}, &corev1.Pod{}) })
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
