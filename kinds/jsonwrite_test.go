package kinds_test

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/randfill"

	"github.com/yare-project/yare/internal/jsonwrite"
	"github.com/yare-project/yare/kind"
)

// wild makes objects without regard for what is valid: text with all that has to be escaped, empty lists beside none, quantities of any size.
func wild(t *testing.T) *randfill.Filler {
	t.Helper()
	s := *seed
	if s == 0 {
		s = time.Now().UnixNano()
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("replay with: go test ./kinds -run '%s' -seed %d", t.Name(), s)
		}
	})
	texts := []string{"", "a", "plain text of some length", "<b>&\"\\", "é日本😀", "\x00\n\t\x7f", "\xff\xfe", "\u2028", `{"a":1}`}
	formats := []resource.Format{resource.DecimalSI, resource.BinarySI, resource.DecimalExponent, ""}
	return randfill.NewWithSeed(s).NilChance(0.3).NumElements(0, 2).MaxDepth(12).Funcs(
		func(s *string, c randfill.Continue) { *s = texts[c.Intn(len(texts))] },
		func(tm *time.Time, c randfill.Continue) {
			if c.Bool() {
				*tm = time.Unix(c.Int63n(1<<40)-1<<39, c.Int63n(1e9))
			}
		},
		func(q *resource.Quantity, c randfill.Continue) {
			n, format := c.Int63()>>c.Intn(63), formats[c.Intn(len(formats))]
			if c.Bool() {
				n = -n
			}
			*q = *resource.NewScaledQuantity(n, resource.Scale(c.Intn(24)-12))
			if q.Format = format; c.Bool() {
				*q = *resource.NewQuantity(n, format)
			}
			if c.Intn(3) == 0 {
				q.Add(*resource.NewScaledQuantity(n, -5)) // may become a decimal
			}
			if c.Intn(3) == 0 {
				_ = q.String() // leaves it there
			}
		},
		func(v *intstr.IntOrString, c randfill.Continue) {
			if *v = intstr.FromInt32(c.Int31()); c.Bool() {
				*v = intstr.FromString(texts[c.Intn(len(texts))])
			}
		},
		func(f *metav1.FieldsV1, c randfill.Continue) { f.Raw = document(c) },
		func(r *runtime.RawExtension, c randfill.Continue) {
			if r.Raw = document(c); len(r.Raw) == 0 {
				r.Raw, r.Object = nil, &metav1.Status{Message: "<held>"}
			}
		},
		func(j *apiextensionsv1.JSON, c randfill.Continue) { j.Raw = document(c) },
	)
}

func document(c randfill.Continue) []byte {
	docs := []string{"", `{}`, `{"f:a":{}}`, `{ "a" : [ 1, 2.5e3, null ] }`, "{\"a\":\"<\u2028\xff\"}", `null`, "\n{\"k:{\\\"name\\\":\\\"a\\\"}\":{\".\":{}}}\n"}
	return []byte(docs[c.Intn(len(docs))])
}

// TestJSONIsThatOfEncodingJSON holds the gate's encoder to the standard one: for objects as clients may send them, and for any others.
func TestJSONIsThatOfEncodingJSON(t *testing.T) {
	sane, any := fuzz(t), wild(t)
	everyKind(t, func(t *testing.T, _ *kind.Group, k *kind.Kind) {
		for i := range k.Versions {
			v := &k.Versions[i]
			if left := jsonwrite.Left(reflect.TypeOf(v.New())); len(left) > 0 {
				t.Errorf("%v are left to encoding/json", left)
			}
			for round := range 2 * rounds {
				f := sane
				if round%2 == 1 {
					f = any
				}
				sameJSON(t, filled(f, v))
			}
			sameJSON(t, v.New())
			if v.NewList != nil {
				list := v.NewList()
				any.Fill(list)
				sameJSON(t, list)
			}
		}
	})
}

func sameJSON(t *testing.T, obj runtime.Object) {
	t.Helper()
	want, err := json.Marshal(obj)
	if err != nil {
		t.Fatal(err) // then encoding/json has had the only word
	}
	got, err := jsonwrite.Append(nil, obj)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), string(got)); d != "" {
		t.Fatalf("%T (-encoding/json +here):\n%s", obj, d)
	}
	// The same without addresses, where methods of pointers don't count.
	value := reflect.ValueOf(obj).Elem().Interface()
	want, _ = json.Marshal(value)
	if got, _ = jsonwrite.Append(nil, value); string(want) != string(got) {
		t.Fatalf("%T as a value (-encoding/json +here):\n%s", value, cmp.Diff(string(want), string(got)))
	}
}

// TestWritingJSONLeavesObjectsAlone: what is stored is shared.
func TestWritingJSONLeavesObjectsAlone(t *testing.T) {
	f := wild(t)
	r := rand.New(rand.NewPCG(uint64(*seed), 1))
	everyKind(t, func(t *testing.T, _ *kind.Group, k *kind.Kind) {
		v := &k.Versions[r.IntN(len(k.Versions))]
		obj := filled(f, v)
		before := obj.DeepCopyObject()
		if _, err := jsonwrite.Append(nil, obj); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(before, obj) {
			t.Errorf("changed: %s", cmp.Diff(text(before), text(obj)))
		}
	})
}
