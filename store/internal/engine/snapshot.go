package engine

import (
	"fmt"
	"sort"
	"strings"
	"unsafe"

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
	from = max(prefix, from)
	last, ok := s.last(prefix)
	if !ok || last < from {
		return
	}
	// Keys are told apart by where they are: reading thousands of them for their prefix would take longer than all the rest.
	end := unsafe.StringData(last)
	s.tree.Ascend(from, func(key string, en entry) bool {
		return yield(en.item(key)) && unsafe.StringData(key) != end
	})
}

// last is the last key that begins with a prefix.
func (s *snapshot) last(prefix string) (key string, ok bool) {
	found := func(k string, _ entry) bool {
		key, ok = k, strings.HasPrefix(k, prefix)
		return !ok && k > prefix // the key that behind gives need not be one
	}
	if pivot, bounded := behind(prefix); bounded {
		s.tree.Descend(pivot, found)
	} else {
		s.tree.Reverse(found)
	}
	return key, ok
}

// behind is the first string after all that begin with a prefix. false: there is none.
func behind(prefix string) (string, bool) {
	for i := len(prefix) - 1; i >= 0; i-- {
		if c := prefix[i]; c < 0xff {
			return prefix[:i] + string([]byte{c + 1}), true
		}
	}
	return "", false
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
			past.Set(ev.Key, newEntry(ev.Prev, ev.PrevRevision))
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
