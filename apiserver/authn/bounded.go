package authn

import "sync"

// bounded is a map with a limited number of entries: two generations, of which the older is dropped when the younger is full.
// What is asked for often stays.
type bounded[K comparable, V any] struct {
	mu         sync.Mutex
	half       int
	young, old map[K]V
}

func newBounded[K comparable, V any](limit int) *bounded[K, V] {
	return &bounded[K, V]{half: max(1, limit/2), young: map[K]V{}}
}

func (b *bounded[K, V]) get(k K) (V, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if v, ok := b.young[k]; ok {
		return v, true
	}
	v, ok := b.old[k]
	if ok {
		b.add(k, v)
	}
	return v, ok
}

func (b *bounded[K, V]) put(k K, v V) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.add(k, v)
}

func (b *bounded[K, V]) add(k K, v V) {
	if len(b.young) >= b.half {
		b.old, b.young = b.young, make(map[K]V, b.half)
	}
	b.young[k] = v
}
