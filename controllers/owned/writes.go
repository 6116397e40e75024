package owned

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/yare-project/yare/client"
)

// Recheck is when a pass that waits for its own writes looks again even if no change woke it, as after a cache had to list anew.
const Recheck = 5 * time.Second

// Writes remembers what a loop wrote for each key until its cache shows it, so that the next pass does not do it again. It is safe for concurrent use.
type Writes[T client.Object] struct {
	cache client.Cache[T]
	mu    sync.Mutex
	byKey map[types.NamespacedName]*pending
}

type pending struct {
	revisions []string
	deleted   map[types.UID]types.NamespacedName
}

// NewWrites remembers writes that cache will show.
func NewWrites[T client.Object](cache client.Cache[T]) *Writes[T] {
	return &Writes[T]{cache: cache, byKey: map[types.NamespacedName]*pending{}}
}

func (w *Writes[T]) of(key types.NamespacedName) *pending {
	p := w.byKey[key]
	if p == nil {
		p = &pending{deleted: map[types.UID]types.NamespacedName{}}
		w.byKey[key] = p
	}
	return p
}

// Wrote notes that a create or update for key gave obj.
func (w *Writes[T]) Wrote(key types.NamespacedName, obj T) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.of(key)
	p.revisions = append(p.revisions, obj.GetResourceVersion())
}

// Deleted notes that a delete of obj for key was accepted.
func (w *Writes[T]) Deleted(key types.NamespacedName, obj T) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.of(key).deleted[obj.GetUID()] = types.NamespacedName{Namespace: obj.GetNamespace(), Name: obj.GetName()}
}

// Forget drops what is noted for a key.
func (w *Writes[T]) Forget(key types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.byKey, key)
}

// Seen tells whether the cache shows every write for key. The change that makes it true wakes the key, if the loop listens to its children.
func (w *Writes[T]) Seen(key types.NamespacedName) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.byKey[key]
	if p == nil {
		return true
	}
	for len(p.revisions) > 0 {
		if !client.Saw(w.cache, p.revisions[0]) {
			return false
		}
		p.revisions = p.revisions[1:]
	}
	for uid, name := range p.deleted {
		if o, ok := w.cache.Get(name.Namespace, name.Name); ok && o.GetUID() == uid && o.GetDeletionTimestamp() == nil {
			return false
		}
		delete(p.deleted, uid)
	}
	delete(w.byKey, key)
	return true
}
