package apply

import (
	"reflect"

	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

// listWalker is a list by what identifies its elements: some of their fields, or, without keys, themselves.
type listWalker struct {
	of   walker
	keys []listKey
}

// listKey is a field that identifies an element.
type listKey struct {
	fieldWalker
	// missing is what the field is taken for where it is left out; nil if it does not identify then.
	missing any
}

// occurrences are the elements of two lists that have one identity: usually one at most in each.
type occurrences struct {
	id       fieldpath.PathElement
	was, are []reflect.Value
}

func (l listWalker) walk(d *differences, a, b reflect.Value) {
	x, y := deref(a), deref(b)
	if samePlace(x, y) {
		return
	}
	if length(x) == 0 && length(y) == 0 {
		d.vacant(a, b, x, y)
		return
	}
	all, ok := l.pair(x, y)
	d.failed = d.failed || !ok
	for i := range all {
		l.compare(d, &all[i])
	}
	d.arrived(a, b)
}

func length(v reflect.Value) int {
	if missing(v) {
		return 0
	}
	return v.Len()
}

// pair finds the elements that belong together.
func (l listWalker) pair(x, y reflect.Value) ([]occurrences, bool) {
	out := make([]occurrences, 0, max(length(x), length(y)))
	var index fieldpath.PathElementMap
	many := length(x)+length(y) > 2*fewElements
	if many {
		index = fieldpath.MakePathElementMap(length(x))
	}
	find := func(id fieldpath.PathElement) *occurrences {
		if many {
			if at, found := index.Get(id); found {
				return &out[at.(int)]
			}
			index.Insert(id, len(out))
		} else {
			for i := range out {
				if out[i].id.Equals(id) {
					return &out[i]
				}
			}
		}
		out = append(out, occurrences{id: id})
		return &out[len(out)-1]
	}
	for i := range length(x) {
		id, ok := l.identify(x.Index(i))
		if !ok {
			return nil, false
		}
		o := find(id)
		o.was = append(o.was, x.Index(i))
	}
	for i := range length(y) {
		id, ok := l.identify(y.Index(i))
		if !ok {
			return nil, false
		}
		o := find(id)
		o.are = append(o.are, y.Index(i))
	}
	return out, true
}

func (l listWalker) identify(element reflect.Value) (fieldpath.PathElement, bool) {
	if len(l.keys) == 0 {
		v := value.NewValueInterface(scalarOf(element))
		return fieldpath.PathElement{Value: &v}, true
	}
	fields := make(value.FieldList, 0, len(l.keys))
	for i := range l.keys {
		k := &l.keys[i]
		if v := k.get(element); v.IsValid() {
			fields = append(fields, value.Field{Name: k.name, Value: value.NewValueInterface(scalarOf(v))})
		} else if k.missing != nil {
			fields = append(fields, value.Field{Name: k.name, Value: value.NewValueInterface(k.missing)})
		}
	}
	return fieldpath.PathElement{Key: &fields}, len(fields) > 0
}

func scalarOf(v reflect.Value) any {
	switch v.Kind() {
	case reflect.String:
		return v.String()
	case reflect.Bool:
		return v.Bool()
	}
	return v.Int()
}

// compare looks into elements that are alone with their identity. Several with one identity are one leaf.
func (l listWalker) compare(d *differences, o *occurrences) {
	first := func(of []reflect.Value) reflect.Value {
		if len(of) == 0 {
			return reflect.Value{}
		}
		return of[0]
	}
	switch before, after := len(o.was) > 1, len(o.are) > 1; {
	case !before && !after:
		d.at(o.id, l.of, first(o.was), first(o.are))
	case before && after:
		if !allEqual(o.was, o.are) {
			d.Modified.Insert(append(d.path, o.id))
		}
	case before:
		if len(o.are) > 0 {
			d.at(o.id, l.of, reflect.Value{}, o.are[0])
		}
		d.Removed.Insert(append(d.path, o.id))
	default:
		if len(o.was) > 0 {
			d.at(o.id, l.of, o.was[0], reflect.Value{})
		}
		d.Added.Insert(append(d.path, o.id))
	}
}

func allEqual(a, b []reflect.Value) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !equal(a[i], b[i]) {
			return false
		}
	}
	return true
}
