package jsonwrite

import (
	"reflect"
	"strings"
	"unsafe"
)

// program writes a struct: its fields, those of embedded structs among them, in their order.
type program struct{ fields []field }

type field struct {
	// name is a comma, the quoted name, a colon; with the quote that opens a string if as is asText.
	name   string
	offset uintptr
	empty  empty
	as     as
	// rare says that hops or zero are set.
	rare    bool
	sub     *program
	encoder encoder
	// hops lead through embedded pointers: each is where the next pointer stands; offset counts from what the last one points to.
	hops []uintptr
	zero func(p unsafe.Pointer) bool
}

// as is how a field's value is appended.
type as uint8

const (
	asOther as = iota // by encoder
	asText
	asStruct // by sub
)

// empty is how to tell a field that is left out.
type empty uint8

const (
	never empty = iota
	always
	noLength // the second word of a string or slice is 0
	noEntries
	zero8
	zero16
	zero32
	zero64
)

func (f *field) isEmpty(p unsafe.Pointer) bool {
	switch f.empty {
	case noLength:
		return len(*(*string)(p)) == 0 // a slice has its length at the same place
	case zero64:
		return *(*uint64)(p) == 0
	case zero32:
		return *(*uint32)(p) == 0
	case zero8:
		return *(*uint8)(p) == 0
	case noEntries:
		return len(*(*map[string]struct{})(p)) == 0 // any map has its length at the same place
	case zero16:
		return *(*uint16)(p) == 0
	}
	return f.empty == always
}

func (g *program) append(w *writer, dst []byte, p unsafe.Pointer) []byte {
	start := len(dst)
	for i := range g.fields {
		f := &g.fields[i]
		at := unsafe.Add(p, f.offset)
		if f.rare {
			if at = f.reach(p); at == nil || f.zero != nil && f.zero(at) {
				continue
			}
		}
		if f.isEmpty(at) {
			continue
		}
		dst = append(dst, f.name...)
		switch f.as {
		case asText:
			dst = append(appendText(dst, bytesOf(*(*string)(at))), '"')
		case asStruct:
			dst = f.sub.append(w, dst, at)
		default:
			dst = f.encoder(w, dst, at)
		}
	}
	return closeObject(dst, start)
}

// reach finds a field of a struct at p, through embedded pointers; nil if one of them is.
func (f *field) reach(p unsafe.Pointer) unsafe.Pointer {
	for _, hop := range f.hops {
		if p = *(*unsafe.Pointer)(unsafe.Add(p, hop)); p == nil {
			return nil
		}
	}
	return unsafe.Add(p, f.offset)
}

// place is where the fields of a struct, embedded or not, stand in the outermost one.
type place struct {
	offset uintptr
	hops   []uintptr
	addr   bool
}

// fields fills g with the fields of t. It reports false if the rules about which of several fields of one name counts, or any other rule that is
// rarely needed, would have to be known.
func (c compiler) fields(g *program, t reflect.Type, addr bool) bool {
	seen := seen{names: map[string]bool{}, types: map[reflect.Type]bool{}}
	return c.collect(g, t, place{addr: addr}, seen)
}

type seen struct {
	names map[string]bool
	types map[reflect.Type]bool // embedded
}

func (c compiler) collect(g *program, t reflect.Type, at place, seen seen) bool {
	if seen.types[t] {
		return false
	}
	seen.types[t] = true
	for i := range t.NumField() {
		sf := t.Field(i)
		tag, _ := sf.Tag.Lookup("json")
		if sf.Anonymous && !sf.IsExported() {
			return false
		}
		if !sf.IsExported() || tag == "-" {
			continue
		}
		name, options, _ := strings.Cut(tag, ",")
		if sf.Anonymous && name == "" {
			if done, ok := c.embedded(g, sf, at, seen); done {
				if !ok {
					return false
				}
				continue
			}
		}
		if name == "" {
			name = sf.Name
		}
		if !plainName(name) || seen.names[name] || !c.field(g, sf, name, strings.Split(options, ","), at) {
			return false
		}
		seen.names[name] = true
	}
	return true
}

// embedded adds the fields of an embedded struct; done is false if sf is a field like any other.
func (c compiler) embedded(g *program, sf reflect.StructField, at place, seen seen) (done, ok bool) {
	t, inner := sf.Type, at
	inner.offset += sf.Offset
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
		inner = place{hops: append(at.hops[:len(at.hops):len(at.hops)], inner.offset), addr: true}
	}
	if t.Kind() != reflect.Struct {
		return false, false
	}
	return true, c.collect(g, t, inner, seen)
}

// plainName tells whether a name needs no escape and is a name for all readers of tags.
func plainName(name string) bool {
	return name != "" && strings.IndexFunc(name, func(r rune) bool {
		return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("_-.$/", r))
	}) < 0
}

func (c compiler) field(g *program, sf reflect.StructField, name string, options []string, at place) bool {
	f := field{name: `,"` + name + `":`, offset: at.offset + sf.Offset, hops: at.hops, rare: at.hops != nil}
	for _, option := range options {
		switch option {
		case "omitempty":
			f.empty = emptiness(sf.Type)
		case "omitzero":
			if f.zero = zeroness(sf.Type, at.addr); f.zero == nil {
				return false
			}
			f.rare = true
		case "string":
			return false
		}
	}
	f.encoder = c.encoder(sf.Type, at.addr)
	if m := c[subject{sf.Type, at.addr}]; m.program != nil {
		f.as, f.sub = asStruct, m.program
	} else if sf.Type.Kind() == reflect.String && sf.Type != numberType && !isMarshaler(sf.Type) {
		f.as, f.name = asText, f.name+`"`
	}
	g.fields = append(g.fields, f)
	return true
}

func emptiness(t reflect.Type) empty {
	switch t.Kind() {
	case reflect.String, reflect.Slice:
		return noLength
	case reflect.Map:
		return noEntries
	case reflect.Array:
		if t.Len() == 0 {
			return always
		}
	case reflect.Pointer, reflect.Interface:
		return map[uintptr]empty{4: zero32, 8: zero64}[unsafe.Sizeof(uintptr(0))]
	case reflect.Bool, reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint, reflect.Uint8, reflect.Uint16,
		reflect.Uint32, reflect.Uint64, reflect.Uintptr, reflect.Float32, reflect.Float64:
		return map[uintptr]empty{1: zero8, 2: zero16, 4: zero32, 8: zero64}[t.Size()]
	}
	return never
}
