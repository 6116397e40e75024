// Package jsonread reads plain JSON into Go structs, in a fraction of the time that a general decoder takes.
//
// A document is plain if nothing about it can be in doubt: each name is that of a field, exactly, and stands once; each value is of its field's type;
// text is valid UTF-8 and integers are written as such. What is read from it is what sigs.k8s.io/json, the API's own decoder, reads. Any other
// document is refused without a word, and so are types that the package does not understand: then that decoder has to judge.
//
// The first document of a type has a reader made for the type: for each field where it stands and what reads it. Later ones are read by these
// lists, without reflection. Short strings are shared with other objects; nothing that is read keeps the document's memory. The package is safe for
// concurrent use.
package jsonread

import (
	"bytes"
	"reflect"
	"sync"
	"unsafe"
)

// Struct reads data into the struct that v points to. It reports false, leaving nothing in the struct, if the document is not plain, and at once if v
// is no pointer to a struct without content.
func Struct(data []byte, v any) bool {
	p := reflect.ValueOf(v)
	if p.Kind() != reflect.Pointer || p.IsNil() || p.Type().Elem().Kind() != reflect.Struct || !empty(p) {
		return false
	}
	if read(data, p) {
		return true
	}
	p.Elem().SetZero()
	return false
}

// empty tells whether all memory of what p points to is zero, which takes less time than to look at each field.
func empty(p reflect.Value) bool {
	memory := unsafe.Slice((*byte)(p.UnsafePointer()), p.Type().Elem().Size())
	for len(memory) > 0 {
		n := min(len(memory), len(nothing))
		if !bytes.Equal(memory[:n], nothing[:n]) {
			return false
		}
		memory = memory[n:]
	}
	return true
}

var nothing [1 << 10]byte

func read(data []byte, p reflect.Value) bool {
	r := readers.Get().(*reader)
	r.data, r.depth = data, 0
	i := programOf(p.Type())(r, r.space(0), p.UnsafePointer())
	ok := i >= 0 && r.space(i) == len(data)
	r.data = nil
	readers.Put(r)
	return ok
}

// decoder reads the value that begins at i into what p points to, and tells where the value ends; -1 if it is not plain.
type decoder func(r *reader, i int, p unsafe.Pointer) int

// reader is what the decoders of one document share.
type reader struct {
	data  []byte
	depth int
	shared
}

var readers = sync.Pool{New: func() any { return new(reader) }}

// programs are the decoders that exist, by the type of the pointer.
var programs sync.Map

func programOf(pointer reflect.Type) decoder {
	if d, ok := programs.Load(pointer); ok {
		return d.(decoder)
	}
	d := make(compiler).of(pointer.Elem()).read
	programs.Store(pointer, d)
	return d
}

// maxDepth bounds structs, lists and maps within one another.
const maxDepth = 200

// enter begins an object or an array with the byte that opens it, and gives the place of what follows. Each enter that does not fail has its leave.
func (r *reader) enter(i int, open byte) int {
	if r.at(i) != open || r.depth == maxDepth {
		return -1
	}
	r.depth++
	return r.space(i + 1)
}

// leave ends an object or an array and passes on where that is.
func (r *reader) leave(i int) int {
	r.depth--
	return i
}

// more goes from the end of a member or an element to the next; last says that there is none, and i is where the object or array ends.
func (r *reader) more(i int, end byte) (next int, last bool) {
	if i < 0 {
		return -1, true
	}
	i = r.space(i)
	switch r.at(i) {
	case ',':
		return r.space(i + 1), false
	case end:
		return i + 1, true
	}
	return -1, true
}
