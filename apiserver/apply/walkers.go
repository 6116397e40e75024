package apply

import (
	"reflect"
	"slices"
	"strings"

	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

// fewElements is up to how many elements of a list are compared with each other, before they are looked up.
const fewElements = 8

// deref follows pointers to a value or to nil, which stays.
func deref(v reflect.Value) reflect.Value {
	for v.IsValid() && v.Kind() == reflect.Pointer && !v.IsNil() {
		v = v.Elem()
	}
	return v
}

// missing tells whether a value that was dereferenced is absent or null.
func missing(v reflect.Value) bool {
	if !v.IsValid() {
		return true
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		return v.IsNil()
	}
	return false
}

// arrived notes that a whole value has come or gone, besides its parts.
func (d *differences) arrived(a, b reflect.Value) {
	if !a.IsValid() {
		d.Added.Insert(d.path)
	} else if !b.IsValid() {
		d.Removed.Insert(d.path)
	}
}

// at walks below one element of the path.
func (d *differences) at(e fieldpath.PathElement, w walker, a, b reflect.Value) {
	d.path = append(d.path, e)
	w.walk(d, a, b)
	d.path = d.path[:len(d.path)-1]
}

// leafWalker takes a value as a whole.
type leafWalker struct{}

func (leafWalker) walk(d *differences, a, b reflect.Value) {
	if !a.IsValid() || !b.IsValid() {
		d.arrived(a, b)
	} else if !equal(deref(a), deref(b)) {
		d.Modified.Insert(d.path)
	}
}

// equal compares what two values are as JSON.
func equal(a, b reflect.Value) bool {
	if a.Kind() == b.Kind() {
		switch a.Kind() {
		case reflect.String:
			return a.String() == b.String()
		case reflect.Int, reflect.Int32, reflect.Int64:
			return a.Int() == b.Int()
		case reflect.Bool:
			return a.Bool() == b.Bool()
		}
	}
	if missing(a) && missing(b) {
		return true
	}
	if reflect.DeepEqual(a.Interface(), b.Interface()) {
		return true
	}
	x, errX := value.NewValueReflect(pointerTo(a))
	y, errY := value.NewValueReflect(pointerTo(b))
	return errX == nil && errY == nil && value.Equals(x, y)
}

func pointerTo(v reflect.Value) any {
	if v.Kind() == reflect.Pointer || v.CanAddr() {
		if v.Kind() != reflect.Pointer {
			v = v.Addr()
		}
		return v.Interface()
	}
	p := reflect.New(v.Type())
	p.Elem().Set(v)
	return p.Interface()
}

// recordWalker is a struct by its fields.
type recordWalker []fieldWalker

// fieldWalker is one field of a struct, or of one that is inlined in it.
type fieldWalker struct {
	name  string
	index []int
	omit  func(reflect.Value) bool
	of    walker
}

// get is the field in a struct, not valid if there is no struct, or if its JSON would not have the field.
func (f *fieldWalker) get(in reflect.Value) reflect.Value {
	if missing(in) {
		return reflect.Value{}
	}
	v := in.FieldByIndex(f.index)
	if f.omit(v) {
		return reflect.Value{}
	}
	return v
}

func (f *fieldWalker) walk(d *differences, a, b reflect.Value) {
	if x, y := f.get(a), f.get(b); x.IsValid() || y.IsValid() {
		d.at(fieldpath.PathElement{FieldName: &f.name}, f.of, x, y)
	}
}

func (r recordWalker) empty(v reflect.Value) bool {
	return missing(v) || !slices.ContainsFunc(r, func(f fieldWalker) bool { return f.get(v).IsValid() })
}

func (r recordWalker) walk(d *differences, a, b reflect.Value) {
	x, y := deref(a), deref(b)
	if samePlace(a, b) {
		return
	}
	if r.empty(x) && r.empty(y) {
		d.vacant(a, b, x, y)
		return
	}
	for i := range r {
		r[i].walk(d, x, y)
	}
	d.arrived(a, b)
}

// samePlace tells whether two pointers, slices or maps are of one thing, which nobody changes in place.
func samePlace(a, b reflect.Value) bool {
	if !a.IsValid() || !b.IsValid() {
		return false
	}
	switch a.Kind() {
	case reflect.Pointer, reflect.Map:
		return !a.IsNil() && a.UnsafePointer() == b.UnsafePointer()
	case reflect.Slice:
		return !a.IsNil() && !b.IsNil() && a.Len() == b.Len() && a.UnsafePointer() == b.UnsafePointer()
	}
	return false
}

// vacant compares two values that have no parts: null is not the same as empty. x and y are a and b dereferenced.
func (d *differences) vacant(a, b, x, y reflect.Value) {
	if !a.IsValid() || !b.IsValid() {
		d.arrived(a, b)
	} else if missing(x) != missing(y) {
		d.Modified.Insert(d.path)
	}
}

// tableWalker is a map by its keys.
type tableWalker struct{ of walker }

func (t tableWalker) walk(d *differences, a, b reflect.Value) {
	x, y := deref(a), deref(b)
	if samePlace(x, y) {
		return
	}
	var keys []reflect.Value
	for _, m := range []reflect.Value{x, y} {
		if !missing(m) {
			keys = append(keys, m.MapKeys()...)
		}
	}
	if len(keys) == 0 {
		d.vacant(a, b, x, y)
		return
	}
	slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
	keys = slices.CompactFunc(keys, func(a, b reflect.Value) bool { return a.String() == b.String() })
	for _, k := range keys {
		name := k.String()
		var was, is reflect.Value
		if !missing(x) {
			was = x.MapIndex(k)
		}
		if !missing(y) {
			is = y.MapIndex(k)
		}
		d.at(fieldpath.PathElement{FieldName: &name}, t.of, was, is)
	}
	d.arrived(a, b)
}
