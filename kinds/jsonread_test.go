package kinds_test

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	kjson "sigs.k8s.io/json"

	"github.com/yare-project/yare/internal/jsonread"
	"github.com/yare-project/yare/kind"
)

// TestPlainJSONIsReadAsTheAPIsDecoderReadsIt holds the gate's quick decoder to the API's own: for each kind's documents, and for what becomes of them
// when something in them is exchanged.
func TestPlainJSONIsReadAsTheAPIsDecoderReadsIt(t *testing.T) {
	s := uint64(*seed)
	if s == 0 {
		s = uint64(time.Now().UnixNano())
	}
	r := rand.New(rand.NewPCG(s, 0))
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("replay with: go test ./kinds -run '%s' -seed %d", t.Name(), s)
		}
	})
	sane, any := fuzz(t), wild(t)
	everyKind(t, func(t *testing.T, _ *kind.Group, k *kind.Kind) {
		for i := range k.Versions {
			v := &k.Versions[i]
			if left := jsonread.Left(reflect.TypeOf(v.New()).Elem()); len(left) > 0 {
				t.Errorf("%v are never read quickly", left)
			}
			for range rounds {
				if doc := written(t, filled(sane, v)); !readAlike(t, v, doc) {
					t.Errorf("not read: %s", doc)
				}
				doc := written(t, filled(any, v))
				readAlike(t, v, doc)
				for range 4 {
					readAlike(t, v, exchanged(t, r, doc))
				}
			}
		}
	})
}

func written(t *testing.T, obj runtime.Object) []byte {
	t.Helper()
	doc, err := json.Marshal(obj)
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

func readAlike(t *testing.T, v *kind.Version, doc []byte) (read bool) {
	t.Helper()
	got, want := v.New(), v.New()
	if !jsonread.Struct(doc, got) {
		return false
	}
	faults, err := kjson.UnmarshalStrict(doc, want)
	if err != nil || len(faults) > 0 {
		t.Fatalf("read what is not plain: %v %v\n%s", faults, err, doc)
	}
	if !reflect.DeepEqual(want, got) {
		t.Fatalf("%s\n(-theirs +here):\n%s", doc, cmp.Diff(text(want), text(got)))
	}
	return true
}

var oddities = []string{`null`, `""`, `"a"`, `1`, `1.0`, `-1`, `1e2`, `true`, `[]`, `{}`, `[null]`, `{"a":null}`, `"2026-01-01T00:00:00Z"`, `"2026-01-01T00:00:00.5+01:00"`, `"1Gi"`, `1.5`, `"aGk="`,
	`"aG k="`, `"\ud800"`, `"\u003c"`, "\"\xff\"", `9223372036854775808`, `[1,"a"]`, `{"b":1,"b":2}`, ` { } `, `"80"`, `{"a":{}}`, `{"a":"b","a":"c"}`}

// exchanged is a document with one value replaced by an odd one, or one name by another.
func exchanged(t *testing.T, r *rand.Rand, doc []byte) []byte {
	t.Helper()
	var tree any
	if err := json.Unmarshal(doc, &tree); err != nil {
		t.Fatal(err)
	}
	out, err := json.Marshal(exchange(r, tree))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func exchange(r *rand.Rand, v any) any {
	switch x := v.(type) {
	case map[string]any:
		if len(x) > 0 && r.IntN(8) > 0 {
			k := slices.Sorted(maps.Keys(x))[r.IntN(len(x))]
			switch r.IntN(12) {
			case 0:
				x[strings.ToUpper(k)] = x[k]
				delete(x, k)
			case 1:
				x["unheardOf"] = x[k]
			default:
				x[k] = exchange(r, x[k])
			}
			return x
		}
	case []any:
		if len(x) > 0 && r.IntN(8) > 0 {
			i := r.IntN(len(x))
			x[i] = exchange(r, x[i])
			return x
		}
	}
	return json.RawMessage(oddities[r.IntN(len(oddities))])
}
