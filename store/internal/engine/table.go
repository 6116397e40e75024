package engine

import (
	"context"
	"sync"

	"github.com/yare-project/yare/store"
)

// table implements store.Table.
type table struct {
	engine *Engine
	id     int
	cfg    store.TableConfig

	pending map[string]proposal // guarded by Engine.mu

	// The publisher's own: guarded by Engine.publish.
	work  *tree
	ring  ring
	fresh int // events since the last freeze
	sums  fingerprints

	copying sync.Mutex // held while a published tree is copied, which marks the original
}

var _ store.Table = (*table)(nil)

func (t *table) state() *state { return t.engine.world.Load().states[t.id] }

// newest is the proposed state. Engine.mu is held.
func (t *table) newest(key string) (store.Item, bool) {
	if p, ok := t.pending[key]; ok {
		return p.item, p.exists
	}
	return t.state().get(key)
}

// apply adds a change to the state that freeze publishes.
func (t *table) apply(c *change) {
	prev, existed := t.work.Get(c.key)
	ev := store.Event{Revision: c.rev, Key: c.key, Value: c.value, Deleted: c.delete}
	if existed {
		ev.Prev, ev.PrevRevision = prev.value, prev.revision
		t.sums.check(t, c.key, prev)
	}
	en := newEntry(c.value, c.rev)
	if c.delete {
		t.work.Delete(c.key)
	} else {
		t.work.Set(c.key, en)
	}
	t.sums.note(t, c.key, en)
	t.ring.add(ev)
	t.fresh++
}

func (t *table) freeze() *state {
	t.ring.trim(t.fresh, func(ev store.Event) { t.sums.drop(t, ev) })
	t.fresh = 0
	return &state{tree: t.work.Copy(), events: t.ring.events, floor: t.ring.floor, next: make(chan struct{})}
}

func (t *table) Name() string { return t.cfg.Name }

func (t *table) Get(key string) (store.Item, bool) { return t.state().get(key) }

func (t *table) Len() int { return t.state().tree.Len() }

func (t *table) Proposed(key string) (store.Item, bool) {
	t.engine.mu.Lock()
	defer t.engine.mu.Unlock()
	item, exists := t.newest(key)
	if !exists {
		return store.Item{}, false
	}
	return item, true
}

func (t *table) WaitFor(ctx context.Context, rev store.Revision) error {
	for {
		w := t.engine.world.Load()
		if w.revision >= rev {
			return nil
		}
		select {
		case <-w.next:
		case <-t.engine.closed:
			return store.ErrClosed
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
