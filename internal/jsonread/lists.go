package jsonread

import (
	"reflect"
	"unsafe"

	"k8s.io/apimachinery/pkg/api/resource"
)

// header is what a slice consists of.
type header struct {
	first    unsafe.Pointer
	len, cap int
}

// slice makes the decoder of a slice type. An empty array makes a slice that is not nil.
func (c compiler) slice(t reflect.Type) value {
	elem := t.Elem()
	if elem.Kind() == reflect.Uint8 {
		return octets(elem)
	}
	of, size := c.of(elem), elem.Size()
	return value{read: func(r *reader, i int, p unsafe.Pointer) int {
		if i = r.enter(i, '['); i < 0 {
			return -1
		}
		s := (*header)(p)
		if r.at(i) == ']' {
			reflect.NewAt(t, p).Elem().Set(reflect.MakeSlice(t, 0, 0))
			return r.leave(i + 1)
		}
		for last := false; !last; {
			if s.len == s.cap {
				reflect.NewAt(t, p).Elem().Grow(1)
			}
			if i, last = r.more(of.from(r, i, unsafe.Add(s.first, uintptr(s.len)*size)), ']'); i < 0 {
				return -1
			}
			s.len++
		}
		return r.leave(i)
	}}
}

// octets is for slices of bytes, which are text.
func octets(elem reflect.Type) value {
	if isUnmarshaler(elem) {
		return value{read: refuse}
	}
	return value{read: func(r *reader, i int, p unsafe.Pointer) int {
		b, end := r.binary(i)
		if end >= 0 {
			*(*[]byte)(p) = b
		}
		return end
	}}
}

// mapping makes the decoder of a map type whose keys are strings. An empty object makes a map that is not nil.
func (c compiler) mapping(t reflect.Type, m *made) value {
	if t.Key().Kind() != reflect.String || isUnmarshaler(t.Key()) {
		return m.refuse()
	}
	elem := t.Elem()
	of := c.of(elem)
	switch {
	case elem == reflect.TypeFor[resource.Quantity]():
		return value{read: mapOf[resource.Quantity](of)}
	case isUnmarshaler(elem), elem == numberType:
	case elem.Kind() == reflect.String:
		return value{read: mapOf[string](of)}
	case elem.Kind() == reflect.Slice && elem.Elem().Kind() == reflect.Uint8:
		return value{read: mapOf[[]byte](of)}
	}
	return value{read: reflectedMap(t, of)}
}

// members goes through an object's members, whose values one reads.
func (r *reader) members(i int, one func(key string, i int) int) int {
	if i = r.enter(i, '{'); i < 0 {
		return -1
	}
	if r.at(i) == '}' {
		return r.leave(i + 1)
	}
	for last := false; !last; {
		key, end := r.string(i)
		if i = r.colon(end); i < 0 {
			return -1
		}
		if i, last = r.more(one(key, i), '}'); i < 0 {
			return -1
		}
	}
	return r.leave(i)
}

// mapOf is the decoder of maps from strings, of any name, to values that are laid out as V.
func mapOf[V any](of value) decoder {
	return func(r *reader, i int, p unsafe.Pointer) int {
		m := map[string]V{}
		*(*map[string]V)(p) = m
		own := new(V)
		return r.members(i, func(key string, i int) int {
			if _, twice := m[key]; twice {
				return -1
			}
			var none V
			*own = none
			if i = of.from(r, i, unsafe.Pointer(own)); i >= 0 {
				m[key] = *own
			}
			return i
		})
	}
}

// reflectedMap is the decoder of any other map from strings.
func reflectedMap(t reflect.Type, of value) decoder {
	return func(r *reader, i int, p unsafe.Pointer) int {
		m := reflect.MakeMap(t)
		reflect.NewAt(t, p).Elem().Set(m)
		return r.members(i, func(name string, i int) int {
			key := reflect.ValueOf(name).Convert(t.Key())
			if m.MapIndex(key).IsValid() {
				return -1
			}
			own := reflect.New(t.Elem())
			if i = of.from(r, i, own.UnsafePointer()); i >= 0 {
				m.SetMapIndex(key, own.Elem())
			}
			return i
		})
	}
}
