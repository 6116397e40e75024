package verbs

import (
	"bytes"
	"encoding/json"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// FuzzPatchJSON patches documents in each way: what comes out is JSON, in proportion to what went in, and a merge patch that is applied twice changes nothing
// the second time (RFC 7396).
func FuzzPatchJSON(f *testing.F) {
	kinds := []types.PatchType{types.JSONPatchType, types.MergePatchType, types.StrategicMergePatchType}
	for _, s := range []string{
		`{"a":null,"b":{"c":1e400}}`, `{"metadata":{"labels":{"a":"b","$patch":"replace"}}}`, `{"spec":{"containers":[{"name":"c","$patch":"delete"}],"$setElementOrder/containers":[{"name":"d"}]}}`,
		`{"spec":{"$retainKeys":["a"],"volumes":[{"name":"v","$retainKeys":["name"]}]}}`, `{"metadata":{"$deleteFromPrimitiveList/finalizers":["x"]}}`, `{"$patch":"delete"}`, `null`, `[]`, `[null]`, `{"$setElementOrder/containers":null}`,
		`[{"op":"add","path":"/a/-","value":[]},{"op":"copy","from":"","path":"/b"}]`, `[{"op":"move","from":"/metadata","path":"/metadata/labels"}]`, `[{"op":"test","path":"/metadata/name","value":"p"}]`, `[{"op":"remove","path":"/spec/containers/-1"}]`, `[{"op":"replace","path":"/~1~0~2"}]`, `[{"op":"add"}]`,
	} {
		for kind := range kinds {
			f.Add(uint8(kind), []byte(`{"kind":"Pod","metadata":{"name":"p","labels":{"a":"x"},"finalizers":["x"]},"spec":{"containers":[{"name":"c"},{"name":"d"}]}}`), []byte(s))
		}
	}
	f.Fuzz(func(t *testing.T, kind uint8, doc, patch []byte) {
		typ := kinds[int(kind)%len(kinds)]
		var object map[string]any
		if json.Unmarshal(doc, &object) != nil || object == nil {
			return // the document is the server's own
		}
		before := bytes.Clone(doc)
		out, _, err := PatchJSON(typ, doc, patch, &corev1.Pod{}, metav1.FieldValidationStrict)
		if !bytes.Equal(before, doc) {
			t.Fatalf("the document was changed from %q to %q", before, doc)
		}
		if err != nil {
			return
		}
		var value any
		if err := json.Unmarshal(out, &value); err != nil {
			t.Fatalf("%s of %q by %q gives %q: %v", typ, doc, patch, out, err)
		}
		// Letters that JSON escapes for HTML are six bytes for one. A JSON patch may copy, up to a limit of its own.
		if typ != types.JSONPatchType && len(out) > 6*(len(doc)+len(patch))+64 {
			t.Fatalf("%s made %d bytes of %d and %d", typ, len(out), len(doc), len(patch))
		}
		if typ == types.MergePatchType {
			again, _, err := PatchJSON(typ, out, patch, &corev1.Pod{}, metav1.FieldValidationStrict)
			var second any
			if err != nil || json.Unmarshal(again, &second) != nil || !same(value, second) {
				t.Fatalf("%q by %q gives %q and then %q (%v)", doc, patch, out, again, err)
			}
		}
	})
}

func same(a, b any) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}
