package apply

import (
	"encoding/json"
	"reflect"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yare-project/yare/apiserver/stored"
	"github.com/yare-project/yare/kind"
)

// prune returns shallow copies of two objects of one Go type in which the fields that are equal in both are empty, so that a comparison looks
// at the others only and finds the same differences. Fields are those of the object and, where such a field is a plain struct (metadata, spec,
// status), the fields of that. Neither copy has managedFields. false: the type is not of that form.
func prune(a, b kind.Object) (before, after kind.Object, ok bool) {
	if stored.MetaOf(a) == nil || reflect.TypeOf(a) != reflect.TypeOf(b) {
		return nil, nil, false
	}
	x, y := shallow(a), shallow(b)
	meta, other := stored.MetaOf(x.Interface().(kind.Object)), stored.MetaOf(y.Interface().(kind.Object))
	meta.ManagedFields, other.ManagedFields = nil, nil
	for _, index := range prunable(x.Type().Elem()) {
		p, q := x.Elem().FieldByIndex(index), y.Elem().FieldByIndex(index)
		if reflect.DeepEqual(p.Addr().Interface(), q.Addr().Interface()) {
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

// prunables remembers the fields of each Go type that prune may empty, by their index.
var prunables sync.Map // reflect.Type to [][]int

func prunable(t reflect.Type) [][]int {
	if known, ok := prunables.Load(t); ok {
		return known.([][]int)
	}
	var out [][]int
	for i := range t.NumField() {
		f := t.Field(i)
		switch {
		case f.Type == reflect.TypeFor[metav1.TypeMeta]():
		case descends(f):
			for j := range f.Type.NumField() {
				out = append(out, []int{i, j})
			}
		default:
			out = append(out, []int{i})
		}
	}
	prunables.Store(t, out)
	return out
}

// descends tells whether the parts of a field may be emptied by themselves: it must be there all the same when they all are.
func descends(f reflect.StructField) bool {
	marshaler := reflect.TypeFor[json.Marshaler]()
	return f.Type.Kind() == reflect.Struct && !strings.Contains(f.Tag.Get("json"), "omitzero") &&
		!f.Type.Implements(marshaler) && !reflect.PointerTo(f.Type).Implements(marshaler)
}
