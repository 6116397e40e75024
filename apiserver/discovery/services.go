package discovery

import (
	"cmp"
	"slices"

	discoveryv2 "k8s.io/api/apidiscovery/v2"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
)

// Place is the priority of a group among the groups and of a version among its group's: the higher comes first.
type Place struct{ Group, Version int32 }

// Service is a group version that another server serves, or one of this server's own with a place that somebody gave it.
type Service struct {
	schema.GroupVersion
	Place Place
	// Remote says that another server serves it. Resources are those that it told of last, Fresh that it did so just now.
	Remote    bool
	Fresh     bool
	Resources []discoveryv2.APIResourceDiscovery
}

// arrange adds what others serve, and brings groups and versions into their order. Without any place, the order stays.
func arrange(groups []group, services []Service, placeOf func(schema.GroupVersion) Place) []group {
	if placeOf == nil && len(services) == 0 {
		return groups
	}
	for i := range groups {
		for j := range groups[i].versions {
			if v := &groups[i].versions[j]; placeOf != nil {
				v.place = placeOf(schema.GroupVersion{Group: groups[i].name, Version: v.name})
			}
		}
	}
	for i := range services {
		groups = settle(groups, &services[i])
	}
	for i := range groups {
		slices.SortStableFunc(groups[i].versions, func(a, b groupVersion) int {
			if c := cmp.Compare(b.place.Version, a.place.Version); c != 0 {
				return c
			}
			return -version.CompareKubeAwareVersionStrings(a.name, b.name)
		})
	}
	slices.SortStableFunc(groups, func(a, b group) int {
		if c := cmp.Compare(b.place(), a.place()); c != 0 {
			return c
		}
		return cmp.Compare(a.name, b.name)
	})
	return groups
}

// settle puts one service into its group.
func settle(groups []group, s *Service) []group {
	at := slices.IndexFunc(groups, func(g group) bool { return g.name == s.Group })
	if at < 0 {
		if !s.Remote {
			return groups
		}
		at = len(groups)
		groups = append(groups, group{name: s.Group})
	}
	g := &groups[at]
	i := slices.IndexFunc(g.versions, func(v groupVersion) bool { return v.name == s.Version })
	if i < 0 {
		if !s.Remote {
			return groups
		}
		i = len(g.versions)
		g.versions = append(g.versions, groupVersion{name: s.Version})
	}
	g.versions[i].place = s.Place
	if s.Remote {
		g.versions[i].remote = s
	}
	return groups
}

// place is the highest of a group's versions.
func (g *group) place() int32 {
	var out int32
	for _, v := range g.versions {
		out = max(out, v.place.Group)
	}
	return out
}
