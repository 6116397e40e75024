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

func testWatches(t *testing.T, open Opener) {
	t.Run("FromAnyRevision", func(t *testing.T) {
		s := Start(t, open)
		a, b := Table(t, s, "a"), Table(t, s, "b")
		var want []Change
		for i := range 30 {
			text := fmt.Sprint(i)
			rev := Commit(t, s, Put(a, text, store.Absent(), text), Put(b, text, store.Absent(), text))
			want = append(want, Change{Rev: rev - 1, Key: text, Text: text})
		}
		for i := range want {
			w := watch(t, a, want[i].Rev)
			if i == len(want)-1 {
				rev := Commit(t, s, Remove(a, "0", store.Any()))
				want = append(want, Change{Rev: rev, Key: "0", Text: "0", Prev: State{want[0].Rev, "0"}, Deleted: true})
			}
			if diff := cmp.Diff(want[i+1:], changes(next(t, w))); diff != "" {
				t.Errorf("watch from %d (-want +got):\n%s", want[i].Rev, diff)
			}
		}
	})
	t.Run("Wakes", func(t *testing.T) {
		s := Start(t, open)
		a := Table(t, s, "a")
		const watchers, writes = 200, 20
		var wg sync.WaitGroup
		failed := make(chan error, watchers)
		for range watchers {
			w := watch(t, a, 0)
			wg.Go(func() { failed <- readN(w, writes) })
		}
		for i := range writes {
			Commit(t, s, Put(a, fmt.Sprint(i), store.Absent(), ""))
		}
		wg.Wait()
		for range watchers {
			if err := <-failed; err != nil {
				t.Fatal(err)
			}
		}
	})
	t.Run("Bounds", func(t *testing.T) {
		s := Start(t, open)
		a := Table(t, s, "a")
		_, err := a.Watch(s.Revision() + 1)
		wantError(t, "Watch the future", err, store.ErrFuture)
	})
	t.Run("FallsBehind", func(t *testing.T) {
		s := Start(t, open)
		a, quiet := TableWith(t, s, store.TableConfig{Name: "a", RingBytes: 8 << 10}), Table(t, s, "quiet")
		slow, still := watch(t, a, 0), watch(t, quiet, 0)
		for i := range 100 {
			Commit(t, s, Put(a, "x", store.Any(), fmt.Sprintf("%0200d", i)))
		}
		_, err := slow.Next(context.Background())
		wantError(t, "Next of a watch that fell out", err, store.ErrCompacted)
		_, err = a.Watch(0)
		wantError(t, "Watch of what is dropped", err, store.ErrCompacted)
		w := watch(t, a, s.Revision()-1)
		if got := changes(next(t, w)); len(got) != 1 {
			t.Errorf("a watch of what is retained gave %v", got)
		}
		rev := Commit(t, s, Put(quiet, "x", store.Absent(), "1"))
		if diff := cmp.Diff([]Change{{Rev: rev, Key: "x", Text: "1"}}, changes(next(t, still))); diff != "" {
			t.Errorf("a watch of a quiet table (-want +got):\n%s", diff)
		}
	})
	t.Run("OneLargeCommit", func(t *testing.T) {
		s := Start(t, open)
		a := TableWith(t, s, store.TableConfig{Name: "a", RingBytes: 8 << 10})
		w := watch(t, a, 0)
		var writes []store.Write
		for i := range 100 {
			writes = append(writes, Put(a, fmt.Sprint(i), store.Absent(), strings.Repeat("x", 1<<10)))
		}
		Commit(t, s, writes...)
		if got := next(t, w); len(got) != 100 {
			t.Errorf("a watch that had read everything got %d of the 100 events of a commit larger than the ring", len(got))
		}
	})
	t.Run("Progress", func(t *testing.T) {
		s := Start(t, open)
		a, b := Table(t, s, "a"), Table(t, s, "b")
		w := watch(t, a, 0)
		rev := Commit(t, s, Put(b, "x", store.Absent(), "1"))
		if got := w.Progress(); got != rev {
			t.Errorf("Progress is %d after changes elsewhere up to %d", got, rev)
		}
		mine := Commit(t, s, Put(a, "x", store.Absent(), "1"))
		if got := w.Progress(); got >= mine {
			t.Errorf("Progress is %d while the event of %d was not read", got, mine)
		}
		next(t, w)
		if got := w.Progress(); got != mine {
			t.Errorf("Progress is %d after reading the event of %d", got, mine)
		}
	})
	t.Run("Ends", func(t *testing.T) {
		s := Start(t, open)
		a := Table(t, s, "a")
		w := watch(t, a, 0)
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { _, err := w.Next(ctx); done <- err }()
		cancel()
		wantError(t, "Next when its context ends", <-done, context.Canceled)
		go func() { _, err := w.Next(context.Background()); done <- err }()
		w.Close()
		wantError(t, "Next when the watch closes", <-done, store.ErrClosed)
		w.Close()
	})
}

// readN reads until it has n events, in order.
func readN(w store.Watch, n int) error {
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	var last store.Revision
	for got := 0; got < n; {
		events, err := w.Next(ctx)
		if err != nil {
			return err
		}
		for _, ev := range events {
			if ev.Revision <= last {
				return fmt.Errorf("event %d came after %d", ev.Revision, last)
			}
			last = ev.Revision
		}
		if got += len(events); got > n {
			return fmt.Errorf("got %d events, want %d", got, n)
		}
	}
	return nil
}

func testClose(t *testing.T, open Opener) {
	s, _ := open(t)
	a := Table(t, s, "a")
	Commit(t, s, Put(a, "x", store.Absent(), "1"))
	w := watch(t, a, s.Revision())
	ended := make(chan error, 2)
	go func() { _, err := w.Next(context.Background()); ended <- err }()
	go func() { ended <- a.WaitFor(context.Background(), s.Revision()+1000) }()
	var writers sync.WaitGroup
	acknowledged := make([]store.Revision, 8)
	for i := range acknowledged {
		writers.Go(func() {
			rev, err := s.Commit(context.Background(), Put(a, fmt.Sprint(i), store.Absent(), ""))
			if err == nil {
				acknowledged[i] = rev
			} else if !errors.Is(err, store.ErrClosed) {
				t.Errorf("Commit while closing: %v", err)
			}
		})
	}
	if err := s.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
	writers.Wait()
	for i, rev := range acknowledged {
		if it, ok := a.Get(fmt.Sprint(i)); rev != 0 && (!ok || it.Revision != rev) {
			t.Errorf("a write acknowledged at %d while closing is not there: %v", rev, it)
		}
	}
	// Next may first have returned what the writers did.
	for range 2 {
		if err := <-ended; err != nil {
			wantError(t, "what waited when the store closed", err, store.ErrClosed)
		}
	}
	_, err := s.Commit(context.Background(), Put(a, "y", store.Any(), "1"))
	wantError(t, "Commit after Close", err, store.ErrClosed)
	_, err = a.Watch(s.Revision())
	wantError(t, "Watch after Close", err, store.ErrClosed)
	_, err = s.Table(store.TableConfig{Name: "new", Decode: DecodeNote})
	wantError(t, "Table after Close", err, store.ErrClosed)
	if _, ok := a.Get("x"); !ok {
		t.Error("reads of what was open end with Close")
	}
}
