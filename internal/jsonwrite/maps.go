package jsonwrite

import (
	"reflect"
	"slices"
	"strings"
	"unsafe"

	"k8s.io/apimachinery/pkg/api/resource"
)

// entry is one of a map's, with its value if that is a string or its place in a list.
type entry struct {
	key, text string
	index     int
}

// sort brings the entries from the one at from on into the order of their keys.
func (w *writer) sort(from int) {
	slices.SortFunc(w.entries[from:], func(a, b entry) int { return strings.Compare(a.key, b.key) })
}

// release forgets the entries from the one at from on.
func (w *writer) release(from int) {
	clear(w.entries[from:])
	w.entries = w.entries[:from]
}

// appendKey appends a comma and a member's name with its colon. closeObject makes the first comma a brace.
func appendKey(dst []byte, key string) []byte {
	dst = append(dst, `,"`...)
	dst = appendText(dst, bytesOf(key))
	return append(dst, `":`...)
}

// closeObject ends an object whose members, each after a comma, stand in dst from start on.
func closeObject(dst []byte, start int) []byte {
	if len(dst) == start {
		return append(dst, "{}"...)
	}
	dst[start] = '{'
	return append(dst, '}')
}

// stringMap appends a map from strings to strings, of whatever names.
func stringMap(w *writer, dst []byte, p unsafe.Pointer) []byte {
	m := *(*map[string]string)(p)
	if m == nil {
		return append(dst, "null"...)
	}
	from, start := len(w.entries), len(dst)
	for k, v := range m {
		w.entries = append(w.entries, entry{key: k, text: v})
	}
	w.sort(from)
	for i := range w.entries[from:] {
		e := &w.entries[from+i]
		dst = appendKey(dst, e.key)
		dst = appendString(dst, e.text)
	}
	w.release(from)
	return closeObject(dst, start)
}

// keyed makes the encoder of maps whose values are appended without an address.
func keyed[V any](value func(w *writer, dst []byte, v V) []byte) encoder {
	return func(w *writer, dst []byte, p unsafe.Pointer) []byte {
		m := *(*map[string]V)(p)
		if m == nil {
			return append(dst, "null"...)
		}
		from, start := len(w.entries), len(dst)
		for k := range m {
			w.entries = append(w.entries, entry{key: k})
		}
		w.sort(from)
		for i := range w.entries[from:] {
			k := w.entries[from+i].key
			dst = value(w, appendKey(dst, k), m[k])
		}
		w.release(from)
		return closeObject(dst, start)
	}
}

var (
	quantityMap = keyed(func(_ *writer, dst []byte, q resource.Quantity) []byte { return appendQuantity(dst, &q) })
	binaryMap   = keyed(func(_ *writer, dst []byte, b []byte) []byte { return appendBinary(dst, b) })
)

func anyMap(w *writer, dst []byte, p unsafe.Pointer) []byte {
	return w.object(dst, *(*map[string]any)(p))
}

// mapping is the encoder of a map type whose keys are strings.
func (c compiler) mapping(t reflect.Type, addr bool) encoder {
	if t.Key().Kind() != reflect.String {
		return c.leave(t, addr)
	}
	elem := t.Elem()
	switch {
	case elem == reflect.TypeFor[resource.Quantity]():
		return quantityMap
	case elem == reflect.TypeFor[any]():
		return anyMap
	case isMarshaler(elem):
	case elem.Kind() == reflect.String && elem != numberType:
		return stringMap
	case isBinary(elem):
		return binaryMap
	}
	return c.mapOf(t)
}

// mapOf is the encoder of maps with any values. These are copied into a list to get an address.
func (c compiler) mapOf(t reflect.Type) encoder {
	elem, size, list := c.encoder(t.Elem(), false), t.Elem().Size(), reflect.SliceOf(t.Elem())
	return func(w *writer, dst []byte, p unsafe.Pointer) []byte {
		m := reflect.NewAt(t, p).Elem()
		if m.IsNil() {
			return append(dst, "null"...)
		}
		if !w.enter() {
			w.leave()
			return dst
		}
		from, start, n := len(w.entries), len(dst), m.Len()
		values := reflect.MakeSlice(list, n, n)
		for i, iter := 0, m.MapRange(); iter.Next(); i++ {
			w.entries = append(w.entries, entry{key: iter.Key().String(), index: i})
			values.Index(i).SetIterValue(iter)
		}
		w.sort(from)
		first := values.UnsafePointer()
		for i := range n {
			e := w.entries[from+i]
			dst = elem(w, appendKey(dst, e.key), unsafe.Add(first, uintptr(e.index)*size))
		}
		w.release(from)
		w.leave()
		return closeObject(dst, start)
	}
}
