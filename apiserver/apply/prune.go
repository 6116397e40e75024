package apply

import (
	"encoding/json"
	"reflect"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yare-project/yare/apiserver/stored"
	"github.com/yare-project/yare/kind"
)

// prune returns shallow copies of two objects of one Go type in which the fields that are equal in both are empty, so that a comparison looks
// at the others only and finds the same differences. Fields are those of the object and, where such a field is a plain struct (metadata, spec,
// status), the fields of that: prunable names them. What lies below unowned, a field by its JSON name, is emptied without a look. Neither copy
// has managedFields. false: the objects are not of such a type.
func prune(a, b kind.Object, fields []prunableField, unowned string) (before, after kind.Object, ok bool) {
	if fields == nil || stored.MetaOf(a) == nil || reflect.TypeOf(a) != reflect.TypeOf(b) {
		return nil, nil, false
	}
	x, y := shallow(a), shallow(b)
	meta, other := stored.MetaOf(x.Interface().(kind.Object)), stored.MetaOf(y.Interface().(kind.Object))
	meta.ManagedFields, other.ManagedFields = nil, nil
	for _, f := range fields {
		p, q := x.Elem().FieldByIndex(f.index), y.Elem().FieldByIndex(f.index)
		if unowned != "" && f.below == unowned || reflect.DeepEqual(p.Addr().Interface(), q.Addr().Interface()) {
			p.SetZero()
			q.SetZero()
		}
	}
	return x.Interface().(kind.Object), y.Interface().(kind.Object), true
}

func shallow(o kind.Object) reflect.Value {
	from := reflect.ValueOf(o).Elem()
	to := reflect.New(from.Type())
	to.Elem().Set(from)
	return to
}

// prunableField is a field that prune may empty: where it is, and the JSON name of the object's field that it is or lies in.
type prunableField struct {
	index []int
	below string
}

// prunable lists the fields of a Go type that prune may empty.
func prunable(t reflect.Type) []prunableField {
	if t == nil {
		return nil
	}
	var out []prunableField
	for i := range t.NumField() {
		f := t.Field(i)
		name := jsonName(f)
		switch {
		case !f.IsExported() || f.Type == reflect.TypeFor[metav1.TypeMeta]():
		case descends(f):
			for j := range f.Type.NumField() {
				out = append(out, prunableField{[]int{i, j}, name})
			}
		default:
			out = append(out, prunableField{[]int{i}, name})
		}
	}
	return out
}

func jsonName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}

// descends tells whether the parts of a field may be emptied by themselves: it must be there all the same when they all are.
func descends(f reflect.StructField) bool {
	marshaler := reflect.TypeFor[json.Marshaler]()
	if f.Type.Kind() != reflect.Struct || strings.Contains(f.Tag.Get("json"), "omitzero") ||
		f.Type.Implements(marshaler) || reflect.PointerTo(f.Type).Implements(marshaler) {
		return false
	}
	for j := range f.Type.NumField() {
		if !f.Type.Field(j).IsExported() {
			return false
		}
	}
	return true
}
