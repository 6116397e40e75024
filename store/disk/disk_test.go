package disk_test

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/yare-project/yare/store"
	"github.com/yare-project/yare/store/disk"
	"github.com/yare-project/yare/store/storetest"
)

func TestStore(t *testing.T) {
	storetest.Run(t, func(t storetest.TB) (store.Store, func(storetest.TB) store.Store) {
		return inMemory(t, vfs.NewMem())
	})
}

// TestStoreOnRealDisk runs the suite's faster half where fsync is real.
func TestStoreOnRealDisk(t *testing.T) {
	s := openDisk(t, disk.Config{Dir: t.TempDir()})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// inMemory opens a disk store whose disk is a memory file system, and tells how to open it again.
func inMemory(t storetest.TB, fs vfs.FS) (store.Store, func(storetest.TB) store.Store) {
	cfg := disk.Config{Dir: "data", FS: fs, CheckImmutable: true}
	current := openDisk(t, cfg)
	return current, func(t storetest.TB) store.Store {
		t.Helper()
		if err := current.Close(); err != nil {
			t.Fatalf("Close: %v", err)
		}
		current = openDisk(t, cfg)
		return current
	}
}

func openDisk(t storetest.TB, cfg disk.Config) store.Store {
	t.Helper()
	s, err := disk.Open(cfg)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	return s
}
