// Package jsonfield tells which members the JSON object of a Go struct has, by the rules of encoding/json, and where in memory each stands.
//
// It knows the rules that API types need: names, omitempty, omitzero, embedded structs. Of a struct that needs others (fields of one name that hide
// each other, the option string, names that have to be escaped) it says so.
package jsonfield

import (
	"reflect"
	"strings"
)

// Member is one member of the object.
type Member struct {
	// Name is made of letters and digits of ASCII and of _-.$/ and needs no escape.
	Name string
	Type reflect.Type
	// Offset counts from the struct or, if there are Hops, from what the last of these leads to.
	Offset uintptr
	// Hops are where pointers to embedded structs stand, each in what the one before leads to.
	Hops []uintptr
	// Addr tells whether encoding/json sees an address of the field, so that methods of its pointer count.
	Addr                bool
	OmitEmpty, OmitZero bool
}

// Of lists the members of a struct type in their order; addr tells whether the struct has an address. It reports false if the rules known here do
// not suffice.
func Of(t reflect.Type, addr bool) ([]Member, bool) {
	l := lister{names: map[string]bool{}, types: map[reflect.Type]bool{}}
	ok := l.list(t, place{addr: addr})
	return l.members, ok
}

// place is where a struct, embedded or not, stands in the outermost one.
type place struct {
	offset uintptr
	hops   []uintptr
	addr   bool
}

type lister struct {
	members []Member
	names   map[string]bool
	types   map[reflect.Type]bool // embedded
}

func (l *lister) list(t reflect.Type, at place) bool {
	if l.types[t] {
		return false
	}
	l.types[t] = true
	for i := range t.NumField() {
		sf := t.Field(i)
		tag := sf.Tag.Get("json")
		if !sf.IsExported() && sf.Anonymous {
			return false
		}
		if !sf.IsExported() || tag == "-" {
			continue
		}
		if !l.field(sf, tag, at) {
			return false
		}
	}
	return true
}

func (l *lister) field(sf reflect.StructField, tag string, at place) bool {
	name, options, _ := strings.Cut(tag, ",")
	if sf.Anonymous && name == "" {
		if t, inner := embedded(sf, at); t != nil {
			return l.list(t, inner)
		}
	}
	if name == "" {
		name = sf.Name
	}
	m := Member{Name: name, Type: sf.Type, Offset: at.offset + sf.Offset, Hops: at.hops, Addr: at.addr}
	for option := range strings.SplitSeq(options, ",") {
		switch option {
		case "omitempty":
			m.OmitEmpty = true
		case "omitzero":
			m.OmitZero = true
		case "string":
			return false
		}
	}
	if !plain(name) || l.names[name] || m.OmitZero && sf.Type.Kind() == reflect.Interface {
		return false
	}
	l.names[name] = true
	l.members = append(l.members, m)
	return true
}

// embedded is the struct whose fields count as those of the one that sf is in; nil if sf is a field like any other.
func embedded(sf reflect.StructField, at place) (reflect.Type, place) {
	t := sf.Type
	at.offset += sf.Offset
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
		at = place{hops: append(at.hops[:len(at.hops):len(at.hops)], at.offset), addr: true}
	}
	if t.Kind() != reflect.Struct {
		return nil, at
	}
	return t, at
}

// plain tells whether a name needs no escape and is a name for all readers of tags.
func plain(name string) bool {
	return name != "" && strings.IndexFunc(name, func(r rune) bool {
		return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("_-.$/", r))
	}) < 0
}
