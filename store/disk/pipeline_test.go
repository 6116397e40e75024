package disk_test

import (
	"context"
	"errors"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/yare-project/yare/store"
	"github.com/yare-project/yare/store/storetest"
)

// TestWhileSyncing stops the disk in the midst of a sync, and looks at what is proposed and what is visible in the meantime.
func TestWhileSyncing(t *testing.T) {
	f := openFaulty(t)
	defer f.store.Close()
	seq := f.lt.seq
	first := storetest.Commit(t, f.store, storetest.Put(seq, "x", store.Absent(), "1"))

	syncs := make(chan chan error) // each log sync waits for an answer here
	f.fs.refuse(func(o operation) error {
		if !o.log() || o.name != "sync" {
			return nil
		}
		answer := make(chan error)
		syncs <- answer
		return <-answer
	})
	second := commitLater(f.store, storetest.Put(seq, "x", store.At(first), "2"))
	sync := <-syncs
	proposed, _ := seq.Proposed("x")
	if it, _ := seq.Get("x"); it.Revision != first || proposed.Revision <= first {
		t.Errorf("while syncing, revision %d is visible and %d proposed; %d is on disk", it.Revision, proposed.Revision, first)
	}
	third := commitLater(f.store, storetest.Put(seq, "x", store.At(proposed.Revision), "3"))
	relaxed := commitLater(f.store, storetest.Put(f.lt.relaxed, "x", store.Absent(), ""))
	waitProposed(t, seq, "x", "3")
	waitProposed(t, f.lt.relaxed, "x", "")
	if f.lt.relaxed.Len() != 0 {
		t.Error("a relaxed write is visible before the durable ones that it follows")
	}
	sync <- nil
	if got := <-second; got.err != nil || got.rev != proposed.Revision {
		t.Errorf("the second commit: %+v, want revision %d", got, proposed.Revision)
	}
	sync = <-syncs
	if it, _ := seq.Proposed("x"); it.Value.(*storetest.Note).Text != "3" {
		t.Errorf("after the second commit, %v is proposed, though the third is on its way", it)
	}
	wantRefused(t, f.store, storetest.Put(seq, "x", store.At(proposed.Revision), "lost update"))
	sync <- nil
	if got := <-third; got.err != nil {
		t.Errorf("the third commit: %v", got.err)
	}
	if got := <-relaxed; got.err != nil {
		t.Errorf("the relaxed commit: %v", got.err)
	}
	f.fs.refuse(nil)
}

type outcome struct {
	rev store.Revision
	err error
}

func commitLater(s store.Store, w store.Write) <-chan outcome {
	done := make(chan outcome, 1)
	go func() {
		rev, err := s.Commit(context.Background(), w)
		done <- outcome{rev, err}
	}()
	return done
}

func waitProposed(t *testing.T, table store.Table, key, text string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), storetest.Patience)
	defer cancel()
	for {
		if it, ok := table.Proposed(key); ok && it.Value.(*storetest.Note).Text == text {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("%q was never proposed", text)
		}
	}
}

func wantRefused(t *testing.T, s store.Store, w store.Write) {
	t.Helper()
	var conflict *store.ConflictError
	if _, err := s.Commit(context.Background(), w); !errors.As(err, &conflict) {
		t.Errorf("got %v, want a conflict", err)
	}
}

// TestUndoneWithBatch: what was proposed on top of a batch that fails goes with it.
func TestUndoneWithBatch(t *testing.T) {
	f := openFaulty(t)
	seq := f.lt.seq
	first := storetest.Commit(t, f.store, storetest.Put(seq, "x", store.Absent(), "1"))
	syncs := make(chan chan error)
	f.fs.refuse(func(o operation) error {
		if !o.log() || o.name != "sync" {
			return nil
		}
		answer := make(chan error)
		syncs <- answer
		return <-answer
	})
	second := commitLater(f.store, storetest.Put(seq, "x", store.At(first), "2"))
	sync := <-syncs
	proposed, _ := seq.Proposed("x")
	third := commitLater(f.store, storetest.Put(seq, "x", store.At(proposed.Revision), "3"))
	waitProposed(t, seq, "x", "3")
	f.fs.refuse(nil)
	sync <- syscall.EIO
	for _, done := range []<-chan outcome{second, third} {
		if got := <-done; !errors.Is(got.err, syscall.EIO) {
			t.Errorf("a commit on a failed batch: %+v", got)
		}
	}
	if it, _ := seq.Proposed("x"); it.Revision != first {
		t.Errorf("after the failure, revision %d is proposed, want %d", it.Revision, first)
	}
	f.wait()
	storetest.Commit(t, f.store, storetest.Put(seq, "y", store.Absent(), "other"))
	want := f.contents(t)
	f.reopen(t)
	defer f.store.Close()
	if diff := cmp.Diff(want, f.contents(t)); diff != "" {
		t.Errorf("the refused writes came back (-visible +disk):\n%s", diff)
	}
}

// TestRelaxedSurvivesFailure: a relaxed write that was acknowledged, and then lost by a failing disk, is written again.
func TestRelaxedSurvivesFailure(t *testing.T) {
	f := openFaulty(t)
	storetest.Commit(t, f.store, storetest.Put(f.lt.seq, "x", store.Absent(), "1"))
	storetest.Commit(t, f.store, storetest.Put(f.lt.relaxed, "gone", store.Absent(), ""))
	storetest.Commit(t, f.store, storetest.Put(f.lt.seq, "x", store.Any(), "2"))
	var failing atomic.Bool
	failing.Store(true)
	f.fs.refuse(func(o operation) error {
		if failing.Load() && o.log() && o.name == "write" {
			return syscall.EIO
		}
		return nil
	})
	storetest.Commit(t, f.store, storetest.Put(f.lt.relaxed, "x", store.Absent(), "seen"), storetest.Remove(f.lt.relaxed, "gone", store.Any()))
	if _, err := f.store.Commit(context.Background(), storetest.Put(f.lt.seq, "y", store.Absent(), "1")); err == nil {
		// The database may have been found failed before this write, and opened anew with a disk that works for other files.
		t.Log("the store had recovered before the write")
	}
	failing.Store(false)
	f.wait()
	storetest.Commit(t, f.store, storetest.Put(f.lt.seq, "z", store.Absent(), "1"))
	want := f.contents(t)
	f.reopen(t)
	defer f.store.Close()
	if diff := cmp.Diff(want, f.contents(t)); diff != "" {
		t.Errorf("(-visible +disk):\n%s", diff)
	}
}

// TestCloseWhileBroken: Close mends what it can, and says so when it can't.
func TestCloseWhileBroken(t *testing.T) {
	for name, heals := range map[string]bool{"healed": true, "still broken": false} {
		t.Run(name, func(t *testing.T) {
			f := openFaulty(t)
			storetest.Commit(t, f.store, storetest.Put(f.lt.seq, "x", store.Absent(), "1"))
			f.fs.refuse(func(operation) error { return syscall.EIO })
			if _, err := f.store.Commit(context.Background(), storetest.Put(f.lt.seq, "x", store.Any(), "2")); !errors.Is(err, syscall.EIO) {
				t.Errorf("Commit: %v", err)
			}
			want := f.contents(t)
			revision := f.store.Revision()
			if heals {
				f.fs.refuse(nil)
				f.wait()
			}
			if err := f.store.Close(); heals != (err == nil) {
				t.Errorf("Close: %v", err)
			}
			f.fs.refuse(nil)
			f.open(t)
			defer f.store.Close()
			if fresh := storetest.Commit(t, f.store, storetest.Put(f.lt.seq, "fresh", store.Absent(), "")); fresh <= revision {
				t.Errorf("revision %d was given out again", fresh)
			}
			storetest.Commit(t, f.store, storetest.Remove(f.lt.seq, "fresh", store.Any()))
			if diff := cmp.Diff(want, f.contents(t)); heals && diff != "" {
				t.Errorf("(-visible +disk):\n%s", diff)
			}
		})
	}
}
