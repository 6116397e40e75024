package jsonwrite

import (
	"reflect"
	"unsafe"
)

// object appends a map of values that only they know the type of.
func (w *writer) object(dst []byte, m map[string]any) []byte {
	if m == nil {
		return append(dst, "null"...)
	}
	if !w.enter() {
		w.leave()
		return dst
	}
	start := len(dst)
	from := len(w.entries)
	for k := range m {
		w.entries = append(w.entries, entry{key: k})
	}
	w.sort(from)
	for i := from; i < from+len(m); i++ {
		k := w.entries[i].key
		dst = appendKey(dst, k)
		dst = w.value(dst, m[k])
	}
	w.release(from)
	w.leave()
	return closeObject(dst, start)
}

func (w *writer) array(dst []byte, list []any) []byte {
	if list == nil {
		return append(dst, "null"...)
	}
	if w.enter() {
		dst = append(dst, '[')
		for i, v := range list {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = w.value(dst, v)
		}
		dst = append(dst, ']')
	}
	w.leave()
	return dst
}

// contents appends what an interface without methods holds.
func contents(w *writer, dst []byte, p unsafe.Pointer) []byte { return w.value(dst, *(*any)(p)) }

// contentsOf is contents for an interface type with methods.
func contentsOf(t reflect.Type) encoder {
	return func(w *writer, dst []byte, p unsafe.Pointer) []byte {
		return w.value(dst, reflect.NewAt(t, p).Elem().Interface())
	}
}
