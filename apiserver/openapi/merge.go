package openapi

import (
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/kube-openapi/pkg/validation/spec"
	merge "sigs.k8s.io/structured-merge-diff/v6/schema"

	"github.com/yare-project/yare/kind"
)

// mergeRules tells how server-side apply merges a type's lists and maps: the same rules that the server itself applies.
type mergeRules struct{ schema *merge.Schema }

// mergeRulesOf finds the rules of the built-in types. They are one schema, which any of its types leads to.
func mergeRulesOf(kinds []*kind.Kind) mergeRules {
	converter := applyconfigurations.NewTypeConverter(scheme.Scheme)
	for _, k := range kinds {
		obj := k.New()
		obj.GetObjectKind().SetGroupVersionKind(k.Hub)
		if typed, err := converter.ObjectToTyped(obj); err == nil {
			return mergeRules{schema: typed.Schema()}
		}
	}
	return mergeRules{}
}

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
	if f.Type.ElementRelationship != nil && *f.Type.ElementRelationship == merge.Atomic && f.Type.NamedType != nil {
		p.AddExtension("x-kubernetes-map-type", "atomic")
	}
	if f.Type.NamedType != nil {
		return
	}
	switch {
	case f.Type.Inlined.List != nil:
		list(f.Type.Inlined.List, p)
	case f.Type.Inlined.Map != nil && f.Type.Inlined.Map.ElementRelationship == merge.Atomic && p.AdditionalProperties != nil:
		p.AddExtension("x-kubernetes-map-type", "atomic")
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
