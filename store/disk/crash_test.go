package disk_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/yare-project/yare/store"
	"github.com/yare-project/yare/store/disk"
	"github.com/yare-project/yare/store/storetest"
)

// crash is what a disk would hold if the power failed at one moment, and what had been promised by then.
type crash struct {
	op      operation
	disk    *vfs.MemFS
	before  map[int]progress
	after   map[int]progress
	visible store.Revision
}

// TestPowerCut runs writers on a disk that loses, at each sync, everything that wasn't synced (or a random part of it), and opens
// what is left.
func TestPowerCut(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	crashes := runUntilCrashes(t, seed)
	t.Logf("%d crashes", len(crashes))
	if len(crashes) < 100 {
		t.Errorf("only %d crashes were tried", len(crashes))
	}
	for _, c := range crashes {
		verifyCrash(t, c)
		if t.Failed() {
			t.Fatalf("seed %d, crash around operation %d: %s %s", seed, c.op.number, c.op.name, c.op.file)
		}
	}
}

// runUntilCrashes runs the ledger workload, closes and opens in its midst, and photographs the disk before and after every sync.
func runUntilCrashes(t *testing.T, seed uint64) []crash {
	memory := vfs.NewCrashableMem()
	fs := &brittle{FS: memory}
	var (
		l       ledger
		current atomic.Pointer[store.Store]
		mu      sync.Mutex
		crashes []crash
		random  = rand.New(rand.NewPCG(seed, 1))
	)
	photograph := func(op operation) {
		if op.name != "sync" {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		c := crash{op: op, before: l.copy()}
		if s := current.Load(); s != nil {
			c.visible = (*s).Revision()
		}
		cfg := vfs.CrashCloneCfg{}
		if random.IntN(2) == 0 {
			cfg = vfs.CrashCloneCfg{UnsyncedDataPercent: random.IntN(101), RNG: random}
		}
		c.disk = memory.CrashClone(cfg)
		c.after = l.copy()
		crashes = append(crashes, c)
	}
	fs.before = func(op operation) error { photograph(op); return nil }
	fs.after = photograph

	const writers, runs, count = 3, 3, 20
	for run := range runs {
		s := openDisk(t, disk.Config{Dir: "data", FS: fs, MemTableBytes: 64 << 10})
		current.Store(&s)
		lt := openLedgerTables(t, s)
		var wg sync.WaitGroup
		for writer := range writers {
			wg.Go(func() {
				if err := l.run(context.Background(), s, lt, writer, run*count, count); err != nil {
					t.Errorf("seed %d: %v", seed, err)
				}
			})
		}
		wg.Wait()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return crashes
}

func verifyCrash(t *testing.T, c crash) {
	s, err := disk.Open(disk.Config{Dir: "data", FS: c.disk, MemTableBytes: 64 << 10})
	if err != nil {
		t.Errorf("the store does not open after a crash: %v", err)
		return
	}
	defer s.Close()
	verifyLedger(t, s, c.before, c.after)
	fresh := storetest.Commit(t, s, storetest.Put(storetest.Table(t, s, "seq"), "fresh", store.Any(), ""))
	if fresh <= c.visible {
		t.Errorf("revision %d was given out after the crash, but %d had been visible before it", fresh, c.visible)
	}
}

// TestRelaxedAfterCrash: a reader may have seen relaxed writes that the crash took, so watches from before it must list again.
func TestRelaxedAfterCrash(t *testing.T) {
	memory := vfs.NewCrashableMem()
	s := openDisk(t, disk.Config{Dir: "data", FS: memory})
	defer s.Close()
	lt := openLedgerTables(t, s)
	storetest.Commit(t, s, storetest.Put(lt.seq, "x", store.Any(), ""))
	seen := storetest.Commit(t, s, storetest.Put(lt.relaxed, "x", store.Any(), ""))
	crashed := memory.CrashClone(vfs.CrashCloneCfg{})

	after := openDisk(t, disk.Config{Dir: "data", FS: crashed})
	defer after.Close()
	lt = openLedgerTables(t, after)
	if _, err := lt.relaxed.Watch(seen); err == nil {
		t.Error("a watch goes on as if nothing had been lost")
	}
	if _, err := lt.seq.Watch(seen); err != nil {
		t.Errorf("a watch of a durable table, which lost nothing, does not go on: %v", err)
	}
}
