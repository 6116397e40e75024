package jsonwrite

import "unsafe"

// program writes a struct: its fields, those of embedded structs among them, in their order.
type program struct {
	tests  []test // one for each field
	fields []field
}

// test tells at once whether most fields are left out: if the word at offset, of which mask shows the field's own bits, is zero.
type test struct {
	offset uintptr
	mask   uint64
	stays  uint64 // not 0: the field is there, or its own test must tell
}

type field struct {
	// name is a comma, the quoted name, a colon; with the quote that opens a string if as is asText.
	name    string
	offset  uintptr
	as      as
	sub     *program
	encoder encoder
	// rare is set if test does not tell all.
	rare *rare
}

// as is how a field's value is appended.
type as uint8

const (
	asOther as = iota // by encoder
	asText
	asStruct  // by sub
	asPointer // to a struct, by sub
)

func (g *program) append(w *writer, dst []byte, p unsafe.Pointer) []byte {
	start := len(dst)
	for i := range g.tests {
		t := &g.tests[i]
		if t.stays == 0 && *(*uint64)(unsafe.Add(p, t.offset))&t.mask == 0 {
			continue
		}
		f := &g.fields[i]
		var at unsafe.Pointer
		if f.rare == nil {
			at = unsafe.Add(p, f.offset)
		} else if at = f.rare.reach(p, f.offset); at == nil || f.rare.omits(at) {
			continue
		}
		dst = append(dst, f.name...)
		switch f.as {
		case asText:
			dst = append(appendText(dst, bytesOf(*(*string)(at))), '"')
		case asStruct:
			dst = f.sub.append(w, dst, at)
		case asPointer:
			dst = f.sub.pointed(w, dst, at)
		default:
			dst = f.encoder(w, dst, at)
		}
	}
	return closeObject(dst, start)
}

// pointed appends what the pointer at p points to.
func (g *program) pointed(w *writer, dst []byte, p unsafe.Pointer) []byte {
	p = *(*unsafe.Pointer)(p)
	if p == nil {
		return append(dst, "null"...)
	}
	if w.enter() {
		dst = g.append(w, dst, p)
	}
	w.leave()
	return dst
}

// rare is what few fields need.
type rare struct {
	empty empty
	zero  func(p unsafe.Pointer) bool // or nil
	// hops lead through embedded pointers: each is where the next pointer stands; the field's offset counts from what the last one points to.
	hops []uintptr
}

// reach finds a field of a struct at p, through embedded pointers; nil if one of them is.
func (r *rare) reach(p unsafe.Pointer, offset uintptr) unsafe.Pointer {
	for _, hop := range r.hops {
		if p = *(*unsafe.Pointer)(unsafe.Add(p, hop)); p == nil {
			return nil
		}
	}
	return unsafe.Add(p, offset)
}

func (r *rare) omits(p unsafe.Pointer) bool { return r.zero != nil && r.zero(p) || r.empty.is(p) }

// empty is how to tell a field that is left out.
type empty uint8

const (
	never empty = iota
	always
	noLength // the second word of a string or slice is 0
	noEntries
	nothing // a pointer or an interface
	zero8
	zero16
	zero32
	zero64
	zeroFloat32 // of either sign
	zeroFloat64
)

func (e empty) is(p unsafe.Pointer) bool {
	switch e {
	case noLength:
		return len(*(*string)(p)) == 0 // a slice has its length at the same place
	case noEntries:
		return len(*(*map[string]struct{})(p)) == 0 // any map has its length at the same place
	case nothing:
		return *(*unsafe.Pointer)(p) == nil
	case zero8:
		return *(*uint8)(p) == 0
	case zero16:
		return *(*uint16)(p) == 0
	case zero32:
		return *(*uint32)(p) == 0
	case zero64:
		return *(*uint64)(p) == 0
	case zeroFloat32:
		return *(*float32)(p) == 0
	case zeroFloat64:
		return *(*float64)(p) == 0
	}
	return e == always
}

const word = 8

// test is the quick test for a field at offset in a struct of words; ok is false if there is none.
func (e empty) test(offset uintptr) (t test, ok bool) {
	size := map[empty]uintptr{noLength: 8, nothing: 8, noEntries: 8, zero8: 1, zero16: 2, zero32: 4, zero64: 8}[e]
	if unsafe.Sizeof(uintptr(0)) != word || size == 0 {
		return test{stays: 1}, e == never
	}
	if e == noLength {
		offset += word
	}
	var mask [word]byte
	for i := range size {
		mask[offset%word+i] = 0xff
	}
	return test{offset: offset - offset%word, mask: *(*uint64)(unsafe.Pointer(&mask))}, e != noEntries
}
