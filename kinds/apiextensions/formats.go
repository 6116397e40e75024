package apiextensions

import (
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// warn names the formats in a new or changed schema that no value is held to, because nobody knows them.
func warn(d, old *definition) []string {
	now, known := unknownFormats(d), sets.New[string]()
	if len(now) > 0 && old != nil {
		known = unknownFormats(old)
	}
	var out []string
	for _, format := range sets.List(now.Difference(known)) {
		out = append(out, fmt.Sprintf("unrecognized format %q", format))
	}
	return out
}

func unknownFormats(d *definition) sets.Set[string] {
	out := sets.New[string]()
	for i := range d.Spec.Versions {
		if s := d.Spec.Versions[i].Schema; s != nil {
			eachSchema(s.OpenAPIV3Schema, func(s *apiextensionsv1.JSONSchemaProps) {
				if s.Format == "" {
					return
				}
				part := &spec.Schema{SchemaProps: spec.SchemaProps{Format: s.Format, Type: []string{s.Type}}}
				out.Insert(validation.GetUnrecognizedFormats(part, environment.DefaultCompatibilityVersion())...)
			})
		}
	}
	return out
}

// eachSchema visits a schema and all within it.
func eachSchema(s *apiextensionsv1.JSONSchemaProps, visit func(*apiextensionsv1.JSONSchemaProps)) {
	if s == nil {
		return
	}
	visit(s)
	eachSchema(s.Not, visit)
	for _, list := range [][]apiextensionsv1.JSONSchemaProps{s.AllOf, s.AnyOf, s.OneOf} {
		for i := range list {
			eachSchema(&list[i], visit)
		}
	}
	if s.Items != nil {
		eachSchema(s.Items.Schema, visit)
		for i := range s.Items.JSONSchemas {
			eachSchema(&s.Items.JSONSchemas[i], visit)
		}
	}
	for _, more := range []*apiextensionsv1.JSONSchemaPropsOrBool{s.AdditionalProperties, s.AdditionalItems} {
		if more != nil {
			eachSchema(more.Schema, visit)
		}
	}
	for _, named := range []map[string]apiextensionsv1.JSONSchemaProps{s.Properties, s.PatternProperties, s.Definitions} {
		for name := range named {
			part := named[name]
			eachSchema(&part, visit)
		}
	}
	for _, needed := range s.Dependencies {
		eachSchema(needed.Schema, visit)
	}
}
