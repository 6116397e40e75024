package client

import (
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yare-project/yare/internal/resource"
)

// store holds one cache's objects: pointers to what the transport gave, never copies. Writers are the reflector alone.
type store struct {
	ref     resource.Ref
	opts    CacheOptions
	started bool // guarded by the registry's lock
	synced  chan struct{}
	seen    atomic.Uint64 // the newest revision applied, if revisions are numbers

	mu      sync.RWMutex // guards what follows; held briefly
	objects map[string]map[string]Object
	indexes []*index
	named   map[string]*index

	deliver  sync.Mutex // held while a change is applied and told, so that a late handler misses and repeats nothing
	handlers []func(old, new Object)
}

type index struct {
	of      func(Object) []string
	byValue map[string]map[types.NamespacedName]Object
}

func newStore(gvr schema.GroupVersionResource, opts CacheOptions) *store {
	return &store{ref: resource.Ref{GroupVersionResource: gvr, Namespace: opts.Namespace}, opts: opts, synced: make(chan struct{}),
		objects: map[string]map[string]Object{}, named: map[string]*index{}}
}

func (s *store) get(namespace, name string) (Object, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	o, ok := s.objects[namespace][name]
	return o, ok
}

// each calls f for the objects of a namespace, or all.
func (s *store) each(namespace string, f func(Object)) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if namespace != "" {
		for _, o := range s.objects[namespace] {
			f(o)
		}
		return
	}
	for _, objects := range s.objects {
		for _, o := range objects {
			f(o)
		}
	}
}

// change sets key to obj, or removes it when obj is nil, and tells the handlers. revision, if known, is the change's own.
func (s *store) change(key types.NamespacedName, obj Object, revision string) {
	s.deliver.Lock()
	defer s.deliver.Unlock()
	old, changed := s.swap(key, obj)
	s.saw(revision)
	if !changed {
		return
	}
	for _, f := range s.handlers {
		f(old, obj)
	}
}

func (s *store) swap(key types.NamespacedName, obj Object) (old Object, changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old = s.objects[key.Namespace][key.Name]
	switch {
	case old == nil && obj == nil:
		return nil, false
	case obj == nil:
		delete(s.objects[key.Namespace], key.Name)
		if len(s.objects[key.Namespace]) == 0 {
			delete(s.objects, key.Namespace)
		}
	default:
		if old != nil && old.GetUID() == obj.GetUID() && old.GetResourceVersion() == obj.GetResourceVersion() {
			return old, false
		}
		if s.objects[key.Namespace] == nil {
			s.objects[key.Namespace] = map[string]Object{}
		}
		s.objects[key.Namespace][key.Name] = obj
	}
	for _, x := range s.indexes {
		x.move(key, old, obj)
	}
	return old, true
}

func (s *store) saw(revision string) {
	if n, err := strconv.ParseUint(revision, 10, 64); err == nil {
		s.seen.Store(n)
	}
}

// replace makes the store hold exactly these objects, the state at revision.
func (s *store) replace(objects map[types.NamespacedName]Object, revision string) {
	var gone []types.NamespacedName
	s.each("", func(o Object) {
		if key := keyOf(o); objects[key] == nil {
			gone = append(gone, key)
		}
	})
	for _, key := range gone {
		s.change(key, nil, "")
	}
	for key, o := range objects {
		s.change(key, o, "")
	}
	s.saw(revision)
}

func (s *store) markSynced() {
	select {
	case <-s.synced:
	default:
		close(s.synced)
	}
}

func (s *store) onChange(f func(old, new Object)) {
	s.deliver.Lock()
	defer s.deliver.Unlock()
	var present []Object
	s.each("", func(o Object) { present = append(present, o) })
	for _, o := range present {
		f(nil, o)
	}
	s.handlers = append(s.handlers, f)
}

// SharedIndex begins the name of an index that means the same to whoever adds it: it is kept once, by its first function.
const SharedIndex = "shared/"

func (s *store) addIndex(name string, of func(Object) []string) *index {
	s.mu.Lock()
	defer s.mu.Unlock()
	if x := s.named[name]; x != nil && strings.HasPrefix(name, SharedIndex) {
		return x
	}
	x := &index{of: of, byValue: map[string]map[types.NamespacedName]Object{}}
	for _, objects := range s.objects {
		for _, o := range objects {
			x.move(keyOf(o), nil, o)
		}
	}
	s.indexes = append(s.indexes, x)
	if s.named[name] == nil {
		s.named[name] = x
	}
	return x
}

func (x *index) move(key types.NamespacedName, old, obj Object) {
	if old != nil {
		for _, v := range x.of(old) {
			delete(x.byValue[v], key)
			if len(x.byValue[v]) == 0 {
				delete(x.byValue, v)
			}
		}
	}
	if obj == nil {
		return
	}
	for _, v := range x.of(obj) {
		if x.byValue[v] == nil {
			x.byValue[v] = map[types.NamespacedName]Object{}
		}
		x.byValue[v][key] = obj
	}
}

func keyOf(o Object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}
