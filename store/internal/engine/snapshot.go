package engine

import (
	"fmt"
	"sort"
	"strings"

	"github.com/yare-project/yare/store"
)

// snapshot implements store.Snapshot over a tree that nobody changes.
type snapshot struct {
	revision store.Revision
	state
}

func (s *snapshot) Revision() store.Revision { return s.revision }

func (s *snapshot) Get(key string) (store.Item, bool) { return s.get(key) }

func (s *snapshot) Len() int { return s.tree.Len() }

func (s *snapshot) Ascend(prefix, from string, yield func(store.Item) bool) {
	s.tree.Ascend(max(prefix, from), func(key string, en entry) bool {
		return strings.HasPrefix(key, prefix) && yield(store.Item{Key: key, Value: en.value, Revision: en.revision})
	})
}

func (t *table) Snapshot() store.Snapshot {
	w := t.engine.world.Load()
	return &snapshot{revision: w.revision, state: state{tree: w.states[t.id].tree}}
}

func (t *table) SnapshotAt(rev store.Revision) (store.Snapshot, error) {
	w := t.engine.world.Load()
	s := w.states[t.id]
	if err := w.retained(s, rev); err != nil {
		return nil, err
	}
	undo := s.events[s.after(rev):]
	if len(undo) == 0 {
		return &snapshot{revision: rev, state: state{tree: s.tree}}, nil
	}
	past := t.copyTree(s)
	for i := len(undo) - 1; i >= 0; i-- {
		if ev := &undo[i]; ev.Prev == nil {
			past.Delete(ev.Key)
		} else {
			past.Set(ev.Key, entry{value: ev.Prev, revision: ev.PrevRevision})
		}
	}
	return &snapshot{revision: rev, state: state{tree: past}}, nil
}

func (t *table) copyTree(s *state) *tree {
	t.copying.Lock()
	defer t.copying.Unlock()
	return s.tree.Copy()
}

// retained tells whether everything after rev is known.
func (w *world) retained(s *state, rev store.Revision) error {
	if rev > w.revision {
		return fmt.Errorf("%w: asked for %d, newest is %d", store.ErrFuture, rev, w.revision)
	}
	if rev < s.floor {
		return fmt.Errorf("%w: asked for %d, oldest is %d", store.ErrCompacted, rev, s.floor)
	}
	return nil
}

// after is the position of the first retained event that is newer than rev.
func (s *state) after(rev store.Revision) int {
	n := len(s.events)
	if n == 0 || s.events[n-1].Revision <= rev {
		return n
	}
	return sort.Search(n, func(i int) bool { return s.events[i].Revision > rev })
}
