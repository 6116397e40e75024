package kinds_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand"
	"runtime/debug"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	"k8s.io/apimachinery/pkg/api/equality"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/randfill"
	"sigs.k8s.io/yaml"

	"github.com/yare-project/yare/kind"
)

var seed = flag.Int64("seed", 0, "the seed of fuzzed objects; 0 draws one")

// rounds is how many objects of each version are made.
const rounds = 4

// fuzz makes objects whose fields hold anything that their types can carry over the wire.
func fuzz(t *testing.T) *randfill.Filler {
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
	own := func(serializer.CodecFactory) []any {
		return []any{
			func(r *runtime.RawExtension, c randfill.Continue) {
				r.Raw = []byte(`{"b":"` + string(rune('a'+c.Intn(26))) + `"}`)
			},
			func(j *apiextensionsv1.JSON, c randfill.Continue) {
				j.Raw = []byte(`{"a":` + string(rune('0'+c.Intn(10))) + `}`)
			},
			// Recursive and full of either-or types; three levels are enough to see each field.
			func(p *apiextensionsv1.JSONSchemaProps, c randfill.Continue) {
				p.Type, p.Description = c.String(8), c.String(8)
				p.Properties = map[string]apiextensionsv1.JSONSchemaProps{"x": {Type: "string", Format: c.String(4)}}
				p.Items = &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &apiextensionsv1.JSONSchemaProps{Type: "integer"}}
			},
		}
	}
	codecs := serializer.NewCodecFactory(runtime.NewScheme())
	return fuzzer.FuzzerFor(fuzzer.MergeFuzzerFuncs(metafuzzer.Funcs, own), rand.NewSource(s), codecs).NumElements(1, 2)
}

// filled is a fuzzed object with the type that an encoder writes.
func filled(f *randfill.Filler, v *kind.Version) runtime.Object {
	obj := v.New()
	f.Fill(obj)
	obj.GetObjectKind().SetGroupVersionKind(v.GroupVersionKind)
	return obj
}

func TestRoundTrip(t *testing.T) {
	f := fuzz(t)
	everyKind(t, func(t *testing.T, g *kind.Group, k *kind.Kind) {
		for i := range k.Versions {
			v := &k.Versions[i]
			for range rounds {
				obj := filled(f, v)
				roundTrip(t, v, obj, "JSON", func() (runtime.Object, error) { return throughJSON(v, obj, false) })
				roundTrip(t, v, obj, "YAML", func() (runtime.Object, error) { return throughJSON(v, obj, true) })
				roundTrip(t, v, obj, "CBOR", func() (runtime.Object, error) { return throughCBOR(v, obj) })
				if _, has := obj.(interface{ Size() int }); has { // Yare's own kinds have none
					roundTrip(t, v, obj, "protobuf", func() (runtime.Object, error) { return throughProtobuf(v, obj) })
				}
			}
		}
	})
}

func roundTrip(t *testing.T, v *kind.Version, obj runtime.Object, through string, do func() (runtime.Object, error)) {
	t.Helper()
	back, err := do()
	if err != nil {
		t.Fatalf("%s through %s: %v", v.GroupVersionKind, through, err)
	}
	if !equality.Semantic.DeepEqual(obj, back) {
		t.Fatalf("%s through %s (-sent +came back):\n%s", v.GroupVersionKind, through, cmp.Diff(text(obj), text(back)))
	}
}

func text(obj runtime.Object) string {
	b, err := yaml.Marshal(obj)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

func throughJSON(v *kind.Version, obj runtime.Object, asYAML bool) (runtime.Object, error) {
	encoded, err := json.Marshal(obj)
	if err != nil {
		return nil, err
	}
	if asYAML {
		if encoded, err = yaml.JSONToYAML(encoded); err != nil {
			return nil, err
		}
		if encoded, err = yaml.YAMLToJSON(encoded); err != nil {
			return nil, err
		}
	}
	back := v.New()
	return back, json.Unmarshal(encoded, back)
}

func throughCBOR(v *kind.Version, obj runtime.Object) (runtime.Object, error) {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypeWithName(v.GroupVersionKind, v.New())
	s := cbor.NewSerializer(scheme, scheme, cbor.Strict(true))
	var encoded bytes.Buffer
	if err := s.Encode(obj, &encoded); err != nil {
		return nil, err
	}
	back, _, err := s.Decode(encoded.Bytes(), nil, v.New())
	return back, err
}

func throughProtobuf(v *kind.Version, obj runtime.Object) (runtime.Object, error) {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypeWithName(v.GroupVersionKind, v.New())
	s := protobuf.NewSerializer(scheme, scheme)
	var encoded bytes.Buffer
	if err := s.Encode(obj, &encoded); err != nil {
		return nil, err
	}
	back, _, err := s.Decode(encoded.Bytes(), nil, v.New())
	if err == nil {
		back.GetObjectKind().SetGroupVersionKind(v.GroupVersionKind)
	}
	return back, err
}

func TestDefaultsAreIdempotent(t *testing.T) {
	f := fuzz(t)
	everyKind(t, func(t *testing.T, g *kind.Group, k *kind.Kind) {
		if k.Default == nil {
			return
		}
		objects := []kind.Object{k.New()}
		for range rounds {
			objects = append(objects, filled(f, &k.Versions[0]).(kind.Object))
		}
		for _, obj := range objects {
			k.Default(obj)
			once := obj.DeepCopyObject()
			k.Default(obj)
			if !equality.Semantic.DeepEqual(once, runtime.Object(obj)) {
				t.Errorf("defaulting twice changes the object (-once +twice):\n%s", cmp.Diff(text(once), text(obj)))
			}
		}
	})
}

// TestNothingPanics hands every function of a kind what a client could send: nothing, and anything.
func TestNothingPanics(t *testing.T) {
	f := fuzz(t)
	now := time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)
	everyKind(t, func(t *testing.T, g *kind.Group, k *kind.Kind) {
		objects := []kind.Object{k.New()}
		for range rounds {
			objects = append(objects, filled(f, &k.Versions[0]).(kind.Object))
		}
		for _, obj := range objects {
			for _, old := range append(objects, nil) {
				if stack := exercise(k, obj.DeepCopyObject().(kind.Object), old, now); stack != "" {
					t.Fatal(stack)
				}
			}
		}
	})
}

// exercise returns where a function panicked, if one did.
func exercise(k *kind.Kind, obj, old kind.Object, now time.Time) (stack string) {
	defer func() {
		if p := recover(); p != nil {
			stack = fmt.Sprintf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	show := func() {
		for _, v := range k.Versions {
			for _, c := range v.Columns {
				c.Value(obj, now)
			}
			for _, f := range v.Fields {
				f(obj)
			}
		}
	}
	show() // stored by another version of this program, a field may be missing that is defaulted now
	if k.Default != nil {
		k.Default(obj)
	}
	if k.Prepare != nil {
		k.Prepare(obj, old)
	}
	var errs field.ErrorList
	if k.Validate != nil {
		errs = k.Validate(obj, old)
	}
	if k.Warn != nil && len(errs) == 0 {
		k.Warn(obj, old)
	}
	for _, v := range k.Versions {
		if v.Validate != nil {
			v.Validate(obj, old)
		}
	}
	if old != nil && k.PrepareStatus != nil {
		k.PrepareStatus(obj, old)
	}
	if old != nil && k.ValidateStatus != nil {
		k.ValidateStatus(obj, old)
	}
	if k.ValidateName != nil {
		k.ValidateName(obj.GetName(), false)
		k.ValidateName(obj.GetGenerateName(), true)
	}
	if k.Claims != nil {
		k.Claims(obj)
	}
	if k.Grace != nil {
		k.Grace(obj, nil)
		k.Grace(obj, &metav1.DeleteOptions{})
	}
	if k.Scale != nil {
		k.Scale.SetReplicas(obj, k.Scale.Replicas(obj))
		k.Scale.StatusReplicas(obj)
		k.Scale.Selector(obj)
	}
	show()
	return ""
}

// TestConversionsRoundTrip converts to each other version and back. What a version cannot carry may be lost once, not twice.
func TestConversionsRoundTrip(t *testing.T) {
	f := fuzz(t)
	everyKind(t, func(t *testing.T, g *kind.Group, k *kind.Kind) {
		for i := range k.Versions {
			v := &k.Versions[i]
			for n := 0; v.To != nil && n < 8*rounds; n++ {
				hub := filled(f, &k.Versions[0]).(kind.Object)
				sent := hub.DeepCopyObject()
				first := there(t, v, hub)
				if !equality.Semantic.DeepEqual(sent, runtime.Object(hub)) {
					t.Fatalf("converting to %s changes its argument", v.GroupVersion())
				}
				second := there(t, v, first)
				if !equality.Semantic.DeepEqual(first, second) {
					t.Fatalf("through %s twice (-once +twice):\n%s", v.GroupVersion(), cmp.Diff(text(first), text(second)))
				}
			}
		}
	})
}

func there(t *testing.T, v *kind.Version, hub kind.Object) kind.Object {
	t.Helper()
	other, err := v.To(hub)
	if err != nil {
		t.Fatalf("to %s: %v", v.GroupVersion(), err)
	}
	back, err := v.From(other)
	if err != nil {
		t.Fatalf("from %s: %v", v.GroupVersion(), err)
	}
	return back
}
