package storetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/yare-project/yare/store"
)

func testTables(t *testing.T, open Opener) {
	t.Run("OneTablePerName", func(t *testing.T) {
		s := Start(t, open)
		var wg sync.WaitGroup
		got := make([]store.Table, 8)
		for i := range got {
			wg.Go(func() { got[i], _ = s.Table(store.TableConfig{Name: "a", Decode: DecodeNote}) })
		}
		wg.Wait()
		for _, table := range got {
			if table == nil || table != got[0] {
				t.Fatalf("opening one name in parallel gave %v", got)
			}
		}
		if got[0].Name() != "a" {
			t.Errorf("Name() = %q", got[0].Name())
		}
	})
	t.Run("BadNames", func(t *testing.T) {
		s := Start(t, open)
		for _, name := range []string{"", "a\x00b"} {
			if _, err := s.Table(store.TableConfig{Name: name, Decode: DecodeNote}); err == nil {
				t.Errorf("the name %q was accepted", name)
			}
		}
	})
	t.Run("NamesThatBeginAlike", func(t *testing.T) {
		s, reopen := open(t)
		names := []string{"a", "a/b", "ab", "a\x01", "b"}
		for _, name := range names {
			Commit(t, s, Put(Table(t, s, name), "k", store.Absent(), name))
		}
		if reopen != nil {
			s = reopen(t)
		}
		defer s.Close()
		for _, name := range names {
			got := Contents(t, Table(t, s, name).Snapshot())
			if len(got) != 1 || got["k"].Text != name {
				t.Errorf("table %q holds %v", name, got)
			}
		}
	})
	t.Run("OddKeysAndValues", func(t *testing.T) {
		s, reopen := open(t)
		a := Table(t, s, "a")
		want := map[string]State{}
		for _, key := range []string{"", "/", "a/b", "a\x00b", "\xff\xff", "ä"} {
			for _, text := range []string{"", strings.Repeat("x", 3<<20)} {
				want[key+"!"+text[:min(1, len(text))]] = State{Text: text}
			}
		}
		for key, state := range want {
			state.Rev = Commit(t, s, Put(a, key, store.Absent(), state.Text))
			want[key] = state
		}
		if reopen != nil {
			s = reopen(t)
			a = Table(t, s, "a")
		}
		defer s.Close()
		if got := Contents(t, a.Snapshot()); !cmp.Equal(want, got) {
			t.Error("keys and values did not come back as they were")
		}
	})
	t.Run("WaitFor", func(t *testing.T) {
		s := Start(t, open)
		a, b := Table(t, s, "a"), Table(t, s, "b")
		rev := Commit(t, s, Put(a, "x", store.Absent(), "1"))
		if err := a.WaitFor(context.Background(), rev); err != nil {
			t.Errorf("WaitFor what is there: %v", err)
		}
		done := make(chan error, 1)
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), Patience)
			defer cancel()
			done <- a.WaitFor(ctx, rev+1)
		}()
		Commit(t, s, Put(b, "x", store.Absent(), "1"))
		if err := <-done; err != nil {
			t.Errorf("WaitFor what another table brought: %v", err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		wantError(t, "WaitFor", a.WaitFor(ctx, s.Revision()+1), context.Canceled)
	})
	t.Run("Reopen", func(t *testing.T) {
		s, reopen := open(t)
		if reopen == nil {
			t.Skip("nothing survives in this backend")
		}
		testReopen(t, s, reopen)
	})
	t.Run("DecodeRefuses", func(t *testing.T) {
		s, reopen := open(t)
		if reopen == nil {
			t.Skip("nothing survives in this backend")
		}
		a := Table(t, s, "a")
		for i := range 1000 {
			Commit(t, s, Put(a, fmt.Sprintf("k%04d", i), store.Absent(), "1"))
		}
		s = reopen(t)
		defer s.Close()
		refuse := errors.New("not in this form")
		_, err := s.Table(store.TableConfig{Name: "a", Decode: func(key string, rev store.Revision, data []byte) (store.Value, error) {
			if key >= "k0300" {
				return nil, refuse
			}
			return DecodeNote(key, rev, data)
		}})
		wantError(t, "Table", err, refuse)
		if !strings.Contains(err.Error(), `"k0300"`) {
			t.Errorf("the error does not name the first key that was refused: %v", err)
		}
		if Table(t, s, "a").Len() != 1000 {
			t.Error("the table cannot be opened after a refusal")
		}
	})
}

func testReopen(t *testing.T, s store.Store, reopen func(TB) store.Store) {
	a := Table(t, s, "a")
	r := TableWith(t, s, store.TableConfig{Name: "r", Durability: store.Relaxed})
	rev := Commit(t, s, Put(a, "keep", store.Absent(), "1"), Put(a, "drop", store.Absent(), "2"))
	Commit(t, s, Put(a, "keep", store.At(rev-1), "3"))
	gone := Commit(t, s, Remove(a, "drop", store.At(rev)))
	last := Commit(t, s, Put(r, "relaxed", store.Absent(), "4"))
	want, wantRelaxed := Contents(t, a.Snapshot()), Contents(t, r.Snapshot())

	s = reopen(t)
	defer s.Close()
	if s.Revision() != last {
		t.Errorf("the store closed at revision %d and opened at %d", last, s.Revision())
	}
	a = Table(t, s, "a")
	r = TableWith(t, s, store.TableConfig{Name: "r", Durability: store.Relaxed})
	if diff := cmp.Diff(want, Contents(t, a.Snapshot())); diff != "" {
		t.Errorf("durable table (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(wantRelaxed, Contents(t, r.Snapshot())); diff != "" {
		t.Errorf("relaxed table after a close in order (-want +got):\n%s", diff)
	}
	if _, err := a.Watch(gone - 1); !errors.Is(err, store.ErrCompacted) {
		t.Errorf("a watch from before a delete that is not retained: %v, want ErrCompacted", err)
	}
	w := watch(t, a, gone) // nothing happened in this table since
	fresh := Commit(t, s, Put(a, "drop", store.Absent(), "5"))
	if fresh <= last {
		t.Errorf("revision %d was given out again (newest before was %d)", fresh, last)
	}
	if diff := cmp.Diff([]Change{{Rev: fresh, Key: "drop", Text: "5"}}, changes(next(t, w))); diff != "" {
		t.Errorf("events after opening again (-want +got):\n%s", diff)
	}
}
