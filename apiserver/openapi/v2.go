package openapi

import (
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// documentV2 renders everything as one document of Swagger 2.0.
func documentV2(info *spec.Info, operations []operation, d *definitions) ([]byte, error) {
	doc := &spec.Swagger{SwaggerProps: spec.SwaggerProps{
		Swagger:             "2.0",
		Info:                info,
		Paths:               &spec.Paths{Paths: map[string]spec.PathItem{}},
		Definitions:         spec.Definitions{},
		Parameters:          map[string]spec.Parameter{pretty.key: parameterV2(pretty, "query")},
		SecurityDefinitions: spec.SecurityDefinitions{"BearerToken": &spec.SecurityScheme{SecuritySchemeProps: spec.SecuritySchemeProps{Type: "apiKey", Name: "authorization", In: "header", Description: "Bearer Token authentication"}}},
		Security:            []map[string][]string{{"BearerToken": {}}},
	}}
	for i := range operations {
		o := &operations[i]
		item, ok := doc.Paths.Paths[o.path]
		if !ok {
			item.Parameters = pathParametersV2(o)
		}
		for _, p := range o.parameters {
			doc.Parameters[p.key] = parameterV2(p, "query")
		}
		setV2(&item, o.method, operationV2(o))
		doc.Paths.Paths[o.path] = item
	}
	for name, s := range d.byName {
		doc.Definitions[name] = toV2(s)
	}
	out, err := json.Marshal(doc)
	if err != nil {
		return nil, fmt.Errorf("encode OpenAPI v2: %w", err)
	}
	return out, nil
}

func setV2(p *spec.PathItem, method string, o *spec.Operation) {
	switch method {
	case "GET":
		p.Get = o
	case "POST":
		p.Post = o
	case "PUT":
		p.Put = o
	case "PATCH":
		p.Patch = o
	case "DELETE":
		p.Delete = o
	case "HEAD":
		p.Head = o
	case "OPTIONS":
		p.Options = o
	}
}

func parameterV2(p parameter, in string) spec.Parameter {
	return spec.Parameter{
		CommonValidations: spec.CommonValidations{UniqueItems: true},
		SimpleSchema:      spec.SimpleSchema{Type: p.typ},
		ParamProps:        spec.ParamProps{Name: p.name, In: in, Description: p.description, Required: in == "path"},
	}
}

func sharedParameter(key string) spec.Parameter {
	return spec.Parameter{Refable: spec.Refable{Ref: spec.MustCreateRef("#/parameters/" + key)}}
}

func pathParametersV2(o *operation) []spec.Parameter {
	var out []spec.Parameter
	for _, p := range pathParameters(o.path) {
		p.typ = "string"
		out = append(out, parameterV2(p, "path"))
	}
	if o.action != "connect" && o.action != "" {
		out = append(out, sharedParameter(pretty.key))
	}
	return out
}

func operationV2(o *operation) *spec.Operation {
	op := &spec.Operation{OperationProps: spec.OperationProps{
		ID: o.id, Description: o.summary, Tags: []string{o.tag()}, Schemes: []string{"https"}, Consumes: o.consumes, Produces: o.produces,
		Responses: &spec.Responses{ResponsesProps: spec.ResponsesProps{StatusCodeResponses: map[int]spec.Response{
			401: {ResponseProps: spec.ResponseProps{Description: "Unauthorized"}},
		}}},
	}}
	if o.action != "" {
		op.AddExtension("x-kubernetes-action", o.action)
		op.AddExtension(extensionGVK, gvkValue(o.gvk))
	}
	if op.Consumes == nil {
		op.Consumes = anyType
	}
	if o.body != "" {
		body := definitionRef(o.body)
		op.Parameters = append(op.Parameters, spec.Parameter{ParamProps: spec.ParamProps{Name: "body", In: "body", Required: o.body != deleteName, Schema: &body}})
	}
	for _, p := range o.parameters {
		op.Parameters = append(op.Parameters, sharedParameter(p.key))
	}
	for _, code := range o.codes {
		s := spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{"string"}}}
		if o.response != "" {
			s = definitionRef(o.response)
		}
		op.Responses.StatusCodeResponses[code] = spec.Response{ResponseProps: spec.ResponseProps{Description: reasonPhrase(code), Schema: &s}}
	}
	return op
}

func definitionRef(name string) spec.Schema {
	return spec.Schema{SchemaProps: spec.SchemaProps{Ref: spec.MustCreateRef("#/definitions/" + name)}}
}

// toV2 rewrites a schema for version 2: without oneOf, defaults and nullable, and with references in place of an allOf of one.
func toV2(s *spec.Schema) spec.Schema {
	out := *s
	if v2, ok := s.Extensions[common.ExtensionV2Schema].(spec.Schema); ok {
		v2.Description = s.Description
		v2 = toV2(&v2)
		if kinds, has := s.Extensions[extensionGVK]; has {
			v2.AddExtension(extensionGVK, kinds)
		}
		return v2
	}
	out.Default, out.Nullable, out.OneOf, out.AnyOf = nil, false, nil, nil
	if ref := s.Ref.String(); ref != "" {
		out.Ref = spec.MustCreateRef("#/definitions/" + strings.TrimPrefix(ref, refPrefix))
	}
	if len(s.AllOf) == 1 && s.AllOf[0].Ref.String() != "" {
		out.Ref = spec.MustCreateRef("#/definitions/" + strings.TrimPrefix(s.AllOf[0].Ref.String(), refPrefix))
		out.AllOf = nil
	}
	if s.Properties != nil {
		out.Properties = make(map[string]spec.Schema, len(s.Properties))
		for name, p := range s.Properties {
			out.Properties[name] = toV2(&p)
		}
	}
	if s.Items != nil && s.Items.Schema != nil {
		item := toV2(s.Items.Schema)
		out.Items = &spec.SchemaOrArray{Schema: &item}
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		value := toV2(s.AdditionalProperties.Schema)
		out.AdditionalProperties = &spec.SchemaOrBool{Allows: true, Schema: &value}
	}
	return out
}
