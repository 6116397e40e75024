package disk_test

import (
	"fmt"
	"testing"

	"github.com/yare-project/yare/store"
	"github.com/yare-project/yare/store/disk"
	"github.com/yare-project/yare/store/storetest"
)

func BenchmarkCommit(b *testing.B) {
	storetest.BenchmarkCommit(b, openDisk(b, disk.Config{Dir: b.TempDir()}))
}

// BenchmarkOpen opens 20,000 objects of 1 KiB.
func BenchmarkOpen(b *testing.B) {
	cfg := disk.Config{Dir: b.TempDir()}
	s := openDisk(b, cfg)
	a := storetest.Table(b, s, "a")
	for i := 0; i < 20_000; i += 100 {
		var writes []store.Write
		for j := range 100 {
			writes = append(writes, storetest.Put(a, fmt.Sprintf("k%06d", i+j), store.Absent(), padding[:1024]))
		}
		storetest.Commit(b, s, writes...)
	}
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		s := openDisk(b, cfg)
		if n := storetest.Table(b, s, "a").Len(); n != 20_000 {
			b.Fatalf("%d objects", n)
		}
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
