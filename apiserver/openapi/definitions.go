package openapi

import (
	"encoding/json"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

const (
	refPrefix    = "#/components/schemas/"
	extensionGVK = "x-kubernetes-group-version-kind"
)

// definitions collects the schemas of Go types by name, in the form of OpenAPI v3. A type brings those that it refers to.
type definitions struct {
	byName map[string]*spec.Schema
	// generated are schemas that a generator made of a type's source: they know comments that reflection cannot see.
	generated map[string]common.OpenAPIDefinition
	merge     mergeRules
}

func newDefinitions(sources []func(common.ReferenceCallback) map[string]common.OpenAPIDefinition, merge mergeRules) *definitions {
	d := &definitions{byName: map[string]*spec.Schema{}, generated: map[string]common.OpenAPIDefinition{}, merge: merge}
	for _, source := range sources {
		for name, definition := range source(func(name string) spec.Ref { return spec.MustCreateRef(refPrefix + friendly(name)) }) {
			d.generated[friendly(name)] = definition
		}
	}
	return d
}

// friendly turns a Go package path and type into the name that definitions go by: k8s.io/api/core/v1.Pod is io.k8s.api.core.v1.Pod.
func friendly(name string) string {
	path, rest, found := strings.Cut(name, "/")
	if !found {
		return name
	}
	labels := strings.Split(path, ".")
	for i, j := 0, len(labels)-1; i < j; i, j = i+1, j-1 {
		labels[i], labels[j] = labels[j], labels[i]
	}
	return strings.Join(labels, ".") + "." + strings.ReplaceAll(rest, "/", ".")
}

type modelNamer interface{ OpenAPIModelName() string }

func nameOf(t reflect.Type) string {
	if named, ok := reflect.Zero(t).Interface().(modelNamer); ok {
		return named.OpenAPIModelName()
	}
	return friendly(t.PkgPath() + "." + t.Name())
}

// add makes sure that t, a struct or a type that describes itself, is defined, and returns its name.
func (d *definitions) add(t reflect.Type) string {
	name := nameOf(t)
	if d.byName[name] != nil {
		return name
	}
	if g, ok := d.generated[name]; ok {
		d.addGenerated(name, g)
		return name
	}
	s := &spec.Schema{}
	d.byName[name] = s // before its fields: types may be recursive
	if !d.selfDescribed(t, s) {
		d.object(t, name, s)
	}
	s.Description = docOf(t)[""]
	if s.Description == "" {
		s.Description = described[name]
	}
	return name
}

func (d *definitions) addGenerated(name string, g common.OpenAPIDefinition) {
	s := g.Schema
	pruneItems(&s)
	d.byName[name] = &s
	for _, dependency := range g.Dependencies {
		dependency = friendly(dependency)
		if next, ok := d.generated[dependency]; ok && d.byName[dependency] == nil {
			d.addGenerated(dependency, next)
		}
	}
}

// addSchema defines what has no Go type.
func (d *definitions) addSchema(name string, s *spec.Schema) { d.byName[name] = s }

// mark says that a definition is the body of a kind.
func (d *definitions) mark(name string, kinds ...schema.GroupVersionKind) {
	s := d.byName[name]
	if s == nil {
		return
	}
	list, _ := s.Extensions[extensionGVK].([]any)
	for _, k := range kinds {
		list = append(list, gvkValue(k))
	}
	marked := *s // a generated schema's extensions may be shared
	marked.Extensions = spec.Extensions{}
	for k, v := range s.Extensions {
		marked.Extensions[k] = v
	}
	marked.Extensions[extensionGVK] = list
	*s = marked
}

func gvkValue(k schema.GroupVersionKind) map[string]any {
	return map[string]any{"group": k.Group, "version": k.Version, "kind": k.Kind}
}

// selfDescribed fills the schema of a type that names its own wire form, such as Quantity or Time.
func (d *definitions) selfDescribed(t reflect.Type, s *spec.Schema) bool {
	value := reflect.New(t).Elem().Interface()
	typer, ok := value.(interface{ OpenAPISchemaType() []string })
	if !ok {
		return false
	}
	s.Type = typer.OpenAPISchemaType()
	if f, ok := value.(interface{ OpenAPISchemaFormat() string }); ok {
		s.Format = f.OpenAPISchemaFormat()
	}
	if of, ok := value.(interface{ OpenAPIV3OneOfTypes() []string }); ok {
		v2 := spec.Schema{SchemaProps: spec.SchemaProps{Type: s.Type, Format: s.Format}}
		s.Type = nil
		for _, one := range of.OpenAPIV3OneOfTypes() {
			s.OneOf = append(s.OneOf, spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{one}}})
		}
		s.AddExtension(common.ExtensionV2Schema, v2)
	}
	return true
}

func describesItself(t reflect.Type) bool {
	_, ok := reflect.Zero(t).Interface().(interface{ OpenAPISchemaType() []string })
	return ok
}

func docOf(t reflect.Type) map[string]string {
	if documented, ok := reflect.Zero(t).Interface().(interface{ SwaggerDoc() map[string]string }); ok {
		return documented.SwaggerDoc()
	}
	return nil
}

func (d *definitions) object(t reflect.Type, name string, s *spec.Schema) {
	s.Type = []string{"object"}
	d.merge.object(name, s)
	d.fields(t, name, s)
}

// fields adds a struct's fields, and those of structs that it has inline.
func (d *definitions) fields(t reflect.Type, name string, s *spec.Schema) {
	docs := docOf(t)
	for i := range t.NumField() {
		f := t.Field(i)
		tag, tagged := f.Tag.Lookup("json")
		key, options, _ := strings.Cut(tag, ",")
		switch {
		case key == "-" || !f.IsExported():
			continue
		case key == "" && (f.Anonymous || strings.Contains(options, "inline")):
			d.fields(indirect(f.Type), name, s)
			continue
		case !tagged || key == "":
			key = f.Name
		}
		omitted := strings.Contains(options, "omitempty") || strings.Contains(options, "omitzero")
		p := d.value(f.Type, !omitted)
		p.Description = docs[key]
		patchTags(f.Tag, &p)
		d.merge.field(name, key, &p)
		if len(p.AllOf) == 1 && p.Description == "" && p.Default == nil && len(p.Extensions) == 0 {
			p = p.AllOf[0]
		}
		if s.Properties == nil {
			s.Properties = map[string]spec.Schema{}
		}
		s.Properties[key] = p
		if !omitted && !optional[name+"."+key] || required[name+"."+key] {
			s.Required = append(s.Required, key)
		}
	}
}

func indirect(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Pointer {
		return t.Elem()
	}
	return t
}

func patchTags(tag reflect.StructTag, p *spec.Schema) {
	if strategy := tag.Get("patchStrategy"); strategy != "" {
		p.AddExtension("x-kubernetes-patch-strategy", strategy)
	}
	if key := tag.Get("patchMergeKey"); key != "" {
		p.AddExtension("x-kubernetes-patch-merge-key", key)
	}
}

// value is the schema of a field, an item or a map's value. zero says that it is always on the wire and starts from its type's zero value.
func (d *definitions) value(t reflect.Type, zero bool) spec.Schema {
	var s spec.Schema
	pointer := t.Kind() == reflect.Pointer
	t = indirect(t)
	if describesItself(t) {
		s.AllOf = []spec.Schema{refTo(d.add(t))}
		return s
	}
	switch t.Kind() {
	case reflect.Struct:
		s.AllOf = []spec.Schema{refTo(d.add(t))}
		if !pointer && t != reflect.TypeFor[runtime.RawExtension]() { // which is whatever was given
			s.Default = map[string]any{}
		}
		return s
	case reflect.Slice, reflect.Array:
		if t.Elem().Kind() == reflect.Uint8 {
			s.Type, s.Format = []string{"string"}, "byte"
			return s
		}
		item := d.value(t.Elem(), false)
		s.Type, s.Items = []string{"array"}, &spec.SchemaOrArray{Schema: plainRef(&item)}
		return s
	case reflect.Map:
		item := d.value(t.Elem(), false)
		s.Type, s.AdditionalProperties = []string{"object"}, &spec.SchemaOrBool{Allows: true, Schema: plainRef(&item)}
		return s
	case reflect.Interface:
		s.Type = []string{"object"}
		return s
	}
	s.Type, s.Format = scalar(t.Kind())
	if t.Kind() == reflect.String {
		s.Enum = enumOf(t)
	}
	if zero && !pointer {
		s.Default = plain(reflect.Zero(t).Interface())
	}
	return s
}

// plain drops the name of a scalar's type, so that it encodes as what it is.
func plain(value any) any {
	encoded, err := json.Marshal(value)
	if err != nil {
		return value
	}
	var out any
	if json.Unmarshal(encoded, &out) != nil {
		return value
	}
	return out
}

func refTo(name string) spec.Schema {
	return spec.Schema{SchemaProps: spec.SchemaProps{Ref: spec.MustCreateRef(refPrefix + name)}}
}

// plainRef is the schema of an item or a map's value: it has no default, and is a reference itself where nothing else is said.
func plainRef(s *spec.Schema) *spec.Schema {
	out := *s
	out.Default = nil
	if len(out.AllOf) == 1 && out.Description == "" {
		return &out.AllOf[0]
	}
	return &out
}

// pruneItems gives a generated schema the same form.
func pruneItems(s *spec.Schema) {
	properties := make(map[string]spec.Schema, len(s.Properties))
	for name, p := range s.Properties {
		if p.Items != nil && p.Items.Schema != nil {
			p.Items = &spec.SchemaOrArray{Schema: plainRef(p.Items.Schema)}
		}
		if p.AdditionalProperties != nil && p.AdditionalProperties.Schema != nil {
			p.AdditionalProperties = &spec.SchemaOrBool{Allows: true, Schema: plainRef(p.AdditionalProperties.Schema)}
		}
		if p.Ref.String() != "" && (p.Description != "" || p.Default != nil) { // beside a reference nothing else is read
			p.AllOf, p.Ref = []spec.Schema{{SchemaProps: spec.SchemaProps{Ref: p.Ref}}}, spec.Ref{}
		}
		properties[name] = p
	}
	if len(properties) > 0 {
		s.Properties = properties
	}
}

func scalar(k reflect.Kind) (types spec.StringOrArray, format string) {
	switch k {
	case reflect.Bool:
		return []string{"boolean"}, ""
	case reflect.Int64, reflect.Uint64, reflect.Uint:
		return []string{"integer"}, "int64"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Uint8, reflect.Uint16, reflect.Uint32:
		return []string{"integer"}, "int32"
	case reflect.Float32:
		return []string{"number"}, "float"
	case reflect.Float64:
		return []string{"number"}, "double"
	}
	return []string{"string"}, ""
}
