// Package jsonwrite writes Go values as JSON: byte for byte what encoding/json writes, in a fraction of the time.
//
// The first value of a type has a writer made for the type: a list of its fields, with their names already quoted, where each one stands, and what
// appends it. Later values are walked by these lists, without reflection and, but for what the values' own methods and large maps need, without
// allocation.
//
// encoding/json stays the judge. A type that the package does not understand (fields that hide each other, keys that are no strings) is written by
// it, and a value that can not be written (a NaN, a marshaler that fails, a cycle) is handed to it as a whole, so that its word and its error are
// what the caller gets. A value is only read. The package is safe for concurrent use as long as nobody changes the values meanwhile.
//
// Some types of the API whose MarshalJSON says little are written without calling it: times, quantities, IntOrString, FieldsV1, RawExtension,
// Unstructured.
package jsonwrite

import (
	"bytes"
	"encoding/json"
	"reflect"
	"sync"
	"unsafe"
)

// Append appends v's JSON to dst, without a newline. On an error, which is the one of encoding/json, dst comes back as it was.
func Append(dst []byte, v any) ([]byte, error) {
	w := writers.Get().(*writer)
	out := w.value(dst, v)
	failed := w.failed
	if w.failed, w.depth = false, 0; cap(w.entries) <= maxEntries {
		writers.Put(w)
	}
	if !failed {
		return out, nil
	}
	judged, err := json.Marshal(v)
	if err != nil {
		return dst, err
	}
	return append(dst, judged...), nil
}

// Marshal is [Append] into a slice of its own, of the document's size.
func Marshal(v any) ([]byte, error) {
	s := scratch.Get().(*[]byte)
	out, err := Append((*s)[:0], v)
	if err == nil {
		defer keep(s, out)
		return bytes.Clone(out), nil
	}
	scratch.Put(s)
	return nil, err
}

// maxScratch bounds what is kept of a buffer for the next document.
const maxScratch = 64 << 10

// scratch holds the buffers in which documents grow.
var scratch = sync.Pool{New: func() any { return new([]byte) }}

func keep(s *[]byte, grown []byte) {
	if cap(grown) <= maxScratch {
		*s = grown[:0]
	}
	scratch.Put(s)
}

// encoder appends the value of one type that p points to.
type encoder func(w *writer, dst []byte, p unsafe.Pointer) []byte

// writer is what the encoders of one document share.
type writer struct {
	// failed says that encoding/json must have a look. What has been appended then means nothing.
	failed bool
	depth  int
	// entries are those of the maps that are being written, one within another.
	entries []entry
}

// maxEntries bounds the writers that are kept for the next document.
const maxEntries = 1 << 10

var writers = sync.Pool{New: func() any { return new(writer) }}

// maxDepth bounds pointers, lists and maps within one another: a value that is deeper may contain itself.
const maxDepth = 500

// enter begins what a value may hold itself in, and tells whether to go on. Each enter has its leave.
func (w *writer) enter() bool {
	w.depth++
	if w.depth > maxDepth {
		w.failed = true
	}
	return !w.failed
}

func (w *writer) leave() { w.depth-- }

func (w *writer) fail(dst []byte) []byte {
	w.failed = true
	return dst
}

// pointed and held are the writers that exist: for what a pointer of the type points to, and for a value of the type that has no address, as in
// an interface or a map. They differ in whether methods of the pointer count.
var pointed, held sync.Map // by reflect.Type, of encoder

// value appends any value.
func (w *writer) value(dst []byte, v any) []byte {
	switch x := v.(type) {
	case nil:
		return append(dst, "null"...)
	case string:
		return appendString(dst, x)
	case bool:
		return appendBool(dst, x)
	case int64:
		return appendInt(dst, x)
	case float64:
		return w.float(dst, x, 64)
	case map[string]any:
		return w.object(dst, x)
	case []any:
		return w.array(dst, x)
	}
	r := reflect.ValueOf(v)
	t := r.Type()
	if t.Kind() == reflect.Pointer {
		if r.IsNil() {
			return append(dst, "null"...)
		}
		return w.through(dst, t, r.UnsafePointer())
	}
	e, ok := held.Load(t)
	if !ok {
		e = make(compiler).encoder(t, false)
		held.Store(t, e)
	}
	own := reflect.New(t)
	own.Elem().Set(r)
	return e.(encoder)(w, dst, own.UnsafePointer())
}

// through appends what p, a pointer of type t that is not nil, points to.
func (w *writer) through(dst []byte, t reflect.Type, p unsafe.Pointer) []byte {
	e, ok := pointed.Load(t)
	if !ok {
		e = make(compiler).encoder(t.Elem(), true)
		pointed.Store(t, e)
	}
	if w.enter() {
		dst = e.(encoder)(w, dst, p)
	}
	w.leave()
	return dst
}
