package mem_test

import (
	"testing"

	"github.com/yare-project/yare/store/mem"
	"github.com/yare-project/yare/store/storetest"
)

func BenchmarkCommit(b *testing.B) { storetest.BenchmarkCommit(b, mem.New(mem.Config{})) }

func BenchmarkWatchFanout(b *testing.B) {
	storetest.BenchmarkWatchFanout(b, mem.New(mem.Config{}))
}

func BenchmarkSnapshotList(b *testing.B) {
	storetest.BenchmarkSnapshotList(b, mem.New(mem.Config{}))
}
