package openapi

import (
	"k8s.io/kube-openapi/pkg/validation/spec"
	merge "sigs.k8s.io/structured-merge-diff/v6/schema"
)

// mergeRules tells how server-side apply merges a type's lists and maps: the same rules that the server itself applies.
type mergeRules struct{ schema *merge.Schema }

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
