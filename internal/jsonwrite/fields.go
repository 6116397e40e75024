package jsonwrite

import (
	"reflect"
	"unsafe"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yare-project/yare/internal/jsonfield"
)

// program fills g with what writes the members of a struct of type t.
func (c compiler) program(g *program, t reflect.Type, members []jsonfield.Member) {
	for _, m := range members {
		f, test := c.field(m, t.Align())
		g.fields, g.tests = append(g.fields, f), append(g.tests, test)
	}
}

// field makes the field of a struct with an alignment.
func (c compiler) field(m jsonfield.Member, align int) (field, test) {
	f := field{name: `,"` + m.Name + `":`, offset: m.Offset}
	r := rare{hops: m.Hops}
	if m.OmitEmpty {
		r.empty = emptiness(m.Type)
	}
	if m.OmitZero {
		r.zero = zeroness(m.Type)
	}
	quick, ok := r.empty.test(f.offset)
	if align != word || r.hops != nil || r.zero != nil {
		quick, ok = test{stays: 1}, false
	}
	if !ok {
		f.rare = &r
	}
	f.as, f.sub, f.encoder = c.how(m)
	if f.as == asText {
		f.name += `"`
	}
	return f, quick
}

// how is the way in which a member is appended.
func (c compiler) how(m jsonfield.Member) (as, *program, encoder) {
	e := c.encoder(m.Type, m.Addr)
	switch {
	case c[subject{m.Type, m.Addr}].program != nil:
		return asStruct, c[subject{m.Type, m.Addr}].program, e
	case m.Type.Kind() == reflect.Pointer && c[subject{m.Type.Elem(), true}].program != nil:
		return asPointer, c[subject{m.Type.Elem(), true}].program, e
	case m.Type.Kind() == reflect.String && m.Type != numberType && !isMarshaler(m.Type):
		return asText, nil, e
	}
	return asOther, nil, e
}

func emptiness(t reflect.Type) empty {
	switch t.Kind() {
	case reflect.String, reflect.Slice:
		return noLength
	case reflect.Map:
		return noEntries
	case reflect.Array:
		if t.Len() == 0 {
			return always
		}
	case reflect.Pointer, reflect.Interface:
		return nothing
	case reflect.Bool, reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint, reflect.Uint8, reflect.Uint16,
		reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		return map[uintptr]empty{1: zero8, 2: zero16, 4: zero32, 8: zero64}[t.Size()]
	case reflect.Float32:
		return zeroFloat32
	case reflect.Float64:
		return zeroFloat64
	}
	return never
}

type zeroer interface{ IsZero() bool }

// zeroness tells a value that its type's IsZero, or else Go, calls zero.
func zeroness(t reflect.Type) func(p unsafe.Pointer) bool {
	is := reflect.TypeFor[zeroer]()
	switch {
	case t == timeType:
		return func(p unsafe.Pointer) bool { return (*metav1.Time)(p).IsZero() }
	case t.Kind() == reflect.Pointer && t.Implements(is):
		return func(p unsafe.Pointer) bool {
			v := reflect.NewAt(t, p).Elem()
			return v.IsNil() || v.Interface().(zeroer).IsZero()
		}
	case t.Implements(is), reflect.PointerTo(t).Implements(is):
		return func(p unsafe.Pointer) bool { return reflect.NewAt(t, p).Interface().(zeroer).IsZero() }
	}
	return func(p unsafe.Pointer) bool { return reflect.NewAt(t, p).Elem().IsZero() }
}
