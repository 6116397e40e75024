package crd

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	openapiv2 "k8s.io/apiextensions-apiserver/pkg/controller/openapi/v2"
	"k8s.io/apiextensions-apiserver/pkg/generated/openapi"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/util"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

const (
	refPrefix = "#/components/schemas/"
	metaName  = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
)

func text(description string) spec.Schema {
	return spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{"string"}, Description: description}}
}

func metadata(description string) spec.Schema {
	ref := spec.Schema{SchemaProps: spec.SchemaProps{Ref: spec.MustCreateRef(refPrefix + metaName)}}
	if description == "" {
		return ref
	}
	return spec.Schema{SchemaProps: spec.SchemaProps{AllOf: []spec.Schema{ref}, Description: description}}
}

const (
	apiVersionText = "APIVersion defines the versioned schema of this representation of an object. Servers should convert recognized schemas to the latest " +
		"internal value, and may reject unrecognized values. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources"
	kindText = "Kind is a string value representing the REST resource this object represents. Servers may infer this from the endpoint the client submits " +
		"requests to. Cannot be updated. In CamelCase. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds"
	metadataText = "Standard object's metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata"
)

// published is the version's schema in OpenAPI v3, with what every object has. unfold writes Kubernetes' own extensions as what any reader of OpenAPI knows:
// a number or a text.
func (f *form) published(unfold bool) (*spec.Schema, error) {
	s, err := f.newStructural() // not the kept one: most definitions are published without ever being used
	if err != nil {
		return nil, err
	}
	if s == nil || f.of.preserves() {
		return openObject(), nil
	}
	if unfold {
		s = s.Unfold()
	}
	out := s.ToKubeOpenAPI()
	embedded(out, s, false)
	whole(out)
	return out, nil
}

// whole gives an object the fields that every object has.
func whole(out *spec.Schema) {
	if out.Properties == nil {
		out.Properties = map[string]spec.Schema{}
	}
	out.Properties["apiVersion"] = text(apiVersionText)
	out.Properties["kind"] = text(kindText)
	out.Properties["metadata"] = metadata(metadataText)
}

func openObject() *spec.Schema {
	s := &spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{"object"}}}
	s.AddExtension("x-kubernetes-preserve-unknown-fields", true)
	return s
}

// embedded gives whole objects within an object the fields that every object has.
func embedded(out *spec.Schema, s *structuralschema.Structural, second bool) {
	if s.Items != nil && out.Items != nil && out.Items.Schema != nil {
		embedded(out.Items.Schema, s.Items, second)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Structural != nil && out.AdditionalProperties != nil && out.AdditionalProperties.Schema != nil {
		embedded(out.AdditionalProperties.Schema, s.AdditionalProperties.Structural, second)
	}
	for name := range s.Properties {
		inner := s.Properties[name]
		p := out.Properties[name]
		embedded(&p, &inner, second)
		out.Properties[name] = p
	}
	if !s.XEmbeddedResource || second && s.XPreserveUnknownFields {
		return
	}
	whole(out)
	for _, name := range []string{"kind", "apiVersion"} {
		if !slices.Contains(out.Required, name) {
			out.Required = append(out.Required, name)
		}
	}
}

// merge makes the schema of server-side apply for all versions.
func (c *custom) merge() (managedfields.TypeConverter, error) {
	models := metaModels()
	for _, f := range c.ordered() {
		s, err := f.published(false)
		if err != nil {
			return nil, err
		}
		s.AddExtension("x-kubernetes-group-version-kind", []any{map[string]any{"group": f.gvk.Group, "version": f.gvk.Version, "kind": f.gvk.Kind}})
		models[f.gvk.Group+"."+f.gvk.Version+"."+f.gvk.Kind] = s
	}
	converter, err := managedfields.NewTypeConverter(models, c.preserves())
	if err != nil {
		return nil, fmt.Errorf("merge schema of %s: %w", c.hub.gvk.Kind, err)
	}
	return converter, nil
}

// metaModels are the schemas that ObjectMeta is made of.
func metaModels() map[string]*spec.Schema {
	all := definitions()
	models := map[string]*spec.Schema{}
	var add func(name string)
	add = func(name string) {
		d, ok := all[name]
		if !ok || models[name] != nil {
			return
		}
		models[name] = d.schema
		for _, next := range d.needs {
			add(next)
		}
	}
	add(metaName)
	return models
}

type generated struct {
	schema *spec.Schema
	needs  []string
}

// friendly is the name of a generated schema in documents. Some generators write it, others the Go package and type.
func friendly(name string) string {
	if strings.Contains(name, "/") {
		return util.ToRESTFriendlyName(name)
	}
	return name
}

// definitions are the generated schemas of the metadata types, by the names that documents give them.
var definitions = sync.OnceValue(func() map[string]generated {
	out := map[string]generated{}
	for name, d := range openapi.GetOpenAPIDefinitions(func(name string) spec.Ref { return spec.MustCreateRef(refPrefix + friendly(name)) }) {
		m := generated{schema: &d.Schema}
		for _, need := range d.Dependencies {
			m.needs = append(m.needs, friendly(need))
		}
		out[friendly(name)] = m
	}
	return out
})

// document is the version's schema for clients, with the one for OpenAPI v2 in it.
func (f *form) document() *spec.Schema {
	out, err := f.published(true)
	if err != nil {
		return openObject() // such a definition serves reads only: each write is refused with the reason
	}
	if fields := f.declared.SelectableFields; len(fields) > 0 {
		var list []any
		for _, s := range fields {
			list = append(list, map[string]any{"fieldPath": strings.TrimPrefix(s.JSONPath, ".")})
		}
		out.AddExtension("x-kubernetes-selectable-fields", list)
	}
	out.AddExtension(common.ExtensionV2Schema, f.second())
	return out
}

// second is the schema in OpenAPI v2, which has neither nullable nor oneOf, and in which kubectl takes an object with properties for a closed one: an
// object that may have unknown fields must have none.
func (f *form) second() spec.Schema {
	object := spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{"object"}}}
	s, err := f.newStructural()
	if err != nil || s == nil || s.XPreserveUnknownFields || f.of.preserves() {
		return object
	}
	s = openapiv2.ToStructuralOpenAPIV2(s)
	out := s.ToKubeOpenAPI()
	embedded(out, s, true)
	whole(out)
	return *out
}
