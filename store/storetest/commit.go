package storetest

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/yare-project/yare/store"
)

func testCommit(t *testing.T, open Opener) {
	t.Run("RevisionsGrow", func(t *testing.T) {
		s := Start(t, open)
		a, b := Table(t, s, "a"), Table(t, s, "b")
		r1 := Commit(t, s, Put(a, "x", store.Absent(), "1"))
		r2 := Commit(t, s, Put(b, "x", store.Absent(), "1"), Put(a, "y", store.Absent(), "1"))
		r3 := Commit(t, s, Remove(a, "x", store.At(r1)))
		if r1 == 0 || r2 < r1+2 || r3 < r2+1 {
			t.Errorf("revisions %d, %d (two writes), %d do not grow by one per write", r1, r2, r3)
		}
		if got := s.Revision(); got != r3 {
			t.Errorf("Revision() = %d after a commit at %d", got, r3)
		}
	})
	t.Run("Expectations", func(t *testing.T) {
		s := Start(t, open)
		a := Table(t, s, "a")
		r1 := Commit(t, s, Put(a, "x", store.Absent(), "1"))
		r2 := Commit(t, s, Put(a, "x", store.At(r1), "2"))
		r3 := Commit(t, s, Put(a, "x", store.Any(), "3"))
		Commit(t, s, Put(a, "new", store.Any(), "1"))
		for name, w := range map[string]store.Write{
			"absent, but it exists":       Put(a, "x", store.Absent(), "no"),
			"at an older revision":        Put(a, "x", store.At(r2), "no"),
			"delete at older revision":    Remove(a, "x", store.At(r1)),
			"at a revision, but absent":   Put(a, "gone", store.At(r1), "no"),
			"delete at one, but absent":   Remove(a, "gone", store.At(r1)),
			"no expectation at all":       {Table: a, Key: "x", Make: func(store.Revision) store.Value { return &Note{} }},
			"absent delete that does":     Remove(a, "x", store.Absent()),
			"at a revision of the future": Put(a, "x", store.At(r3+100), "no"),
		} {
			wantConflict(t, name, s, w)
		}
		if got := Contents(t, a.Snapshot())["x"]; got != (State{Rev: r3, Text: "3"}) {
			t.Errorf("refused writes left %v", got)
		}
	})
	t.Run("AllOrNothing", func(t *testing.T) {
		s := Start(t, open)
		a, b := Table(t, s, "a"), Table(t, s, "b")
		Commit(t, s, Put(b, "there", store.Absent(), "old"))
		before := s.Revision()
		wantConflict(t, "second of three", s, Put(a, "x", store.Absent(), "1"), Put(b, "there", store.Absent(), "2"), Put(a, "y", store.Absent(), "3"))
		if a.Len() != 0 || s.Revision() != before {
			t.Errorf("a refused commit left %d keys and revision %d (was %d)", a.Len(), s.Revision(), before)
		}
		if _, ok := a.Proposed("x"); ok {
			t.Error("a refused commit is still proposed")
		}
		Commit(t, s, Put(a, "x", store.Absent(), "1"))
	})
	t.Run("SameKeyTwice", func(t *testing.T) {
		s := Start(t, open)
		a := Table(t, s, "a")
		w := watch(t, a, 0)
		rev := Commit(t, s, Put(a, "x", store.Absent(), "1"), Put(a, "x", store.Any(), "2"), Remove(a, "x", store.Any()), Put(a, "x", store.Absent(), "3"))
		want := []Change{
			{Rev: rev - 3, Key: "x", Text: "1"},
			{Rev: rev - 2, Key: "x", Text: "2", Prev: State{rev - 3, "1"}},
			{Rev: rev - 1, Key: "x", Text: "2", Prev: State{rev - 2, "2"}, Deleted: true},
			{Rev: rev, Key: "x", Text: "3"},
		}
		if diff := cmp.Diff(want, changes(next(t, w))); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
	})
	t.Run("DeleteOfNothing", func(t *testing.T) {
		s := Start(t, open)
		a := Table(t, s, "a")
		before := Commit(t, s, Put(a, "x", store.Absent(), "1"))
		if rev := Commit(t, s, Remove(a, "gone", store.Any())); rev != before || s.Revision() != before {
			t.Errorf("deleting nothing gave revision %d and made %d visible; it was %d", rev, s.Revision(), before)
		}
		if rev := Commit(t, s); rev != before {
			t.Errorf("an empty commit gave revision %d, want %d", rev, before)
		}
	})
	t.Run("LastStateOfDelete", func(t *testing.T) {
		s := Start(t, open)
		a := Table(t, s, "a")
		r1 := Commit(t, s, Put(a, "x", store.Absent(), "1"))
		gone := Put(a, "x", store.At(r1), "farewell")
		gone.Delete = true
		w := watch(t, a, r1)
		r2 := Commit(t, s, gone)
		want := []Change{{Rev: r2, Key: "x", Text: "farewell", Prev: State{r1, "1"}, Deleted: true}}
		if diff := cmp.Diff(want, changes(next(t, w))); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
		if _, ok := a.Get("x"); ok || a.Len() != 0 {
			t.Error("a deleted key is still there")
		}
	})
	t.Run("WithoutValue", func(t *testing.T) {
		s := Start(t, open)
		a := Table(t, s, "a")
		for name, make := range map[string]func(store.Revision) store.Value{"no Make": nil, "nil": func(store.Revision) store.Value { return nil }} {
			if _, err := s.Commit(context.Background(), store.Write{Table: a, Key: "x", Expect: store.Any(), Make: make}); err == nil {
				t.Errorf("%s: a write without a value was accepted", name)
			}
		}
	})
	t.Run("TableOfAnotherStore", func(t *testing.T) {
		s, other := Start(t, open), Start(t, open)
		if _, err := s.Commit(context.Background(), Put(Table(t, other, "a"), "x", store.Any(), "1")); err == nil {
			t.Error("a write to another store's table was accepted")
		}
		if _, err := s.Commit(context.Background(), Put(nil, "x", store.Any(), "1")); err == nil {
			t.Error("a write to no table was accepted")
		}
	})
	t.Run("CancelledBefore", func(t *testing.T) {
		s := Start(t, open)
		a := Table(t, s, "a")
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_, err := s.Commit(ctx, Put(a, "x", store.Any(), "1"))
		wantError(t, "Commit", err, context.Canceled)
		Commit(t, s, Put(a, "x", store.Absent(), "1"))
	})
	t.Run("PanicInMake", func(t *testing.T) {
		s := Start(t, open)
		a := Table(t, s, "a")
		func() {
			defer func() { _ = recover() }()
			_, _ = s.Commit(context.Background(), Put(a, "x", store.Any(), "1"),
				store.Write{Table: a, Key: "y", Expect: store.Any(), Make: func(store.Revision) store.Value { panic("a caller's mistake") }})
		}()
		Commit(t, s, Put(a, "x", store.Absent(), "1"))
	})
	t.Run("ReadYourWrite", func(t *testing.T) {
		s := Start(t, open)
		a := TableWith(t, s, store.TableConfig{Name: "a", Durability: store.Relaxed})
		for i := range 100 {
			rev := Commit(t, s, Put(a, "x", store.Any(), string(rune('a'+i%26))))
			if it, ok := a.Get("x"); !ok || it.Revision != rev {
				t.Fatalf("Get after a commit at %d gave %v, %v", rev, it, ok)
			}
			if it, ok := a.Proposed("x"); !ok || it.Revision != rev {
				t.Fatalf("Proposed after a commit at %d gave %v, %v", rev, it, ok)
			}
		}
	})
}

// wantConflict wants a refusal that tells the truth about the newest state.
func wantConflict(t *testing.T, name string, s store.Store, writes ...store.Write) {
	t.Helper()
	_, err := s.Commit(context.Background(), writes...)
	var conflict *store.ConflictError
	if !errors.As(err, &conflict) {
		t.Errorf("%s: got error %v, want a conflict", name, err)
		return
	}
	for _, w := range writes {
		if w.Key != conflict.Key || w.Table.Name() != conflict.Table {
			continue
		}
		current, exists := w.Table.Proposed(w.Key)
		if current != conflict.Current || exists != conflict.Exists {
			t.Errorf("%s: the conflict says %v, %v; the state is %v, %v", name, conflict.Current, conflict.Exists, current, exists)
		}
		return
	}
	t.Errorf("%s: the conflict names %s %q, which was not written", name, conflict.Table, conflict.Key)
}
