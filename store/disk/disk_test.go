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
		return reopening(t, disk.Config{Dir: "data", FS: vfs.NewMem(), CheckImmutable: true})
	})
}

// TestStoreOnRealDisk leaves out the model, whose thousands of commits would wait for as many fsyncs.
func TestStoreOnRealDisk(t *testing.T) {
	storetest.Run(t, func(tb storetest.TB) (store.Store, func(storetest.TB) store.Store) {
		return reopening(tb, disk.Config{Dir: t.TempDir()})
	}, "Model")
}

// reopening opens a store, and tells how to open it again.
func reopening(t storetest.TB, cfg disk.Config) (store.Store, func(storetest.TB) store.Store) {
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
