package jsonread

import (
	"encoding"
	"encoding/json"
	"reflect"
	"strconv"
	"unsafe"

	"github.com/yare-project/yare/internal/jsonfield"
)

// compiler makes the decoders of one type and of all that it is made of. A type that contains itself finds the place where its decoder will be.
type compiler map[reflect.Type]*made

type made struct {
	value
	left bool // to others
}

// Left lists the types that values of type t may consist of and that are never read here. What interfaces hold is not looked at.
func Left(t reflect.Type) []reflect.Type {
	c := make(compiler)
	c.of(t)
	var out []reflect.Type
	for t, m := range c {
		if m.left {
			out = append(out, t)
		}
	}
	return out
}

func (c compiler) of(t reflect.Type) value {
	m, known := c[t]
	if !known {
		m = &made{}
		c[t] = m
		m.value = c.make(t, m)
	}
	if m.read != nil {
		return m.value
	}
	return value{read: func(r *reader, i int, p unsafe.Pointer) int { return m.from(r, i, p) }, sub: m.sub, null: true}
}

var (
	unmarshalerType = reflect.TypeFor[json.Unmarshaler]()
	textType        = reflect.TypeFor[encoding.TextUnmarshaler]()
	numberType      = reflect.TypeFor[json.Number]()
)

// isUnmarshaler tells whether values of type t have their own word on what they are read from.
func isUnmarshaler(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return t.Implements(unmarshalerType) || t.Implements(textType) || p.Implements(unmarshalerType) || p.Implements(textType)
}

func (c compiler) make(t reflect.Type, m *made) value {
	if v, ok := leaf(t); ok {
		return v
	}
	if t.Kind() == reflect.Pointer {
		return c.pointer(t)
	}
	if reflect.PointerTo(t).Implements(unmarshalerType) && !t.Implements(unmarshalerType) {
		return unmarshaled(t)
	}
	if t.Kind() != reflect.Interface && isUnmarshaler(t) || t == numberType {
		return m.refuse()
	}
	switch t.Kind() {
	case reflect.Struct:
		return c.record(t, m)
	case reflect.Map:
		return c.mapping(t, m)
	case reflect.Slice:
		return c.slice(t)
	case reflect.String:
		return value{read: text}
	case reflect.Interface: // what it holds is another's to know
		return value{read: refuse}
	}
	if read := basic(t); read != nil {
		return value{read: read}
	}
	return m.refuse()
}

// refuse makes m a type that is not read here.
func (m *made) refuse() value {
	m.left = true
	return value{read: refuse}
}

func refuse(*reader, int, unsafe.Pointer) int { return -1 }

func (c compiler) record(t reflect.Type, m *made) value {
	members, ok := jsonfield.Of(t, true)
	for _, member := range members {
		ok = ok && member.Hops == nil
	}
	if !ok || len(members) > maxFields {
		return m.refuse()
	}
	m.sub = &program{} // before its fields, which may be of the same type
	c.program(m.sub, members)
	return value{read: m.sub.read, sub: m.sub}
}

// pointer allocates what is pointed to. A null never gets here, so that methods of the pointer are those that its element is read by.
func (c compiler) pointer(t reflect.Type) value {
	of, elem := c.of(t.Elem()), t.Elem()
	return value{read: func(r *reader, i int, p unsafe.Pointer) int {
		own := reflect.New(elem).UnsafePointer()
		if i = of.read(r, i, own); i >= 0 {
			*(*unsafe.Pointer)(p) = own
		}
		return i
	}}
}

// unmarshaled hands a value to the method UnmarshalJSON of the pointer to its type.
func unmarshaled(t reflect.Type) value {
	return value{null: true, read: func(r *reader, i int, p unsafe.Pointer) int {
		end := r.skip(i)
		if end < 0 || reflect.NewAt(t, p).Interface().(json.Unmarshaler).UnmarshalJSON(r.data[i:end]) != nil {
			return -1
		}
		return end
	}}
}

func text(r *reader, i int, p unsafe.Pointer) int {
	s, end := r.string(i)
	if end >= 0 {
		*(*string)(p) = s
	}
	return end
}

// basic is the decoder of a number or a boolean; nil for any other type.
func basic(t reflect.Type) decoder {
	switch t.Kind() {
	case reflect.Bool:
		return boolean
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
	case reflect.Float32:
		return float[float32]
	case reflect.Float64:
		return float[float64]
	}
	return nil
}

func boolean(r *reader, i int, p unsafe.Pointer) int {
	if r.at(i) == 't' {
		*(*bool)(p) = true
		return r.word(i, "true")
	}
	return r.word(i, "false")
}

func signed[T int | int8 | int16 | int32 | int64](r *reader, i int, p unsafe.Pointer) int {
	end := r.number(i)
	if end < 0 {
		return -1
	}
	n, err := strconv.ParseInt(bytesAsString(r.data[i:end]), 10, int(unsafe.Sizeof(T(0)))*8)
	if err != nil {
		return -1
	}
	*(*T)(p) = T(n)
	return end
}

func unsigned[T uint | uint8 | uint16 | uint32 | uint64](r *reader, i int, p unsafe.Pointer) int {
	end := r.number(i)
	if end < 0 {
		return -1
	}
	n, err := strconv.ParseUint(bytesAsString(r.data[i:end]), 10, int(unsafe.Sizeof(T(0)))*8)
	if err != nil {
		return -1
	}
	*(*T)(p) = T(n)
	return end
}

func float[T float32 | float64](r *reader, i int, p unsafe.Pointer) int {
	end := r.number(i)
	if end < 0 {
		return -1
	}
	f, err := strconv.ParseFloat(bytesAsString(r.data[i:end]), int(unsafe.Sizeof(T(0)))*8)
	if err != nil {
		return -1
	}
	*(*T)(p) = T(f)
	return end
}

// bytesAsString lends b to a parser, which keeps it only in an error that is not looked at.
func bytesAsString(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
