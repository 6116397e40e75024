package apply

import (
	_ "embed" // for the schemas
	"encoding/binary"
	"errors"
	"sync"

	smdschema "sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

// schemas are client-go's, as schema_test.go wrote them down: parsing the YAML that client-go carries takes a fifth of a second and tens of MiB of garbage at
// every start, reading this takes a hundredth of that.
//
//go:embed schema.bin
var schemas []byte

// builtin are the schemas of the built-in kinds, read once: they never change.
var builtin = sync.OnceValue(func() *typed.Parser {
	types, err := decodeTypes(schemas)
	if err != nil {
		panic(err) // the bytes are part of the program, and a test reads them
	}
	p := &typed.Parser{}
	p.Schema.Types = types
	return p
})

// Schema tells how the lists and maps of the built-in kinds are merged: all types, by the names that OpenAPI gives them. It is shared: read only.
func Schema() *smdschema.Schema { return &builtin().Schema }

// The form of schemas is: the strings, each once, then the types, which name strings by their place. Numbers are varints. What a type, a reference or a
// field has is told by the bits below.
const (
	hasScalar = 1 << iota
	hasList
	hasMap
)

const (
	hasName = 1 << iota
	hasAtom
	hasRelationship
	isNullable
)

const (
	noDefault = iota
	falseDefault
	trueDefault
	intDefault
	stringDefault
	emptyMapDefault
)

var errSchema = errors.New("apply: the built-in schemas are damaged")

// schemaReader reads the form. After a fault it reads zeros.
type schemaReader struct {
	data    []byte
	strings []string
	err     error
}

func decodeTypes(data []byte) ([]smdschema.TypeDef, error) {
	r := &schemaReader{data: data}
	r.strings = make([]string, r.count())
	for i := range r.strings {
		n := r.count()
		r.strings[i] = string(r.data[:n])
		r.data = r.data[n:]
	}
	types := make([]smdschema.TypeDef, r.count())
	for i := range types {
		types[i] = smdschema.TypeDef{Name: r.string(), Atom: r.atom()}
	}
	if len(r.data) > 0 && r.err == nil {
		r.err = errSchema
	}
	return types, r.err
}

func (r *schemaReader) number() uint64 {
	v, n := binary.Uvarint(r.data)
	if n <= 0 {
		r.err, r.data = errSchema, nil
		return 0
	}
	r.data = r.data[n:]
	return v
}

// count is a number of things that are still to be read, each of a byte at least.
func (r *schemaReader) count() int {
	v := r.number()
	if v > uint64(len(r.data)) {
		r.err, r.data = errSchema, nil
		return 0
	}
	return int(v)
}

func (r *schemaReader) string() string {
	i := r.number()
	if i >= uint64(len(r.strings)) {
		r.err = errSchema
		return ""
	}
	return r.strings[i]
}

func (r *schemaReader) atom() smdschema.Atom {
	var a smdschema.Atom
	has := r.number()
	if has&hasScalar != 0 {
		s := smdschema.Scalar(r.string())
		a.Scalar = &s
	}
	if has&hasList != 0 {
		a.List = &smdschema.List{ElementType: r.ref(), ElementRelationship: smdschema.ElementRelationship(r.string())}
		for range r.count() {
			a.List.Keys = append(a.List.Keys, r.string())
		}
	}
	if has&hasMap != 0 {
		a.Map = r.mapping()
	}
	return a
}

func (r *schemaReader) mapping() *smdschema.Map {
	m := &smdschema.Map{}
	if n := r.count(); n > 0 {
		m.Fields = make([]smdschema.StructField, n)
	}
	for i := range m.Fields {
		m.Fields[i] = smdschema.StructField{Name: r.string(), Type: r.ref(), Default: r.value()}
	}
	for range r.count() {
		u := smdschema.Union{}
		if r.number() != 0 {
			d := r.string()
			u.Discriminator = &d
		}
		u.DeduceInvalidDiscriminator = r.number() != 0
		for range r.count() {
			u.Fields = append(u.Fields, smdschema.UnionField{FieldName: r.string(), DiscriminatorValue: r.string()})
		}
		m.Unions = append(m.Unions, u)
	}
	m.ElementType, m.ElementRelationship = r.ref(), smdschema.ElementRelationship(r.string())
	return m
}

func (r *schemaReader) ref() smdschema.TypeRef {
	var t smdschema.TypeRef
	has := r.number()
	if has&hasName != 0 {
		name := r.string()
		t.NamedType = &name
	}
	if has&hasAtom != 0 {
		t.Inlined = r.atom()
	}
	if has&hasRelationship != 0 {
		e := smdschema.ElementRelationship(r.string())
		t.ElementRelationship = &e
	}
	t.Nullable = has&isNullable != 0
	return t
}

// value is a field's default, as the YAML parser would give it.
func (r *schemaReader) value() any {
	switch r.number() {
	case noDefault:
		return nil
	case falseDefault:
		return false
	case trueDefault:
		return true
	case intDefault:
		return int(r.number())
	case stringDefault:
		return r.string()
	case emptyMapDefault:
		return map[any]any{}
	}
	r.err = errSchema
	return nil
}
