package jsonwrite

import (
	"bytes"
	"encoding"
	"encoding/json"
	"reflect"
	"unsafe"
)

// marshaled is the encoder of a type with a method MarshalJSON, be it the pointer's.
func marshaled(t reflect.Type) encoder {
	if t.Kind() == reflect.Interface {
		return standard(t, true)
	}
	return func(w *writer, dst []byte, p unsafe.Pointer) []byte {
		b, err := reflect.NewAt(t, p).Interface().(json.Marshaler).MarshalJSON()
		if err != nil {
			return w.fail(dst)
		}
		return w.raw(dst, b)
	}
}

// texted is the encoder of a type with a method MarshalText, be it the pointer's.
func texted(t reflect.Type) encoder {
	if t.Kind() == reflect.Interface {
		return standard(t, true)
	}
	return func(w *writer, dst []byte, p unsafe.Pointer) []byte {
		b, err := reflect.NewAt(t, p).Interface().(encoding.TextMarshaler).MarshalText()
		if err != nil {
			return w.fail(dst)
		}
		dst = append(dst, '"')
		dst = appendText(dst, b)
		return append(dst, '"')
	}
}

// standard leaves the values of a type to encoding/json.
func standard(t reflect.Type, addr bool) encoder {
	return func(w *writer, dst []byte, p unsafe.Pointer) []byte {
		v := reflect.NewAt(t, p)
		if !addr {
			v = v.Elem()
		}
		b, err := json.Marshal(v.Interface())
		if err != nil {
			return w.fail(dst)
		}
		return append(dst, b...)
	}
}

// raw appends a document that somebody else wrote, without its space and with what HTML has a meaning for escaped.
func (w *writer) raw(dst, doc []byte) []byte {
	if tidy(doc) {
		return append(dst, doc...)
	}
	var compact, safe bytes.Buffer
	if json.Compact(&compact, doc) != nil {
		return w.fail(dst)
	}
	json.HTMLEscape(&safe, compact.Bytes())
	return append(dst, safe.Bytes()...)
}
