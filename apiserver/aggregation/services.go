package aggregation

import (
	"slices"
	"strings"

	discoveryv2 "k8s.io/api/apidiscovery/v2"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"

	"github.com/yare-project/yare/apiserver/discovery"
)

// Services are the group versions that others serve, and those of this server's own that an APIService gives another place than they have by themselves.
// The number changes whenever they do.
func (a *Aggregator) Services() ([]discovery.Service, uint64) {
	l := a.listed.Load()
	if revision := a.known.Load(); l == nil || l.revision != revision {
		l = &listing{revision: revision, services: a.list()}
		a.listed.Store(l)
	}
	return l.services, l.revision
}

// listing is what Services tells. It may be newer than its revision, never older.
type listing struct {
	revision uint64
	services []discovery.Service
}

func (a *Aggregator) list() []discovery.Service {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []discovery.Service
	for _, s := range a.stored {
		gv := versionOf(s)
		entry := discovery.Service{GroupVersion: gv, Place: placeOf(s)}
		if b := a.backends[gv]; b != nil && elsewhere(s) {
			b.mu.Lock()
			entry.Remote, entry.Fresh, entry.Resources = true, b.learned.fresh, b.learned.resources
			b.mu.Unlock()
		} else if !a.moved(s) {
			continue
		}
		out = append(out, entry)
	}
	slices.SortFunc(out, func(x, y discovery.Service) int {
		return strings.Compare(x.GroupVersion.String(), y.GroupVersion.String())
	})
	return out
}

// Places of what has no place of its own, as in Kubernetes.
var (
	ofCustom  = Priority{Group: 1000, Version: 100}
	ofBuiltin = Priority{Group: 15000, Version: 9}
)

func placeOf(s *apiService) discovery.Place {
	return discovery.Place{Group: s.Spec.GroupPriorityMinimum, Version: s.Spec.VersionPriority}
}

// moved tells whether an APIService gives what this server serves itself another place.
func (a *Aggregator) moved(s *apiService) bool {
	return s != nil && s.Spec.Service == nil && a.Place(versionOf(s)) != placeOf(s)
}

// Place is where a group version of this server's own stands by itself.
func (a *Aggregator) Place(gv schema.GroupVersion) discovery.Place {
	p, _ := a.priority(gv)
	return discovery.Place(p)
}

func (a *Aggregator) priority(gv schema.GroupVersion) (p Priority, builtin bool) {
	if a.cfg.Builtin == nil {
		return ofCustom, false
	}
	p, builtin = a.cfg.Builtin(gv)
	switch {
	case !builtin:
		return ofCustom, false
	case p == Priority{}:
		return ofBuiltin, true
	}
	return p, true
}

// Resource is one resource that another server serves.
type Resource struct {
	schema.GroupVersionResource
	Kind       string
	Namespaced bool
	Verbs      []string
}

// Resources are what other servers serve, each in its group's preferred version, for loops that care for all objects. failed names the group versions
// about which nothing certain is known now.
func (a *Aggregator) Resources() (found []Resource, failed []schema.GroupVersion) {
	v := a.now.Load()
	if v == nil {
		return nil, nil
	}
	backends := make([]*backend, 0, len(v.backends))
	for _, b := range v.backends {
		backends = append(backends, b)
	}
	slices.SortFunc(backends, preferredFirst)
	seen := map[schema.GroupResource]bool{}
	for _, b := range backends {
		b.mu.Lock()
		resources, fresh := b.learned.resources, b.learned.fresh
		b.mu.Unlock()
		if !fresh {
			failed = append(failed, b.gv)
			continue
		}
		for _, r := range resources {
			gvr := b.gv.WithResource(r.Resource)
			if seen[gvr.GroupResource()] || r.ResponseKind == nil {
				continue
			}
			seen[gvr.GroupResource()] = true
			found = append(found, Resource{GroupVersionResource: gvr, Kind: r.ResponseKind.Kind, Namespaced: r.Scope == "Namespaced", Verbs: r.Verbs})
		}
	}
	return found, failed
}

// Versions are the group versions that others serve.
func (a *Aggregator) Versions() []schema.GroupVersion {
	var out []schema.GroupVersion
	if v := a.now.Load(); v != nil {
		for gv := range v.backends {
			out = append(out, gv)
		}
	}
	return out
}

// Knows tells whether another server said that it serves the resource.
func (a *Aggregator) Knows(gvr schema.GroupVersionResource) bool {
	b := a.backend(gvr.GroupVersion())
	if b == nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.ContainsFunc(b.learned.resources, func(r discoveryv2.APIResourceDiscovery) bool { return r.Resource == gvr.Resource })
}

func preferredFirst(x, y *backend) int {
	if c := strings.Compare(x.gv.Group, y.gv.Group); c != 0 {
		return c
	}
	if c := y.object.Load().Spec.VersionPriority - x.object.Load().Spec.VersionPriority; c != 0 {
		return int(c)
	}
	return -version.CompareKubeAwareVersionStrings(x.gv.Version, y.gv.Version)
}
