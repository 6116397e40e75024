package apply

import (
	"sigs.k8s.io/structured-merge-diff/v6/typed"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

// A set of fields is a sorted list: fields that come in any order, as from a Go map, move half of it each. For a map with tens of thousands of keys
// that takes the better part of a minute; sorted first, a fraction of a second.

// wideMap is how many keys a map has at least that is worth sorting.
const wideMap = 512

// wide tells whether there is such a map in decoded JSON.
func wide(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		if len(v) >= wideMap {
			return true
		}
		for _, of := range v {
			if wide(of) {
				return true
			}
		}
	case []any:
		for _, of := range v {
			if wide(of) {
				return true
			}
		}
	}
	return false
}

// inOrder is v with its maps visited in the order of their keys.
func inOrder(v *typed.TypedValue) *typed.TypedValue {
	return typed.AsTypedUnvalidated(sorted(v.AsValue()), v.Schema(), v.TypeRef())
}

func sorted(v value.Value) value.Value {
	if v == nil {
		return nil
	}
	return sortedValue{v}
}

type sortedValue struct{ value.Value }

func (v sortedValue) AsMap() value.Map {
	if m := v.Value.AsMap(); m != nil {
		return sortedMap{m}
	}
	return nil
}

func (v sortedValue) AsMapUsing(value.Allocator) value.Map { return v.AsMap() }

func (v sortedValue) AsList() value.List {
	if l := v.Value.AsList(); l != nil {
		return sortedList{l}
	}
	return nil
}

func (v sortedValue) AsListUsing(value.Allocator) value.List { return v.AsList() }

type sortedList struct{ value.List }

func (l sortedList) At(i int) value.Value { return sorted(l.List.At(i)) }

func (l sortedList) AtUsing(_ value.Allocator, i int) value.Value { return l.At(i) }

func (l sortedList) Range() value.ListRange { return sortedRange{l.List.Range()} }

func (l sortedList) RangeUsing(value.Allocator) value.ListRange { return l.Range() }

type sortedRange struct{ value.ListRange }

func (r sortedRange) Item() (int, value.Value) {
	i, v := r.ListRange.Item()
	return i, sorted(v)
}

type sortedMap struct{ value.Map }

func (m sortedMap) Get(key string) (value.Value, bool) {
	v, ok := m.Map.Get(key)
	return sorted(v), ok
}

func (m sortedMap) GetUsing(_ value.Allocator, key string) (value.Value, bool) { return m.Get(key) }

func (m sortedMap) Iterate(f func(string, value.Value) bool) bool {
	return m.Map.Zip(nil, value.LexicalKeyOrder, func(key string, v, _ value.Value) bool { return f(key, sorted(v)) })
}

func (m sortedMap) IterateUsing(_ value.Allocator, f func(string, value.Value) bool) bool {
	return m.Iterate(f)
}

func (m sortedMap) Zip(other value.Map, _ value.MapTraverseOrder, f func(key string, a, b value.Value) bool) bool {
	if o, ok := other.(sortedMap); ok {
		other = o.Map
	}
	return m.Map.Zip(other, value.LexicalKeyOrder, func(key string, a, b value.Value) bool { return f(key, sorted(a), sorted(b)) })
}

func (m sortedMap) ZipUsing(_ value.Allocator, other value.Map, order value.MapTraverseOrder, f func(key string, a, b value.Value) bool) bool {
	return m.Zip(other, order, f)
}
