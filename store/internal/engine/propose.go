package engine

import (
	"fmt"

	"github.com/yare-project/yare/store"
)

// proposal is a key's newest proposed state where that isn't visible yet. A key that is proposed to go has exists false and the
// revision of its delete.
type proposal struct {
	item   store.Item
	exists bool
}

// ref names a key of a table.
type ref struct {
	table *table
	key   string
}

// propose checks the writes, stamps them and adds them to the open batch, all or nothing.
func (e *Engine) propose(writes []store.Write) (*batch, []change, store.Revision, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closing {
		return nil, nil, 0, store.ErrClosed
	}
	s := staging{engine: e, rev: e.proposed}
	for i := range writes {
		if err := s.stage(&writes[i], len(writes) > 1); err != nil {
			return nil, nil, 0, err
		}
	}
	for i := range s.changes {
		c := &s.changes[i]
		c.table.pending[c.key] = c.proposal()
	}
	e.proposed = s.rev
	b := e.open
	b.add(s.changes, s.rev)
	e.work.Signal()
	return b, s.changes, s.rev, nil
}

func (c *change) proposal() proposal {
	return proposal{item: store.Item{Key: c.key, Value: c.value, Revision: c.rev}, exists: !c.delete}
}

// staging holds one commit's changes until all of its writes are known to hold, so that a refusal, or a panic in a caller's Make,
// leaves nothing behind.
type staging struct {
	engine  *Engine
	rev     store.Revision
	changes []change
	index   map[ref]int // position in changes; only for commits of several writes
}

func (s *staging) stage(w *store.Write, several bool) error {
	t, ok := w.Table.(*table)
	if !ok || t.engine != s.engine {
		return fmt.Errorf("store: a write of %q names a table of another store", w.Key)
	}
	current, exists := s.newest(t, w.Key)
	if !w.Expect.Holds(current, exists) {
		if !exists {
			current = store.Item{}
		}
		return &store.ConflictError{Table: t.cfg.Name, Key: w.Key, Expect: w.Expect, Current: current, Exists: exists}
	}
	if w.Delete && !exists {
		return nil
	}
	c := change{table: t, key: w.Key, rev: s.rev + 1, delete: w.Delete}
	if w.Make != nil {
		c.value = w.Make(c.rev)
	}
	if c.value == nil && w.Delete {
		c.value = current.Value
	}
	if c.value == nil {
		return fmt.Errorf("store: %s %q: the write makes no value", t.cfg.Name, w.Key)
	}
	s.rev++
	if several {
		if s.index == nil {
			s.index = map[ref]int{}
		}
		s.index[ref{t, w.Key}] = len(s.changes)
	}
	s.changes = append(s.changes, c)
	return nil
}

// newest is the state that a write of this commit is checked against. Engine.mu is held.
func (s *staging) newest(t *table, key string) (store.Item, bool) {
	if i, ok := s.index[ref{t, key}]; ok {
		p := s.changes[i].proposal()
		return p.item, p.exists
	}
	return t.newest(key)
}
