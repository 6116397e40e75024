package disk_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/yare-project/yare/store"
	"github.com/yare-project/yare/store/disk"
	"github.com/yare-project/yare/store/storetest"
)

// faulty is a store on a disk that can be made to fail.
type faulty struct {
	fs    *brittle
	clock *clocktesting.FakePassiveClock
	cfg   disk.Config
	store store.Store
	lt    ledgerTables
}

func openFaulty(t *testing.T) *faulty {
	f := &faulty{fs: &brittle{FS: vfs.NewMem()}, clock: clocktesting.NewFakePassiveClock(time.Unix(0, 0))}
	f.cfg = disk.Config{Dir: "data", FS: f.fs, Clock: f.clock, MemTableBytes: 64 << 10}
	f.open(t)
	return f
}

func (f *faulty) open(t *testing.T) {
	t.Helper()
	f.store = openDisk(t, f.cfg)
	f.lt = openLedgerTables(t, f.store)
}

// reopen closes in order and opens what is on disk.
func (f *faulty) reopen(t *testing.T) {
	t.Helper()
	if err := f.store.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}
	f.open(t)
}

func (f *faulty) contents(t *testing.T) map[string]map[string]storetest.State {
	out := map[string]map[string]storetest.State{}
	for _, table := range []store.Table{f.lt.seq, f.lt.pair, f.lt.relaxed} {
		out[table.Name()] = storetest.Contents(t, table.Snapshot())
	}
	return out
}

// wait lets the pause before the next attempt to open the database pass.
func (f *faulty) wait() { f.clock.SetTime(f.clock.Now().Add(time.Minute)) }

func TestFullDisk(t *testing.T) {
	memory := vfs.NewMem()
	s := openDisk(t, disk.Config{Dir: "data", FS: memory})
	defer s.Close()
	a := storetest.Table(t, s, "a")
	rev := storetest.Commit(t, s, storetest.Put(a, "x", store.Absent(), "1"))
	memory.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 1 << 20, TotalBytes: 1 << 40})
	for range 3 {
		_, err := s.Commit(context.Background(), storetest.Put(a, "y", store.Absent(), "2"))
		if !errors.Is(err, store.ErrFull) {
			t.Fatalf("Commit on a full disk: %v", err)
		}
	}
	if got := a.Snapshot(); got.Revision() != rev || got.Len() != 1 {
		t.Errorf("refused writes show: revision %d with %d keys", got.Revision(), got.Len())
	}
	if _, err := disk.Open(disk.Config{Dir: "other", FS: memory}); !errors.Is(err, store.ErrFull) {
		t.Errorf("Open on a full disk: %v", err)
	}
	memory.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 1 << 40, TotalBytes: 1 << 40})
	storetest.Commit(t, s, storetest.Put(a, "y", store.Absent(), "2"))
}

// TestWriteFailure makes the disk fail under running writers, for several reasons, and mends it.
func TestWriteFailure(t *testing.T) {
	for name, tc := range map[string]struct {
		err   error
		hits  func(operation) bool
		wants error
	}{
		"no space for the log":      {syscall.ENOSPC, func(o operation) bool { return o.log() && o.name == "write" }, store.ErrFull},
		"no space for a new log":    {syscall.ENOSPC, func(o operation) bool { return o.log() && o.name != "write" && o.name != "sync" }, store.ErrFull},
		"no space for a table":      {syscall.ENOSPC, func(o operation) bool { return o.table() }, store.ErrFull},
		"no space at all":           {syscall.ENOSPC, func(o operation) bool { return o.name == "write" || o.name == "create" }, store.ErrFull},
		"quota":                     {syscall.EDQUOT, func(o operation) bool { return o.name == "write" }, store.ErrFull},
		"log cannot be synced":      {syscall.EIO, func(o operation) bool { return o.log() && o.name == "sync" }, syscall.EIO},
		"nothing can be written":    {syscall.EIO, func(o operation) bool { return true }, syscall.EIO},
		"manifest cannot be synced": {syscall.EIO, func(o operation) bool { return !o.log() && !o.table() && o.name == "sync" }, syscall.EIO},
	} {
		t.Run(name, func(t *testing.T) { testWriteFailure(t, tc.err, tc.hits, tc.wants) })
	}
}

func testWriteFailure(t *testing.T, fault error, hits func(operation) bool, wants error) {
	f := openFaulty(t)
	var l ledger
	if err := l.run(context.Background(), f.store, f.lt, 0, 0, 10); err != nil {
		t.Fatal(err)
	}
	f.fs.refuse(func(o operation) error {
		if hits(o) {
			return fault
		}
		return nil
	})
	ctx, cancel := context.WithTimeout(context.Background(), storetest.Patience)
	defer cancel()
	var wg sync.WaitGroup
	for writer := range 4 {
		wg.Go(func() {
			if err := l.run(ctx, f.store, f.lt, writer, l.copy()[writer].acknowledged, 1000); !errors.Is(err, wants) {
				t.Errorf("writer %d ended with %v, want %v", writer, err, wants)
			}
		})
	}
	wg.Wait()
	seen := f.contents(t)
	for range 3 {
		f.wait()
		if _, err := f.lt.write(ctx, f.store, 9, 1); !errors.Is(err, wants) {
			t.Errorf("a write while the disk still fails: %v", err)
		}
	}
	if diff := cmp.Diff(seen, f.contents(t)); diff != "" {
		t.Errorf("refused writes show (-before +after):\n%s", diff)
	}
	f.fs.refuse(nil)
	f.wait()
	for writer, p := range l.copy() {
		if err := l.run(ctx, f.store, f.lt, writer, p.acknowledged, 30); err != nil {
			t.Fatalf("the disk works again, the store does not: %v", err)
		}
	}
	seen = f.contents(t)
	f.reopen(t)
	defer f.store.Close()
	if diff := cmp.Diff(seen, f.contents(t)); diff != "" {
		t.Errorf("what is on disk is not what was visible (-visible +disk):\n%s", diff)
	}
}

// TestOneFailureAnywhere fails a single operation, each in turn, and wants the disk to end up with what was visible.
func TestOneFailureAnywhere(t *testing.T) {
	total := func() int {
		f := openFaulty(t)
		defer f.store.Close()
		start := f.fs.operations()
		var l ledger
		if err := l.run(context.Background(), f.store, f.lt, 0, 0, 60); err != nil {
			t.Fatal(err)
		}
		return f.fs.operations() - start
	}()
	for n := 1; n <= total; n += 1 + n/20 {
		oneFailure(t, n)
		if t.Failed() {
			t.Fatalf("operation %d of %d failed", n, total)
		}
	}
}

func oneFailure(t *testing.T, n int) {
	f := openFaulty(t)
	var failed atomic.Bool
	target := f.fs.operations() + n
	f.fs.refuse(func(o operation) error {
		if o.number == target && failed.CompareAndSwap(false, true) {
			return syscall.EIO
		}
		return nil
	})
	ctx, cancel := context.WithTimeout(context.Background(), storetest.Patience)
	defer cancel()
	refused := 0
	for number := 1; number <= 60; number++ {
		before := f.contents(t)
		if _, err := f.lt.write(ctx, f.store, 0, number); err == nil {
			continue
		}
		refused++
		after := f.contents(t)
		delete(before, "relaxed")
		delete(after, "relaxed") // the relaxed write that goes first may have been accepted
		if diff := cmp.Diff(before, after); diff != "" {
			t.Errorf("a refused write shows (-before +after):\n%s", diff)
		}
		f.wait()
	}
	if refused > 1 {
		t.Errorf("one failure made %d writes fail", refused)
	}
	seen := f.contents(t)
	if err := f.store.Close(); err != nil && !failed.Load() {
		t.Errorf("Close: %v", err)
	}
	f.open(t)
	defer f.store.Close()
	if diff := cmp.Diff(seen, f.contents(t)); diff != "" {
		t.Errorf("what is on disk is not what was visible (-visible +disk):\n%s", diff)
	}
}

// TestBadValue: one value that can't be encoded harms nobody but those that share its batch.
func TestBadValue(t *testing.T) {
	s := openDisk(t, disk.Config{Dir: "data", FS: vfs.NewMem()})
	defer s.Close()
	a := storetest.Table(t, s, "a")
	rev := storetest.Commit(t, s, storetest.Put(a, "x", store.Absent(), "1"))
	for _, value := range []store.Value{unencodable{}, panicking{}} {
		func() {
			defer func() { _ = recover() }()
			_, err := s.Commit(context.Background(), store.Write{Table: a, Key: "x", Expect: store.At(rev), Make: func(store.Revision) store.Value { return value }})
			if !errors.Is(err, errUnencodable) {
				t.Errorf("%T: got %v", value, err)
			}
		}()
		if it, _ := a.Get("x"); it.Revision != rev {
			t.Errorf("%T: a value that cannot be encoded became visible", value)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), storetest.Patience)
	defer cancel()
	var conflict *store.ConflictError
	_, err := s.Commit(ctx, storetest.Put(a, "x", store.At(rev), "2"))
	for errors.As(err, &conflict) && ctx.Err() == nil {
		// The write whose caller panicked is being undone by the committer.
		_, err = s.Commit(ctx, storetest.Put(a, "x", store.At(rev), "2"))
	}
	if err != nil {
		t.Error(err)
	}
}

var errUnencodable = errors.New("not encodable")

type unencodable struct{}

func (unencodable) Encode() ([]byte, error) { return nil, fmt.Errorf("why: %w", errUnencodable) }
func (unencodable) Size() int               { return 0 }

type panicking struct{ unencodable }

func (panicking) Encode() ([]byte, error) { panic("a caller's mistake") }
