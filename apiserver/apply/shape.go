package apply

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// The shape of an object is what decides which fields a client owns that creates it: which fields are there, which keys maps have, and what
// identifies the elements of lists. Values beyond that do not matter, so that most objects of a kind have one of a few shapes. A shape may
// tell more apart than it needs (any scalar of a list's element could be one that identifies it), never less.

// shaper writes the part of a shape that comes from values of one Go type. identity says that the value may be what identifies an element.
type shaper interface {
	shape(dst []byte, v reflect.Value, identity bool) []byte
}

// newShaper makes the shaper of a Go type, or nil if shapes of it are not known: types that contain themselves, and those whose JSON is
// not that of their fields. within are the types around it.
func newShaper(t reflect.Type, within ...reflect.Type) shaper {
	if slices.Contains(within, t) {
		return nil
	}
	within = append(slices.Clip(within), t)
	switch {
	case slices.Contains(wholes, t):
		return whole{}
	case t == reflect.TypeFor[metav1.FieldsV1]():
		return verbatim{}
	case t.Kind() != reflect.Pointer && marshals(t):
		return nil
	}
	switch t.Kind() {
	case reflect.Bool, reflect.String, reflect.Int, reflect.Int32, reflect.Int64, reflect.Float64:
		return scalar{}
	case reflect.Pointer:
		if to := newShaper(t.Elem(), within...); to != nil {
			return pointer{to}
		}
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return octets{}
		}
		if of := newShaper(t.Elem(), within...); of != nil {
			return list{of}
		}
	case reflect.Map:
		if of := newShaper(t.Elem(), within...); of != nil && t.Key().Kind() == reflect.String {
			return table{of}
		}
	case reflect.Struct:
		return newRecord(t, within)
	}
	return nil
}

// wholes are types whose JSON is one scalar, whatever the value.
var wholes = []reflect.Type{reflect.TypeFor[metav1.Time](), reflect.TypeFor[metav1.MicroTime](), reflect.TypeFor[metav1.Duration](),
	reflect.TypeFor[resource.Quantity](), reflect.TypeFor[intstr.IntOrString](), reflect.TypeFor[time.Duration]()}

func marshals(t reflect.Type) bool {
	marshaler := reflect.TypeFor[json.Marshaler]()
	return t.Implements(marshaler) || reflect.PointerTo(t).Implements(marshaler)
}

type whole struct{}

func (whole) shape(dst []byte, v reflect.Value, _ bool) []byte { return flag(dst, v.IsZero()) }

func flag(dst []byte, zero bool) []byte {
	if zero {
		return append(dst, 0)
	}
	return append(dst, 1)
}

// verbatim takes all of a FieldsV1, which is JSON of any form.
type verbatim struct{}

func (verbatim) shape(dst []byte, v reflect.Value, _ bool) []byte {
	fields := v.Interface().(metav1.FieldsV1)
	return lengthText(dst, fields.GetRawString())
}

type scalar struct{}

func (scalar) shape(dst []byte, v reflect.Value, identity bool) []byte {
	if !identity {
		return flag(dst, v.IsZero())
	}
	switch v.Kind() {
	case reflect.String:
		return lengthText(dst, v.String())
	case reflect.Bool:
		return flag(dst, !v.Bool())
	case reflect.Float64:
		return binary.AppendUvarint(dst, math.Float64bits(v.Float()))
	}
	return binary.AppendVarint(dst, v.Int())
}

func lengthText(dst []byte, s string) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(s)))
	return append(dst, s...)
}

type octets struct{}

func (octets) shape(dst []byte, v reflect.Value, _ bool) []byte {
	return flag(flag(dst, v.IsNil()), v.Len() == 0)
}

type pointer struct{ to shaper }

func (p pointer) shape(dst []byte, v reflect.Value, identity bool) []byte {
	if v.IsNil() {
		return append(dst, 0)
	}
	return p.to.shape(append(dst, 1), v.Elem(), identity)
}

type list struct{ of shaper }

func (l list) shape(dst []byte, v reflect.Value, _ bool) []byte {
	dst = binary.AppendUvarint(flag(dst, v.IsNil()), uint64(v.Len()))
	for i := range v.Len() {
		dst = l.of.shape(dst, v.Index(i), true)
	}
	return dst
}

type table struct{ of shaper }

func (t table) shape(dst []byte, v reflect.Value, _ bool) []byte {
	dst = binary.AppendUvarint(flag(dst, v.IsNil()), uint64(v.Len()))
	keys := v.MapKeys()
	slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
	for _, k := range keys {
		dst = t.of.shape(lengthText(dst, k.String()), v.MapIndex(k), false)
	}
	return dst
}

// record is a struct. Its own scalars may identify it as an element, those of the structs in it cannot, unless they are inlined.
type record []part

type part struct {
	index  int
	inline bool
	of     shaper
}

func newRecord(t reflect.Type, within []reflect.Type) shaper {
	var out record
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "-" {
			continue
		}
		of := newShaper(f.Type, within...)
		if of == nil || !f.IsExported() {
			return nil
		}
		out = append(out, part{i, f.Anonymous || strings.Contains(options, "inline"), of})
	}
	return out
}

func (r record) shape(dst []byte, v reflect.Value, identity bool) []byte {
	for _, p := range r {
		_, structure := p.of.(record)
		dst = p.of.shape(dst, v.Field(p.index), identity && (p.inline || !structure))
	}
	return dst
}
