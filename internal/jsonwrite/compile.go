package jsonwrite

import (
	"encoding"
	"encoding/json"
	"reflect"
	"slices"
	"unsafe"

	"github.com/yare-project/yare/internal/jsonfield"
)

// subject is a type whose values have an address, or have none: then the methods of its pointer do not count.
type subject struct {
	t    reflect.Type
	addr bool
}

// compiler makes the encoders of one type and of all that it is made of. A type that contains itself finds the place where its encoder will be.
type compiler map[subject]*made

type made struct {
	encoder encoder
	program *program // of a struct that is written by its fields
	left    bool     // to encoding/json
}

// Left lists the types that values of type t may consist of and that are left to encoding/json. What interfaces hold is not looked at.
func Left(t reflect.Type) []reflect.Type {
	c := make(compiler)
	c.encoder(t, false)
	var out []reflect.Type
	for s, m := range c {
		if m.left && !slices.Contains(out, s.t) {
			out = append(out, s.t)
		}
	}
	return out
}

// leave makes t, which has its place, a type that is left to encoding/json.
func (c compiler) leave(t reflect.Type, addr bool) encoder {
	c[subject{t, addr}].left = true
	return standard(t, addr)
}

func (c compiler) encoder(t reflect.Type, addr bool) encoder {
	s := subject{t, addr}
	m, known := c[s]
	if !known {
		m = &made{}
		c[s] = m
		m.encoder = c.make(t, addr)
	}
	if m.encoder != nil {
		return m.encoder
	}
	return func(w *writer, dst []byte, p unsafe.Pointer) []byte { return m.encoder(w, dst, p) }
}

var (
	marshalerType = reflect.TypeFor[json.Marshaler]()
	textType      = reflect.TypeFor[encoding.TextMarshaler]()
	numberType    = reflect.TypeFor[json.Number]()
)

// isMarshaler tells whether a value of type t, or its address, has its own word on its JSON.
func isMarshaler(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return t.Implements(marshalerType) || t.Implements(textType) || p.Implements(marshalerType) || p.Implements(textType)
}

// isBinary tells whether t is a slice that is written as base64.
func isBinary(t reflect.Type) bool {
	if t.Kind() != reflect.Slice || t.Elem().Kind() != reflect.Uint8 {
		return false
	}
	p := reflect.PointerTo(t.Elem())
	return !p.Implements(marshalerType) && !p.Implements(textType)
}

func (c compiler) make(t reflect.Type, addr bool) encoder {
	if e := leaf(t, addr); e != nil {
		return e
	}
	if t.Kind() == reflect.Pointer { // what its methods are, its element's are
		return c.pointer(t)
	}
	if p := reflect.PointerTo(t); t.Implements(marshalerType) || addr && p.Implements(marshalerType) {
		return marshaled(t)
	} else if t.Implements(textType) || addr && p.Implements(textType) {
		return texted(t)
	}
	switch t.Kind() {
	case reflect.String:
		if t == numberType {
			return c.leave(t, addr)
		}
		return text
	case reflect.Interface:
		if t.NumMethod() == 0 {
			return contents
		}
		return contentsOf(t)
	case reflect.Struct:
		return c.record(t, addr)
	case reflect.Map:
		return c.mapping(t, addr)
	case reflect.Slice:
		if isBinary(t) {
			return func(_ *writer, dst []byte, p unsafe.Pointer) []byte { return appendBinary(dst, *(*[]byte)(p)) }
		}
		return c.slice(t)
	case reflect.Array:
		return listOf(c.encoder(t.Elem(), addr), t.Elem().Size()).array(t.Len())
	}
	return basic(t)
}

// record is the encoder of a struct.
func (c compiler) record(t reflect.Type, addr bool) encoder {
	members, ok := jsonfield.Of(t, addr)
	if !ok {
		return c.leave(t, addr)
	}
	g := &program{}
	c[subject{t, addr}].program = g // before its fields, which may be of the same type
	c.program(g, t, members)
	return g.append
}

func (c compiler) pointer(t reflect.Type) encoder {
	elem := c.encoder(t.Elem(), true)
	return func(w *writer, dst []byte, p unsafe.Pointer) []byte {
		p = *(*unsafe.Pointer)(p)
		if p == nil {
			return append(dst, "null"...)
		}
		if w.enter() {
			dst = elem(w, dst, p)
		}
		w.leave()
		return dst
	}
}

// list appends values of one type that stand one behind the other.
type list struct {
	elem encoder
	size uintptr
}

func listOf(elem encoder, size uintptr) list { return list{elem, size} }

func (l list) append(w *writer, dst []byte, first unsafe.Pointer, n int) []byte {
	dst = append(dst, '[')
	for i := range n {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = l.elem(w, dst, unsafe.Add(first, uintptr(i)*l.size))
	}
	return append(dst, ']')
}

func (l list) array(n int) encoder {
	return func(w *writer, dst []byte, p unsafe.Pointer) []byte { return l.append(w, dst, p, n) }
}

func (c compiler) slice(t reflect.Type) encoder {
	l := listOf(c.encoder(t.Elem(), true), t.Elem().Size())
	return func(w *writer, dst []byte, p unsafe.Pointer) []byte {
		s := *(*[]byte)(p) // of the right length, whatever the elements
		if s == nil {
			return append(dst, "null"...)
		}
		if w.enter() {
			dst = l.append(w, dst, unsafe.Pointer(unsafe.SliceData(s)), len(s))
		}
		w.leave()
		return dst
	}
}

// basic is the encoder of a number or a boolean; what can not be written is left to encoding/json.
func basic(t reflect.Type) encoder {
	switch t.Kind() {
	case reflect.Bool:
		return func(_ *writer, dst []byte, p unsafe.Pointer) []byte { return appendBool(dst, *(*bool)(p)) }
	case reflect.Int:
		return signed[int]
	case reflect.Int8:
		return signed[int8]
	case reflect.Int16:
		return signed[int16]
	case reflect.Int32:
		return signed[int32]
	case reflect.Int64:
		return signed[int64]
	case reflect.Uint:
		return unsigned[uint]
	case reflect.Uint8:
		return unsigned[uint8]
	case reflect.Uint16:
		return unsigned[uint16]
	case reflect.Uint32:
		return unsigned[uint32]
	case reflect.Uint64:
		return unsigned[uint64]
	case reflect.Uintptr:
		return unsigned[uintptr]
	case reflect.Float32:
		return func(w *writer, dst []byte, p unsafe.Pointer) []byte { return w.float(dst, float64(*(*float32)(p)), 32) }
	case reflect.Float64:
		return func(w *writer, dst []byte, p unsafe.Pointer) []byte { return w.float(dst, *(*float64)(p), 64) }
	}
	return func(w *writer, dst []byte, _ unsafe.Pointer) []byte { return w.fail(dst) }
}

func text(_ *writer, dst []byte, p unsafe.Pointer) []byte { return appendString(dst, *(*string)(p)) }

func signed[T int | int8 | int16 | int32 | int64](_ *writer, dst []byte, p unsafe.Pointer) []byte {
	return appendInt(dst, int64(*(*T)(p)))
}

func unsigned[T uint | uint8 | uint16 | uint32 | uint64 | uintptr](_ *writer, dst []byte, p unsafe.Pointer) []byte {
	return appendUint(dst, uint64(*(*T)(p)))
}
