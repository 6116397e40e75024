package kinds_test

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	kjson "sigs.k8s.io/json"

	"github.com/yare-project/yare/internal/jsonread"
	"github.com/yare-project/yare/internal/jsonread/odd"
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

// exchanged is a document with one value replaced by an odd one, or one name by another.
func exchanged(t *testing.T, r *rand.Rand, doc []byte) []byte {
	t.Helper()
	var tree any
	if err := json.Unmarshal(doc, &tree); err != nil {
		t.Fatal(err)
	}
	out, err := json.Marshal(odd.Exchange(r, tree))
	if err != nil {
		t.Fatal(err)
	}
	return out
}
