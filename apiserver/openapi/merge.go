package openapi

import (
	"strings"

	"k8s.io/kube-openapi/pkg/validation/spec"
	merge "sigs.k8s.io/structured-merge-diff/v6/schema"

	"github.com/yare-project/yare/apiserver/apply"
)

// mergeRules tells how server-side apply merges a type's lists and maps: the same rules that the server itself applies.
type mergeRules struct{ schema *merge.Schema }

// builtinRules are those of the built-in types.
func builtinRules() mergeRules { return mergeRules{schema: apply.Schema()} }

func (m mergeRules) atom(name string) *merge.Atom {
	if m.schema == nil {
		return nil
	}
	def, ok := m.schema.FindNamedType(name)
	if !ok {
		return nil
	}
	return &def.Atom
}

// object marks a struct that is replaced as a whole.
func (m mergeRules) object(name string, s *spec.Schema) {
	if a := m.atom(name); a != nil && a.Map != nil && a.Map.ElementRelationship == merge.Atomic {
		s.AddExtension("x-kubernetes-map-type", "atomic")
	}
	if a := m.atom(name); a != nil && a.Map != nil && len(a.Map.Unions) > 0 {
		s.AddExtension("x-kubernetes-unions", unions(a.Map.Unions))
	}
}

func unions(in []merge.Union) []any {
	var out []any
	for _, u := range in {
		fields := map[string]any{}
		for _, f := range u.Fields {
			fields[f.FieldName] = f.DiscriminatorValue
		}
		union := map[string]any{"fields-to-discriminateBy": fields}
		if u.Discriminator != nil {
			union["discriminator"] = *u.Discriminator
		}
		out = append(out, union)
	}
	return out
}

func (m mergeRules) field(name, key string, p *spec.Schema) {
	a := m.atom(name)
	if a == nil && p.Items != nil && (strings.HasPrefix(name, "io.k8s.api.authentication.") || strings.HasPrefix(name, "io.k8s.api.authorization.")) {
		p.AddExtension("x-kubernetes-list-type", "atomic") // reviews are not applied, so that the rules don't know them
	}
	if a == nil || a.Map == nil {
		return
	}
	f, ok := a.Map.FindField(key)
	if !ok {
		return
	}
	if f.Default != nil && p.Default == nil {
		p.Default = f.Default
	}
	if f.Type.ElementRelationship != nil && f.Type.NamedType != nil {
		mapType(*f.Type.ElementRelationship, p)
	}
	if f.Type.NamedType != nil {
		return
	}
	switch {
	case f.Type.Inlined.List != nil:
		list(f.Type.Inlined.List, p)
	case f.Type.Inlined.Map != nil && p.AdditionalProperties != nil:
		mapType(f.Type.Inlined.Map.ElementRelationship, p)
	}
}

// mapType says what a map is where its type's source says it.
func mapType(r merge.ElementRelationship, p *spec.Schema) {
	switch r {
	case merge.Atomic:
		p.AddExtension("x-kubernetes-map-type", "atomic")
	case merge.Separable:
		p.AddExtension("x-kubernetes-map-type", "granular")
	}
}

func list(l *merge.List, p *spec.Schema) {
	switch {
	case len(l.Keys) > 0:
		p.AddExtension("x-kubernetes-list-type", "map")
		p.AddExtension("x-kubernetes-list-map-keys", l.Keys)
	case l.ElementRelationship == merge.Associative:
		p.AddExtension("x-kubernetes-list-type", "set")
	case l.ElementRelationship == merge.Atomic:
		p.AddExtension("x-kubernetes-list-type", "atomic")
	}
}
