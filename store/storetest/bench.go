package storetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/yare-project/yare/store"
)

// BenchmarkCommit measures commits of 1 KiB by one and by many writers, and closes the store.
func BenchmarkCommit(b *testing.B, s store.Store) {
	defer s.Close()
	text := strings.Repeat("x", 1<<10)
	for _, writers := range []int{1, 16, 256} {
		for name, durability := range map[string]store.Durability{"durable": store.Durable, "relaxed": store.Relaxed} {
			table := TableWith(b, s, store.TableConfig{Name: fmt.Sprint(name, writers), Durability: durability})
			b.Run(fmt.Sprintf("%s/writers=%d", name, writers), func(b *testing.B) {
				b.ReportAllocs()
				var left atomic.Int64
				left.Store(int64(b.N))
				var wg sync.WaitGroup
				for w := range writers {
					wg.Go(func() {
						for n := 0; left.Add(-1) >= 0; n++ {
							Commit(b, s, Put(table, fmt.Sprintf("%d/%d", w, n%1000), store.Any(), text))
						}
					})
				}
				wg.Wait()
			})
		}
	}
}

// BenchmarkWatchFanout measures a commit while so many watchers are parked, and what all of them cost together, and closes the store.
func BenchmarkWatchFanout(b *testing.B, s store.Store) {
	defer s.Close()
	for _, watchers := range []int{1, 100, 10_000} {
		b.Run(fmt.Sprintf("watchers=%d", watchers), func(b *testing.B) {
			table := TableWith(b, s, store.TableConfig{Name: fmt.Sprintf("%d of %d", watchers, b.N), RingBytes: 1 << 30})
			ctx, cancel := context.WithCancel(context.Background())
			var wg sync.WaitGroup
			for range watchers {
				w := watch(b, table, s.Revision())
				wg.Go(func() {
					for {
						if _, err := w.Next(ctx); err != nil {
							if !errors.Is(err, context.Canceled) {
								b.Error(err)
							}
							return
						}
					}
				})
			}
			b.ResetTimer()
			for n := range b.N {
				Commit(b, s, Put(table, fmt.Sprint(n%1000), store.Any(), ""))
			}
			b.StopTimer()
			cancel()
			wg.Wait()
		})
	}
}

// BenchmarkSnapshotList measures a snapshot, a list of all, and a page of 500, of 10,000 keys, and closes the store.
func BenchmarkSnapshotList(b *testing.B, s store.Store) {
	defer s.Close()
	table := Table(b, s, "a")
	for n := range 10_000 {
		Commit(b, s, Put(table, fmt.Sprintf("ns%02d/%05d", n%20, n), store.Absent(), ""))
	}
	old := s.Revision()
	for n := range 1000 {
		Commit(b, s, Put(table, fmt.Sprintf("ns%02d/%05d", n%20, n), store.Any(), ""))
	}
	list := func(snap store.Snapshot, prefix string) (n int) {
		snap.Ascend(prefix, "", func(store.Item) bool { n++; return true })
		return n
	}
	b.Run("snapshot", func(b *testing.B) {
		for b.Loop() {
			if table.Snapshot().Len() != 10_000 {
				b.Fatal("keys are missing")
			}
		}
	})
	b.Run("all", func(b *testing.B) {
		for b.Loop() {
			if list(table.Snapshot(), "") != 10_000 {
				b.Fatal("keys are missing")
			}
		}
	})
	b.Run("namespace", func(b *testing.B) {
		for b.Loop() {
			if list(table.Snapshot(), "ns07/") != 500 {
				b.Fatal("keys are missing")
			}
		}
	})
	b.Run("1000 events ago", func(b *testing.B) {
		for b.Loop() {
			snap, err := table.SnapshotAt(old)
			if err != nil {
				b.Fatal(err)
			}
			if list(snap, "ns07/") != 500 {
				b.Fatal("keys are missing")
			}
		}
	})
}
