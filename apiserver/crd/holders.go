package crd

import (
	"slices"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// group is one API group's names: resources (plural, singular and short names) and kinds are two realms.
type group struct {
	resources, kinds holders
	// refused are the definitions that wait for a name which another one holds.
	refused map[string]bool
}

// holders tells which definitions hold a name: one, but for what a user wrote into a status.
type holders map[string][]string

// taken tells whether anybody but the definition itself holds a name.
func (h holders) taken(name, definition string) bool {
	return slices.ContainsFunc(h[name], func(holder string) bool { return holder != definition })
}

func (h holders) hold(definition string, names ...string) {
	for _, name := range names {
		if name != "" && !slices.Contains(h[name], definition) {
			h[name] = append(h[name], definition)
		}
	}
}

// release tells whether a name has become free.
func (h holders) release(definition string, names ...string) bool {
	freed := false
	for _, name := range names {
		if i := slices.Index(h[name], definition); i >= 0 {
			freed = true
			if h[name] = slices.Delete(h[name], i, i+1); len(h[name]) == 0 {
				delete(h, name)
			}
		}
	}
	return freed
}

func resourceNames(n *apiextensionsv1.CustomResourceDefinitionNames) []string {
	return append([]string{n.Plural, n.Singular}, n.ShortNames...)
}

func kindNames(n *apiextensionsv1.CustomResourceDefinitionNames) []string {
	return []string{n.Kind, n.ListKind}
}

func (s *Server) group(name string) *group {
	g := s.groups[name]
	if g == nil {
		g = &group{resources: holders{}, kinds: holders{}, refused: map[string]bool{}}
		s.groups[name] = g
	}
	return g
}

// keep makes d the known state of its definition, with the names that it holds. Names that it held before and holds no longer are free for those
// that wait.
func (s *Server) keep(d *definition) {
	old := s.known[d.Name]
	s.known[d.Name] = d
	g := s.group(d.Spec.Group)
	now := &d.Status.AcceptedNames
	if old != nil {
		was := &old.Status.AcceptedNames
		gone := func(was, now []string) []string {
			return slices.DeleteFunc(was, func(n string) bool { return slices.Contains(now, n) })
		}
		s.vacate(g, d.Name, gone(resourceNames(was), resourceNames(now)), gone(kindNames(was), kindNames(now)))
	}
	g.resources.hold(d.Name, resourceNames(now)...)
	g.kinds.hold(d.Name, kindNames(now)...)
	if apihelpers.IsCRDConditionFalse(d, apiextensionsv1.NamesAccepted) {
		g.refused[d.Name] = true
	} else {
		delete(g.refused, d.Name)
	}
}

// forget drops a definition that is gone.
func (s *Server) forget(name string) {
	old := s.known[name]
	if old == nil {
		return
	}
	delete(s.known, name)
	delete(s.dirty, name)
	g := s.group(old.Spec.Group)
	delete(g.refused, name)
	s.vacate(g, name, resourceNames(&old.Status.AcceptedNames), kindNames(&old.Status.AcceptedNames))
	if len(g.resources) == 0 && len(g.kinds) == 0 && len(g.refused) == 0 {
		delete(s.groups, old.Spec.Group)
	}
}

// vacate frees names; those who wait for one are looked at again.
func (s *Server) vacate(g *group, definition string, resources, kinds []string) {
	a, b := g.resources.release(definition, resources...), g.kinds.release(definition, kinds...)
	if a || b {
		for name := range g.refused {
			s.dirty[name] = true
		}
	}
}
