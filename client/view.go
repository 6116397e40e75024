package client

import (
	"fmt"
	"strconv"
	"sync"
)

// view is a store seen as objects of type T.
type view[T Object] struct {
	store *store
	mu    sync.RWMutex
	own   map[string]*index
}

func typed[T Object](o Object) T {
	var none T
	if o == nil {
		return none
	}
	t, ok := o.(T)
	if !ok {
		panic(fmt.Sprintf("client: a cache of %T holds a %T: the transport decodes this resource differently", none, o))
	}
	return t
}

func (v *view[T]) Get(namespace, name string) (T, bool) {
	o, ok := v.store.get(namespace, name)
	if !ok {
		var none T
		return none, false
	}
	return typed[T](o), true
}

func (v *view[T]) List(namespace string) []T {
	var out []T
	v.store.each(namespace, func(o Object) { out = append(out, typed[T](o)) })
	return out
}

func (v *view[T]) By(name, value string) []T {
	x := v.index(name)
	s := v.store
	s.mu.RLock()
	defer s.mu.RUnlock()
	found := x.byValue[value]
	if len(found) == 0 {
		return nil
	}
	out := make([]T, 0, len(found))
	for _, o := range found {
		out = append(out, typed[T](o))
	}
	return out
}

func (v *view[T]) index(name string) *index {
	v.mu.RLock()
	x := v.own[name]
	v.mu.RUnlock()
	if x != nil {
		return x
	}
	v.store.mu.RLock()
	defer v.store.mu.RUnlock()
	if x = v.store.named[name]; x == nil {
		panic(fmt.Sprintf("client: the cache of %s has no index %q: add it with AddIndex first", v.store.ref.Resource, name))
	}
	return x
}

func (v *view[T]) AddIndex(name string, of func(T) []string) {
	x := v.store.addIndex(name, func(o Object) []string { return of(typed[T](o)) })
	v.mu.Lock()
	defer v.mu.Unlock()
	v.own[name] = x
}

func (v *view[T]) OnChange(f func(old, new T)) {
	v.store.onChange(func(old, new Object) { f(typed[T](old), typed[T](new)) })
}

func (v *view[T]) Synced() <-chan struct{} { return v.store.synced }

// Saw tells whether a cache has taken in the write that gave resourceVersion: a loop that has just written waits for it before it judges by the
// cache again. It relies on resourceVersions being ordered numbers, as the API guarantees since 1.35 (KEP-5504); it is true for any that is no number.
func Saw[T Object](c Cache[T], resourceVersion string) bool {
	v, ok := c.(*view[T])
	n, err := strconv.ParseUint(resourceVersion, 10, 64)
	return !ok || err != nil || v.store.seen.Load() >= n
}

// Newest picks the state that an OnChange handler should look at: new or, for a removal, old.
func Newest[T Object](old, new T) T {
	var none T
	if any(new) == any(none) {
		return old
	}
	return new
}
