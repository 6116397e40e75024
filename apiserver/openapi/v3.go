package openapi

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// documentV3 renders one version's operations and definitions.
func documentV3(info *spec.Info, operations []operation, d *definitions) ([]byte, error) {
	doc := &spec3.OpenAPI{
		Version:    "3.0.0",
		Info:       info,
		Paths:      &spec3.Paths{Paths: map[string]*spec3.Path{}},
		Components: &spec3.Components{Schemas: map[string]*spec.Schema{}, SecuritySchemes: spec3.SecuritySchemes{"BearerToken": bearer()}},
	}
	for _, o := range operations {
		p := doc.Paths.Paths[o.path]
		if p == nil {
			p = &spec3.Path{PathProps: spec3.PathProps{Parameters: pathParametersV3(o)}}
			doc.Paths.Paths[o.path] = p
		}
		setV3(p, o.method, operationV3(o))
	}
	for name, s := range d.byName {
		doc.Components.Schemas[name] = withoutV2(s)
	}
	out, err := json.Marshal(doc)
	if err != nil {
		return nil, fmt.Errorf("encode OpenAPI v3: %w", err)
	}
	return out, nil
}

func bearer() *spec3.SecurityScheme {
	return &spec3.SecurityScheme{SecuritySchemeProps: spec3.SecuritySchemeProps{
		Type: "apiKey", Name: "authorization", In: "header", Description: "Bearer Token authentication"}}
}

// withoutV2 drops what only version 2 needs.
func withoutV2(s *spec.Schema) *spec.Schema {
	if _, has := s.Extensions[common.ExtensionV2Schema]; !has {
		return s
	}
	out := *s
	out.Extensions = spec.Extensions{}
	for k, v := range s.Extensions {
		if k != common.ExtensionV2Schema {
			out.Extensions[k] = v
		}
	}
	return &out
}

func setV3(p *spec3.Path, method string, o *spec3.Operation) {
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

// pathParameters are the names between braces, in the order of Kubernetes: name, namespace, path.
func pathParameters(path string) []parameter {
	known := []parameter{
		{name: "name", description: "name of the object"},
		{name: "namespace", description: "object name and auth scope, such as for teams and projects"},
		{name: "path", description: "path to the resource"},
	}
	return slices.DeleteFunc(known, func(p parameter) bool { return !strings.Contains(path, "{"+p.name+"}") })
}

var pretty = parameter{key: "pretty", name: "pretty", typ: "string", description: "If 'true', the answer is indented. It is for people: it costs time and bytes."}

func pathParametersV3(o operation) []*spec3.Parameter {
	var out []*spec3.Parameter
	for _, p := range pathParameters(o.path) {
		p.typ = "string"
		v3 := parameterV3(p, "path")
		v3.Required = true
		out = append(out, v3)
	}
	if o.action != "connect" && o.action != "" {
		out = append(out, parameterV3(pretty, "query"))
	}
	return out
}

func parameterV3(p parameter, in string) *spec3.Parameter {
	return &spec3.Parameter{ParameterProps: spec3.ParameterProps{Name: p.name, In: in, Description: p.description,
		Schema: &spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{p.typ}, UniqueItems: true}}}}
}

func operationV3(o operation) *spec3.Operation {
	op := &spec3.Operation{OperationProps: spec3.OperationProps{
		OperationId: o.id, Description: o.summary, Tags: []string{o.tag()},
		Responses: &spec3.Responses{ResponsesProps: spec3.ResponsesProps{StatusCodeResponses: map[int]*spec3.Response{
			401: {ResponseProps: spec3.ResponseProps{Description: "Unauthorized"}},
		}}},
	}}
	if o.action != "" {
		op.AddExtension("x-kubernetes-action", o.action)
		op.AddExtension(extensionGVK, gvkValue(o.gvk))
	}
	for _, p := range o.parameters {
		op.Parameters = append(op.Parameters, parameterV3(p, "query"))
	}
	if o.body != "" {
		op.RequestBody = &spec3.RequestBody{RequestBodyProps: spec3.RequestBodyProps{Content: contentV3(o.consumes, o.body), Required: o.body != deleteName}}
	}
	for _, code := range o.codes {
		op.Responses.StatusCodeResponses[code] = &spec3.Response{ResponseProps: spec3.ResponseProps{
			Description: reasonPhrase(code), Content: contentV3(o.produces, o.response)}}
	}
	return op
}

func contentV3(types []string, name string) map[string]*spec3.MediaType {
	out := map[string]*spec3.MediaType{}
	for _, t := range types {
		s := &spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{"string"}}}
		if name != "" {
			ref := refTo(name)
			s = &ref
		}
		out[t] = &spec3.MediaType{MediaTypeProps: spec3.MediaTypeProps{Schema: s}}
	}
	return out
}

func reasonPhrase(code int) string {
	switch code {
	case 200:
		return "OK"
	case 201:
		return "Created"
	case 202:
		return "Accepted"
	}
	return strconv.Itoa(code)
}
