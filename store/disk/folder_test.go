package disk_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"

	"github.com/yare-project/yare/store"
	"github.com/yare-project/yare/store/disk"
	"github.com/yare-project/yare/store/storetest"
)

func TestFolderInUse(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made", "for it")
	s := openDisk(t, disk.Config{Dir: dir})
	_, err := disk.Open(disk.Config{Dir: dir})
	if !errors.Is(err, disk.ErrInUse) || !strings.Contains(err.Error(), dir) {
		t.Errorf("second Open: %v", err)
	}
	out := runWriter(t, dir, nil)
	if !strings.Contains(out, dir) || !strings.Contains(out, "in use by another Yare") {
		t.Errorf("Open in another process: %s", out)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := openDisk(t, disk.Config{Dir: dir}).Close(); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the folder is open to others: %v, %v", info.Mode(), err)
	}
}

func TestFolderCannotBe(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"", file, filepath.Join(file, "under")} {
		if _, err := disk.Open(disk.Config{Dir: dir}); err == nil || dir != "" && !strings.Contains(err.Error(), dir) {
			t.Errorf("Open(%q): %v", dir, err)
		}
	}
}

func TestForeignFolder(t *testing.T) {
	for name, contents := range map[string]map[string]string{
		"another program": {"k": "v"},
		"a later Yare":    {"f": "2"},
		"no meta record":  {"f": "1"},
	} {
		dir := t.TempDir()
		db, err := pebble.Open(dir, &pebble.Options{FormatMajorVersion: pebble.FormatWALSyncChunks, Logger: quiet{}})
		if err != nil {
			t.Fatal(err)
		}
		for key, value := range contents {
			if err := db.Set([]byte(key), []byte(value), pebble.Sync); err != nil {
				t.Fatal(err)
			}
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := disk.Open(disk.Config{Dir: dir}); err == nil || !strings.Contains(err.Error(), dir) {
			t.Errorf("%s: Open: %v", name, err)
		} else {
			t.Log(err)
		}
	}
}

type quiet struct{}

func (quiet) Infof(string, ...any)  {}
func (quiet) Errorf(string, ...any) {}
func (quiet) Fatalf(string, ...any) { panic("fatal") }

// TestDamage changes bytes in each kind of file and wants a clear refusal, or, where the bytes don't matter, the right contents.
func TestDamage(t *testing.T) {
	for _, kind := range []string{"MANIFEST-*", "*.sst", "*.log"} {
		for _, end := range []string{"closed", "killed"} {
			for _, damage := range []string{"flip", "cut"} {
				if kind == "*.log" && end == "killed" && damage == "cut" {
					continue // a log that ends early is what a kill leaves
				}
				for percent := 5; percent < 100; percent += 15 {
					t.Run(fmt.Sprint(kind, end, damage, percent), func(t *testing.T) { testDamage(t, kind, end, damage, percent) })
				}
			}
			if kind == "*.log" && end == "killed" {
				continue // so is no log at all, while a store opens
			}
			t.Run(kind+end+"remove", func(t *testing.T) { testDamage(t, kind, end, "remove", 0) })
		}
	}
}

func testDamage(t *testing.T, kind, end, damage string, percent int) {
	dir := t.TempDir()
	cfg := disk.Config{Dir: dir, MemTableBytes: 64 << 10}
	s := openDisk(t, cfg)
	a := storetest.Table(t, s, "a")
	for i := range 100 {
		storetest.Commit(t, s, storetest.Put(a, fmt.Sprintf("k%03d", i), store.Absent(), padding))
	}
	want := storetest.Contents(t, a.Snapshot())
	if end == "killed" {
		killed := filepath.Join(t.TempDir(), "killed")
		for tries := 1; os.CopyFS(killed, os.DirFS(dir)) != nil; tries++ {
			// A compaction took a file away under the copy.
			if err := os.RemoveAll(killed); err != nil || tries == 1000 {
				t.Fatal("the folder cannot be copied", err)
			}
		}
		dir, cfg.Dir = killed, killed
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, kind))
	if err != nil || len(files) == 0 {
		t.Fatalf("no file %s: %v", kind, err)
	}
	for _, file := range files {
		harm(t, file, damage, percent)
	}
	s, err = disk.Open(cfg)
	if err == nil {
		defer s.Close()
		_, err = s.Table(store.TableConfig{Name: "a", Decode: storetest.DecodeNote})
	}
	if err != nil {
		t.Log(err)
		if !errors.Is(err, disk.ErrDamaged) || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "backup") {
			t.Errorf("the refusal does not help: %v", err)
		}
		return
	}
	least := len(want)
	if kind == "*.log" && end == "killed" {
		least -= 2 // nothing tells of the log's last chunks
	}
	if got := storetest.Contents(t, storetest.Table(t, s, "a").Snapshot()); len(got) < least {
		t.Errorf("damage went unnoticed: %d of %d keys are left", len(got), len(want))
	}
}

func harm(t *testing.T, file, damage string, percent int) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if len(data) == 0 {
		return // just made when the store was killed
	}
	if damage == "remove" {
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		return
	}
	where := len(bytes.TrimRight(data, "\x00")) * percent / 100
	if damage == "cut" {
		data = data[:where]
	} else {
		data[where] ^= 0xff
	}
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
}
