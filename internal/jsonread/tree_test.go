package jsonread_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	kjson "sigs.k8s.io/json"

	"github.com/yare-project/yare/internal/jsonread"
)

// agreeTree holds Object to the API's own decoder and tells whether Object read the document.
func agreeTree(t testing.TB, data string) bool {
	t.Helper()
	got, ok := jsonread.Object([]byte(data))
	var want map[string]any
	faults, err := kjson.UnmarshalStrict([]byte(data), &want)
	if !ok {
		if got != nil {
			t.Errorf("left %v of %s", got, data)
		}
		return false
	}
	if err != nil || len(faults) > 0 {
		t.Errorf("read what is not plain: %v %v\n%s", faults, err, data)
	} else if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-theirs +here):\n%s", data, diff)
	}
	return true
}

func TestObjectsAreReadAsTrees(t *testing.T) {
	for _, d := range []string{`{}`, ` {"a" : [ ] , "b":{ } } `, `{"a":[1,-0,0,9223372036854775807,9223372036854775808,1.0,1e2,-1.5E-3,true,false,null,"x",[[]],{"a":{"a":1}}]}`,
		`{"":"\u00e9\n","é":"<&>"}`} {
		if !agreeTree(t, d) {
			t.Errorf("not read: %s", d)
		}
	}
	for _, d := range []string{``, `null`, `[]`, `1`, `{`, `{"a":1`, `{"a":1,}`, `{"a":1,"a":1}`, `{"a":{"b":1,"b":2}}`, `{"a":[1,]}`, `{"a":01}`, `{"a":1e999}`, `{"a":-}`, `{"a":nil}`, `{"a":1}}`,
		`{"a":"\ud800"}`, "{\"a\":\"\xff\"}", `{"a":` + strings.Repeat("[", 300) + strings.Repeat("]", 300) + `}`} {
		if agreeTree(t, d) {
			t.Errorf("read: %s", d)
		}
	}
}

func FuzzObject(f *testing.F) {
	for _, d := range append(append([]string{}, plain...), refused...) {
		f.Add(d)
	}
	f.Fuzz(func(t *testing.T, d string) { agreeTree(t, d) })
}
