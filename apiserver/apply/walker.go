package apply

import (
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	smdschema "sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"github.com/yare-project/yare/kind"
)

// A walker finds by how much two values of one Go type differ, field by field, as typed.Compare of structured-merge-diff does. It is made once
// for a type and its schema, so that a comparison looks nothing up, and visits maps in the order of their keys, in which sets of fields grow cheaply.
type walker interface {
	// walk adds what differs between a and b. One that is not valid is absent; a nil pointer, slice or map is null.
	walk(d *differences, a, b reflect.Value)
}

// differences are what was found so far, and where the walk is.
type differences struct {
	typed.Comparison
	path fieldpath.Path
	// failed: an element of a list has nothing that identifies it.
	failed bool
}

// rootWalker compares objects of one kind.
type rootWalker struct{ fields recordWalker }

// newRootWalker makes the walker of a Go type, or nil if it has parts that can't be walked: types that contain themselves, and fields whose merging
// depends on their values.
func newRootWalker(t reflect.Type, f form) *rootWalker {
	b := &walkerBuilder{schema: f.schema}
	w, ok := b.build(t, f.ref).(recordWalker)
	if !ok {
		return nil
	}
	return &rootWalker{w}
}

// compare tells what differs between two objects, but for their managedFields, and the field of the name unowned.
func (w *rootWalker) compare(live, obj kind.Object, unowned string) (*typed.Comparison, bool) {
	d := &differences{Comparison: typed.Comparison{Added: fieldpath.NewSet(), Modified: fieldpath.NewSet(), Removed: fieldpath.NewSet()},
		path: make(fieldpath.Path, 0, 16)}
	a, b := reflect.ValueOf(live).Elem(), reflect.ValueOf(obj).Elem()
	for i := range w.fields {
		if f := &w.fields[i]; f.name != unowned || unowned == "" {
			f.walk(d, a, b)
		}
	}
	return &d.Comparison, !d.failed
}

// walkerBuilder makes walkers from Go types and their schema.
type walkerBuilder struct {
	schema *smdschema.Schema
	within []reflect.Type
}

// build returns nil for what can't be walked.
func (b *walkerBuilder) build(t reflect.Type, ref smdschema.TypeRef) walker {
	atom, ok := b.schema.Resolve(ref)
	if !ok {
		return nil
	}
	list, table := atom.List, atom.Map
	granularList := list != nil && list.ElementRelationship != smdschema.Atomic
	granularMap := table != nil && table.ElementRelationship != smdschema.Atomic
	if !granularList && !granularMap {
		if atom.Scalar == nil && list == nil && table == nil {
			return nil
		}
		return leafWalker{}
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if slices.Contains(b.within, t) || marshals(t) || atom.Scalar != nil || list != nil && table != nil {
		return nil
	}
	b.within = append(b.within, t)
	defer func() { b.within = b.within[:len(b.within)-1] }()
	switch {
	case t.Kind() == reflect.Struct && granularMap:
		if w := b.record(t, table, nil); w != nil {
			return w
		}
	case t.Kind() == reflect.Map && t.Key().Kind() == reflect.String && granularMap && len(table.Fields) == 0:
		if of := b.build(t.Elem(), table.ElementType); of != nil {
			return tableWalker{of}
		}
	case t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Uint8 && granularList:
		return b.list(t.Elem(), list)
	}
	return nil
}

func (b *walkerBuilder) record(t reflect.Type, table *smdschema.Map, at []int) recordWalker {
	out := recordWalker{}
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		index := append(slices.Clone(at), i)
		switch {
		case name == "-" || // the object's own managedFields belong to nobody; a template's are like any other field
			name == "managedFields" && t == reflect.TypeFor[metav1.ObjectMeta]() && len(b.within) == 2:
			continue
		case !f.IsExported():
			return nil
		case name == "" && (f.Anonymous || strings.Contains(options, "inline")):
			if f.Type.Kind() != reflect.Struct {
				return nil
			}
			inlined := b.record(f.Type, table, index)
			if inlined == nil {
				return nil
			}
			out = append(out, inlined...)
			continue
		case name == "":
			name = f.Name
		}
		ref := table.ElementType
		if known, ok := table.FindField(name); ok {
			ref = known.Type
		}
		of := b.build(f.Type, ref)
		if of == nil {
			return nil
		}
		out = append(out, fieldWalker{name: name, index: index, omit: omission(f.Type, options), of: of})
	}
	return out
}

func (b *walkerBuilder) list(element reflect.Type, list *smdschema.List) walker {
	if list.ElementRelationship != smdschema.Associative {
		return nil
	}
	of := b.build(element, list.ElementType)
	if of == nil {
		return nil
	}
	if len(list.Keys) == 0 {
		if !isScalar(element) {
			return nil
		}
		return listWalker{of: of}
	}
	atom, ok := b.schema.Resolve(list.ElementType)
	if !ok || atom.Map == nil || element.Kind() != reflect.Struct {
		return nil
	}
	out := listWalker{of: of}
	for _, name := range slices.Sorted(slices.Values(list.Keys)) {
		key, ok := findField(element, name)
		if !ok || !isScalar(element.FieldByIndex(key.index).Type) {
			return nil
		}
		known, _ := atom.Map.FindField(name)
		out.keys = append(out.keys, listKey{fieldWalker: key, missing: known.Default})
	}
	return out
}

// findField finds a field of a struct, or of one that is inlined in it, by its name in JSON.
func findField(t reflect.Type, name string) (fieldWalker, bool) {
	for i := range t.NumField() {
		f := t.Field(i)
		own, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if own == name {
			return fieldWalker{name: name, index: []int{i}, omit: omission(f.Type, options)}, true
		}
		if own == "" && f.Type.Kind() == reflect.Struct {
			if in, ok := findField(f.Type, name); ok {
				in.index = append([]int{i}, in.index...)
				return in, true
			}
		}
	}
	return fieldWalker{}, false
}

// isScalar tells whether a Go type is a plain string, number or bool.
func isScalar(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.String, reflect.Bool, reflect.Int, reflect.Int32, reflect.Int64:
		return !marshals(t)
	}
	return false
}

// omission is when a field is left out of its struct's JSON.
func omission(t reflect.Type, options string) func(reflect.Value) bool {
	empty := slices.Contains(strings.Split(options, ","), "omitempty")
	zero := slices.Contains(strings.Split(options, ","), "omitzero")
	asks := t.Implements(reflect.TypeFor[interface{ IsZero() bool }]())
	isZero := func(v reflect.Value) bool {
		if asks && (v.Kind() != reflect.Pointer || !v.IsNil()) {
			return v.Interface().(interface{ IsZero() bool }).IsZero()
		}
		return v.IsZero()
	}
	return func(v reflect.Value) bool { return empty && isEmpty(v) || zero && isZero(v) }
}

func isEmpty(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Slice, reflect.Map, reflect.String, reflect.Array:
		return v.Len() == 0
	case reflect.Struct:
		return false
	}
	return v.IsZero()
}
