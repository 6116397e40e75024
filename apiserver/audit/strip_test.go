package audit

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestManagedFieldsAreCutOut(t *testing.T) {
	const mf = `"managedFields":[{"manager":"a","fieldsV1":{"f:x":{}}}]`
	for name, c := range map[string]struct{ in, want string }{
		"none":            {`{"metadata":{"name":"a"}}`, `{"metadata":{"name":"a"}}`},
		"only":            {`{"metadata":{` + mf + `}}`, `{"metadata":{}}`},
		"first":           {`{"metadata":{` + mf + `,"name":"a"}}`, `{"metadata":{"name":"a"}}`},
		"middle":          {`{"metadata":{"name":"a",` + mf + `,"uid":"b"}}`, `{"metadata":{"name":"a","uid":"b"}}`},
		"last":            {`{"metadata":{"name":"a",` + mf + `}}`, `{"metadata":{"name":"a"}}`},
		"twice":           {`{"metadata":{` + mf + `,` + mf + `,"name":"a"}}`, `{"metadata":{"name":"a"}}`},
		"list":            {`{"metadata":{},"items":[{"metadata":{"name":"a",` + mf + `}},{"metadata":{` + mf + `}}]}`, `{"metadata":{},"items":[{"metadata":{"name":"a"}},{"metadata":{}}]}`},
		"table":           {`{"rows":[{"cells":[1],"object":{"metadata":{` + mf + `,"name":"a"}}}]}`, `{"rows":[{"cells":[1],"object":{"metadata":{"name":"a"}}}]}`},
		"elsewhere":       {`{"spec":{"metadata":{` + mf + `}},` + mf + `}`, `{"spec":{"metadata":{` + mf + `}},` + mf + `}`},
		"item's own":      {`{"items":[{"object":{"metadata":{` + mf + `}}}]}`, `{"items":[{"object":{"metadata":{` + mf + `}}}]}`},
		"in a string":     {`{"metadata":{"name":"\"managedFields\":[1]"}}`, `{"metadata":{"name":"\"managedFields\":[1]"}}`},
		"spaced":          {"{ \"metadata\" : {\n  \"name\" : \"a\" ,\n  \"managedFields\" : [ ]\n} }\n", `{"metadata":{"name":"a"}}`},
		"spaced first":    {"{ \"metadata\" : { \"managedFields\" : [ ] ,\n\"name\" : \"a\" } }", `{"metadata":{"name":"a"}}`},
		"not well formed": {`{"metadata":{"managedFields":[`, `{"metadata":{"managedFields":[`},
		"not JSON":        {`managedFields`, `managedFields`},
	} {
		got := string(withoutManagedFields([]byte(c.in)))
		if json.Valid([]byte(c.want)) {
			var a, b any
			if err := json.Unmarshal([]byte(got), &a); err != nil {
				t.Errorf("%s: %v: %s", name, err, got)
				continue
			}
			if err := json.Unmarshal([]byte(c.want), &b); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(b, a); d != "" {
				t.Errorf("%s: %s", name, d)
			}
		} else if got != c.want {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// TestCuttingRandomDocuments compares with the slow way: decode, delete, compare.
func TestCuttingRandomDocuments(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	r := rand.New(rand.NewPCG(seed, 0))
	keys := []string{"metadata", "items", "rows", "object", "managedFields", "name", "x"}
	var value func(depth int) any
	value = func(depth int) any {
		switch n := r.IntN(6); {
		case depth > 5 || n == 0:
			return r.IntN(100)
		case n == 1:
			return strings.Repeat(`"managedFields":[ \`, r.IntN(2))
		case n == 2:
			list := make([]any, r.IntN(3))
			for i := range list {
				list[i] = value(depth + 1)
			}
			return list
		default:
			m := map[string]any{}
			for range r.IntN(5) {
				m[keys[r.IntN(len(keys))]] = value(depth + 1)
			}
			return m
		}
	}
	for i := range 5000 {
		doc, err := json.Marshal(value(0))
		if err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 {
			doc, _ = json.MarshalIndent(json.RawMessage(doc), "", " ")
		}
		var want, got any
		if err := json.Unmarshal(doc, &want); err != nil {
			t.Fatal(err)
		}
		prune(want)
		cut := withoutManagedFields(doc)
		if err := json.Unmarshal(cut, &got); err != nil {
			t.Fatalf("seed %d: %v\nfrom %s\nmade %s", seed, err, doc, cut)
		}
		if d := cmp.Diff(fmt.Sprint(want), fmt.Sprint(got)); d != "" {
			t.Fatalf("seed %d: %s\nfrom %s\nmade %s", seed, d, doc, cut)
		}
	}
}

func prune(v any) {
	o, _ := v.(map[string]any)
	if m, ok := o["metadata"].(map[string]any); ok {
		delete(m, "managedFields")
	}
	if list, ok := o["items"].([]any); ok {
		for _, item := range list {
			prune(item)
		}
	}
	if list, ok := o["rows"].([]any); ok {
		for _, r := range list {
			if m, ok := r.(map[string]any); ok {
				prune(m["object"])
			}
		}
	}
}

func FuzzWithoutManagedFields(f *testing.F) {
	f.Add([]byte(`{"metadata":{"managedFields":[],"name":"a"},"items":[{"metadata":{"managedFields":{}}}]}`))
	f.Add([]byte(`{"metadata":{"managedFields":`))
	f.Fuzz(func(t *testing.T, doc []byte) {
		if out := withoutManagedFields(doc); json.Valid(doc) && !json.Valid(out) {
			t.Errorf("%s became %s", doc, out)
		}
	})
}
