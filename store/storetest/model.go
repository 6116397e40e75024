package storetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/yare-project/yare/store"
)

// testModel compares a store with a plain map through random sequences; rapid prints how to replay a failure.
func testModel(t *testing.T, open Opener) {
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(t, open)
		defer func() { _ = m.store.Close() }()
		actions := map[string]func(*rapid.T){
			"commit": m.commit, "snapshot": m.snapshotAt, "watch": m.watch, "": m.check,
		}
		if m.reopen != nil {
			actions["reopen"] = m.reopenStore
		}
		t.Repeat(actions)
	})
}

var modelTables = []string{"a", "b"}

// model is what the store should hold, with the whole past.
type model struct {
	store   store.Store
	reopen  func(TB) store.Store
	tables  map[string]store.Table
	now     map[string]map[string]State                    // by table, by key
	past    map[string]map[store.Revision]map[string]State // by table, the content after each revision that a commit ended with
	history map[string][]Change
	floor   map[string]store.Revision // by table: what may be compacted up to here
}

func newModel(t *rapid.T, open Opener) *model {
	s, reopen := open(t)
	m := &model{
		store: s, reopen: reopen,
		tables: map[string]store.Table{}, now: map[string]map[string]State{}, history: map[string][]Change{},
		past: map[string]map[store.Revision]map[string]State{}, floor: map[string]store.Revision{},
	}
	for _, name := range modelTables {
		m.tables[name] = Table(t, s, name)
		m.now[name] = map[string]State{}
		m.past[name] = map[store.Revision]map[string]State{s.Revision(): {}}
	}
	return m
}

// commit draws one to three writes, some of which expect what isn't so.
func (m *model) commit(t *rapid.T) {
	next := map[string]map[string]State{}
	for name, state := range m.now {
		next[name] = maps.Clone(state)
	}
	rev, holds := m.store.Revision(), true
	var writes []store.Write
	var events []func()
	for range rapid.IntRange(1, 3).Draw(t, "writes") {
		name := rapid.SampledFrom(modelTables).Draw(t, "table")
		key := fmt.Sprint("k", rapid.IntRange(0, 9).Draw(t, "key"))
		text := rapid.StringN(0, 8, -1).Draw(t, "text")
		current, exists := next[name][key]
		w := Put(m.tables[name], key, store.Any(), text)
		switch rapid.IntRange(0, 3).Draw(t, "expect") {
		case 0:
			w.Expect = store.Absent()
			holds = holds && !exists
		case 1:
			w.Expect = store.At(current.Rev)
			holds = holds && exists
		case 2:
			w.Expect = store.At(current.Rev + 1000)
			holds = false
		}
		w.Delete = rapid.Bool().Draw(t, "delete")
		writes = append(writes, w)
		if !holds || w.Delete && !exists {
			continue
		}
		rev++
		c := Change{Rev: rev, Key: key, Text: text, Prev: current, Deleted: w.Delete}
		events = append(events, func() { m.history[name] = append(m.history[name], c) })
		if w.Delete {
			delete(next[name], key)
		} else {
			next[name][key] = State{Rev: rev, Text: text}
		}
	}
	got, err := m.store.Commit(context.Background(), writes...)
	var conflict *store.ConflictError
	if !holds {
		if !errors.As(err, &conflict) {
			t.Fatalf("Commit: got %d, %v; want a conflict", got, err)
		}
		return
	}
	if err != nil || got != rev {
		t.Fatalf("Commit: got %d, %v; want %d", got, err, rev)
	}
	m.now = next
	for _, add := range events {
		add()
	}
	for _, name := range modelTables {
		m.past[name][rev] = next[name]
	}
}

func (m *model) check(t *rapid.T) {
	for _, name := range modelTables {
		snap := m.tables[name].Snapshot()
		if diff := cmp.Diff(m.now[name], Contents(t, snap)); diff != "" {
			t.Fatalf("table %s (-want +got):\n%s", name, diff)
		}
		if snap.Revision() != m.store.Revision() || snap.Len() != m.tables[name].Len() {
			t.Fatalf("a snapshot has revision %d and %d keys, the table %d and %d",
				snap.Revision(), snap.Len(), m.store.Revision(), m.tables[name].Len())
		}
	}
}

func (m *model) snapshotAt(t *rapid.T) {
	name := rapid.SampledFrom(modelTables).Draw(t, "table")
	rev := rapid.SampledFrom(slices.Sorted(maps.Keys(m.past[name]))).Draw(t, "revision")
	snap, err := m.tables[name].SnapshotAt(rev)
	if errors.Is(err, store.ErrCompacted) && rev < m.floor[name] {
		return
	}
	if err != nil {
		t.Fatalf("SnapshotAt(%d): %v", rev, err)
	}
	if diff := cmp.Diff(m.past[name][rev], Contents(t, snap)); diff != "" || snap.Revision() != rev {
		t.Fatalf("table %s at %d has revision %d (-want +got):\n%s", name, rev, snap.Revision(), diff)
	}
}

func (m *model) watch(t *rapid.T) {
	name := rapid.SampledFrom(modelTables).Draw(t, "table")
	rev := rapid.Uint64Range(0, m.store.Revision()).Draw(t, "revision")
	w, err := m.tables[name].Watch(rev)
	if errors.Is(err, store.ErrCompacted) && rev < m.floor[name] {
		return
	}
	if err != nil {
		t.Fatalf("Watch(%d): %v", rev, err)
	}
	defer w.Close()
	var want []Change
	for _, c := range m.history[name] {
		if c.Rev > rev {
			want = append(want, c)
		}
	}
	if len(want) == 0 {
		if w.Progress() != m.store.Revision() {
			t.Fatalf("nothing to watch from %d, but Progress is %d of %d", rev, w.Progress(), m.store.Revision())
		}
		return
	}
	if diff := cmp.Diff(want, changes(next(t, w))); diff != "" {
		t.Fatalf("table %s watched from %d (-want +got):\n%s", name, rev, diff)
	}
}

func (m *model) reopenStore(t *rapid.T) {
	before := m.store.Revision()
	m.store = m.reopen(t)
	if m.store.Revision() != before {
		t.Fatalf("closed at revision %d, opened at %d", before, m.store.Revision())
	}
	for _, name := range modelTables {
		m.tables[name] = Table(t, m.store, name)
		if h := m.history[name]; len(h) > 0 {
			m.floor[name] = h[len(h)-1].Rev
		}
	}
}
