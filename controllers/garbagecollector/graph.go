package garbagecollector

import (
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/controllers/served"
	"github.com/yare-project/yare/loop"
)

// graph knows who depends on whom. Objects that have no owners take no room in it: whether an owner exists is asked of its cache.
type graph struct {
	mu         sync.RWMutex
	monitors   map[schema.GroupResource]*monitor
	byKind     map[schema.GroupKind]*monitor
	dependents map[types.UID]map[loop.Key]bool
	absent     map[missing]bool // owners that the server said are not there: a uid never comes back
}

// monitor is one resource that the collector watches.
type monitor struct {
	served.Resource
	cache client.Cache[client.Object]
}

// missing is an owner as a reference and its holder's namespace name it. The uid alone is not enough: a wrong reference says nothing about a right one.
type missing struct {
	uid                               types.UID
	apiVersion, kind, name, namespace string
}

func newGraph() *graph {
	return &graph{monitors: map[schema.GroupResource]*monitor{}, byKind: map[schema.GroupKind]*monitor{},
		dependents: map[types.UID]map[loop.Key]bool{}, absent: map[missing]bool{}}
}

// add returns the resource's monitor, and whether it is new.
func (g *graph) add(r served.Resource, cache func() client.Cache[client.Object]) (*monitor, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	gr := r.GroupResource()
	if m, ok := g.monitors[gr]; ok {
		return m, false
	}
	m := &monitor{Resource: r, cache: cache()}
	g.monitors[gr] = m
	g.byKind[schema.GroupKind{Group: r.Group, Kind: r.Kind}] = m
	return m, true
}

// key of an object is its namespace and "resource.group/name".
func (m *monitor) key(namespace, name string) loop.Key {
	return loop.Key{Namespace: namespace, Name: m.GroupResource().String() + "/" + name}
}

// find is the monitored object of a key, if its cache has it.
func (g *graph) find(key loop.Key) (*monitor, client.Object, bool) {
	resource, name, _ := strings.Cut(key.Name, "/")
	g.mu.RLock()
	m := g.monitors[schema.ParseGroupResource(resource)]
	g.mu.RUnlock()
	if m == nil {
		return nil, nil, false
	}
	o, ok := m.cache.Get(key.Namespace, name)
	return m, o, ok
}

// owner finds the monitor of a reference's kind and the namespace in which its object must be.
func (g *graph) owner(ref metav1.OwnerReference, dependentNamespace string) (m *monitor, namespace string) {
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return nil, ""
	}
	g.mu.RLock()
	defer g.mu.RUnlock()
	if m = g.byKind[schema.GroupKind{Group: gv.Group, Kind: ref.Kind}]; m != nil && m.Namespaced {
		namespace = dependentNamespace
	}
	return m, namespace
}

// cached is a reference's object if its cache has it with the same uid.
func (g *graph) cached(ref metav1.OwnerReference, dependentNamespace string) (client.Object, bool) {
	m, namespace := g.owner(ref, dependentNamespace)
	if m == nil {
		return nil, false
	}
	o, ok := m.cache.Get(namespace, ref.Name)
	return o, ok && o.GetUID() == ref.UID
}

func (g *graph) relink(key loop.Key, old, new []metav1.OwnerReference) {
	if len(old) == 0 && len(new) == 0 {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, ref := range old {
		delete(g.dependents[ref.UID], key)
		if len(g.dependents[ref.UID]) == 0 {
			delete(g.dependents, ref.UID)
		}
	}
	for _, ref := range new {
		if g.dependents[ref.UID] == nil {
			g.dependents[ref.UID] = map[loop.Key]bool{}
		}
		g.dependents[ref.UID][key] = true
	}
}

// dependentsOf lists the keys of the objects that name uid as an owner.
func (g *graph) dependentsOf(uid types.UID) []loop.Key {
	g.mu.RLock()
	defer g.mu.RUnlock()
	out := make([]loop.Key, 0, len(g.dependents[uid]))
	for key := range g.dependents[uid] {
		out = append(out, key)
	}
	return out
}

// absentLimit bounds the memory of absent owners. Forgetting one costs a read.
const absentLimit = 10000

func (g *graph) markAbsent(m missing) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.absent) >= absentLimit {
		clear(g.absent)
	}
	g.absent[m] = true
}

func (g *graph) isAbsent(m missing) bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.absent[m]
}

func hasFinalizer(o client.Object, name string) bool { return slices.Contains(o.GetFinalizers(), name) }

// deletesDependents tells whether an object is being deleted in the foreground: after its dependents.
func deletesDependents(o client.Object) bool {
	return o.GetDeletionTimestamp() != nil && hasFinalizer(o, metav1.FinalizerDeleteDependents)
}

func orphans(o client.Object) bool {
	return o.GetDeletionTimestamp() != nil && hasFinalizer(o, metav1.FinalizerOrphanDependents)
}

func blocks(ref metav1.OwnerReference) bool {
	return ref.BlockOwnerDeletion != nil && *ref.BlockOwnerDeletion
}
