package jsonread

import (
	"reflect"
	"unsafe"

	"github.com/yare-project/yare/internal/jsonfield"
)

// program reads a struct.
type program struct {
	fields []field
	// places finds a field by the hash of its name: its index and 1, or 0 for none. A name's place may be taken by another; then it is in the next.
	places []uint16
}

type field struct {
	name   string
	offset uintptr
	how    how
	value
}

// how is the way in which a field is read.
type how uint8

const (
	byDecoder how = iota
	asText
	asStruct // by sub
)

// value reads values of one type.
type value struct {
	read decoder
	sub  *program // of a struct
	// null says that read must see a null; for all others it leaves what is there, which is nothing.
	null bool
}

// maxFields bounds the fields of a struct that has a program.
const maxFields = 128

// seen has a bit for each field that was read.
type seen [maxFields / 64]uint64

// first tells whether the field was not there before.
func (s *seen) first(f int) bool {
	word, bit := &s[f/64], uint64(1)<<(f%64)
	was := *word & bit
	*word |= bit
	return was == 0
}

func (c compiler) program(g *program, members []jsonfield.Member) {
	size := 8
	for size < 3*len(members) {
		size *= 2
	}
	g.fields, g.places = make([]field, len(members)), make([]uint16, size)
	for i, m := range members {
		f := field{name: m.Name, offset: m.Offset, value: c.of(m.Type)}
		switch {
		case f.sub != nil:
			f.how = asStruct
		case m.Type.Kind() == reflect.String && !isUnmarshaler(m.Type) && m.Type != numberType:
			f.how = asText
		}
		g.fields[i] = f
		at := g.place([]byte(m.Name))
		for g.places[at] != 0 {
			at = (at + 1) % len(g.places)
		}
		g.places[at] = uint16(i + 1)
	}
}

func (g *program) place(name []byte) int { return int(hash(name)) & (len(g.places) - 1) }

// find is the index of the field with a name; -1 if there is none. next is where it stands if fields come in their order.
func (g *program) find(name []byte, next int) int {
	if next < len(g.fields) && g.fields[next].name == string(name) {
		return next
	}
	for at := g.place(name); g.places[at] != 0; at = (at + 1) % len(g.places) {
		if i := int(g.places[at]) - 1; g.fields[i].name == string(name) {
			return i
		}
	}
	return -1
}

func (g *program) read(r *reader, i int, p unsafe.Pointer) int {
	if i = r.enter(i, '{'); i < 0 {
		return -1
	}
	if r.at(i) == '}' {
		return r.leave(i + 1)
	}
	var there seen
	for next, last := 0, false; !last; {
		end, simple := r.quote(i)
		if !simple {
			return -1
		}
		f := g.find(r.data[i+1:end], next)
		if f < 0 || !there.first(f) {
			return -1
		}
		next = f + 1
		if i = r.colon(end + 1); i < 0 {
			return -1
		}
		if i, last = r.more(g.fields[f].readAt(r, i, p), '}'); i < 0 {
			return -1
		}
	}
	return r.leave(i)
}

// readAt reads the field's value into the struct at p.
func (f *field) readAt(r *reader, i int, p unsafe.Pointer) int {
	p = unsafe.Add(p, f.offset)
	switch f.how {
	case asText:
		if r.at(i) == '"' {
			var s string
			if s, i = r.string(i); i >= 0 {
				*(*string)(p) = s
			}
			return i
		}
	case asStruct:
		if r.at(i) == '{' {
			return f.sub.read(r, i, p)
		}
	}
	return f.value.from(r, i, p)
}

// from reads a value or a null.
func (v *value) from(r *reader, i int, p unsafe.Pointer) int {
	if r.at(i) == 'n' && !v.null {
		return r.word(i, "null")
	}
	return v.read(r, i, p)
}
