package verbs

import (
	"reflect"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yare-project/yare/apiserver/codec"
	"github.com/yare-project/yare/apiserver/stored"
	"github.com/yare-project/yare/internal/jsonwrite"
	"github.com/yare-project/yare/kind"
)

// narrow applies a merge patch that touches some of an object's top-level fields (its status, say, or its metadata) to those alone: the others
// need not be written as JSON and read back to stay as they are. It reports false for what it leaves to the general way: patches in another
// version, of another type, or with directives or unknown fields at the top.
func (p *patcher) narrow(old *stored.Object) (obj kind.Object, ok bool, err error) {
	if p.rq.Version.Settle != nil || p.typ != types.MergePatchType && p.typ != types.StrategicMergePatchType || p.rq.Version.From != nil || p.rq.Version.To != nil {
		return nil, false, nil
	}
	var fields map[string]any
	faults, err := codec.UnmarshalJSON(p.body, &fields, p.strict)
	if err != nil {
		return nil, false, nil
	}
	from := reflect.ValueOf(old.Hub()).Elem()
	touched := touches(from.Type(), fields)
	if len(touched) == 0 {
		return nil, false, nil
	}
	part := p.rq.Version.New()
	take(part, old.Hub(), touched)
	doc, err := jsonwrite.Marshal(part)
	if err != nil {
		return nil, false, nil
	}
	patched, err := patchJSON(p.typ, doc, p.body, fields, part)
	if err != nil {
		return nil, true, err
	}
	result := part
	reflect.ValueOf(result).Elem().SetZero()
	more, err := codec.UnmarshalJSON(patched, result, p.strict)
	if err != nil {
		return nil, true, p.invalid(err)
	}
	warnings, err := codec.Judge(append(faults, more...), p.strict)
	if err != nil {
		return nil, true, p.invalid(err)
	}
	p.warn(warnings)
	if p.sub == "status" {
		return p.narrowStatus(old, result, touched)
	}
	next := stored.Copy(old.Hub())
	take(next, result, touched)
	next, err = ToHub(p.r.Kind, p.rq.Version, next)
	return next, true, err
}

// narrowStatus shares all but the touched fields with the old state: of a write through the status subresource no other counts, and nobody changes
// them. So defaults are set before, on what was patched alone.
func (p *patcher) narrowStatus(old *stored.Object, result runtime.Object, touched []int) (kind.Object, bool, error) {
	patched, err := ToHub(p.r.Kind, p.rq.Version, result)
	if err != nil {
		return nil, true, err
	}
	next := stored.Shallow(old.Hub())
	take(next, patched, touched)
	p.edit.separated = len(touched) == 1 && touched[0] == fieldsOf(reflect.TypeOf(next).Elem())["status"]
	return next, true, nil
}

// take sets the fields of to from those of from.
func take(to, from any, fields []int) {
	for _, i := range fields {
		reflect.ValueOf(to).Elem().Field(i).Set(reflect.ValueOf(from).Elem().Field(i))
	}
}

// touches are the fields of the struct t that a patch names at its top; none if it names anything else.
func touches(t reflect.Type, patch map[string]any) []int {
	if t.Kind() != reflect.Struct {
		return nil
	}
	byName := fieldsOf(t)
	out := make([]int, 0, len(patch))
	for name := range patch {
		i, ok := byName[name]
		if !ok {
			return nil
		}
		out = append(out, i)
	}
	return out
}

// fieldsOf are a type's own top-level fields by their names in JSON, type information left out.
func fieldsOf(t reflect.Type) map[string]int {
	if known, ok := topFields.Load(t); ok {
		return known.(map[string]int)
	}
	out := map[string]int{}
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.IsExported() && name != "" && name != "-" {
			out[name] = i
		}
	}
	topFields.Store(t, out)
	return out
}

// topFields caches fieldsOf: it is a pure function of the program's own types.
var topFields sync.Map
