package storetest

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/yare-project/yare/store"
)

func testSnapshots(t *testing.T, open Opener) {
	t.Run("Stays", func(t *testing.T) {
		s := Start(t, open)
		a := Table(t, s, "a")
		for i := range 500 {
			Commit(t, s, Put(a, fmt.Sprintf("k%03d", i), store.Absent(), "old"))
		}
		snap := a.Snapshot()
		want := Contents(t, snap)
		for i := range 500 {
			key := fmt.Sprintf("k%03d", i)
			if i%2 == 0 {
				Commit(t, s, Remove(a, key, store.Any()))
			} else {
				Commit(t, s, Put(a, key, store.Any(), "new"))
			}
		}
		if diff := cmp.Diff(want, Contents(t, snap)); diff != "" {
			t.Errorf("a snapshot changed (-before +after):\n%s", diff)
		}
	})
	t.Run("Ascend", func(t *testing.T) {
		s := Start(t, open)
		a := Table(t, s, "a")
		for _, key := range []string{"a", "b/1", "b/2", "b/3", "b0", "c"} {
			Commit(t, s, Put(a, key, store.Absent(), ""))
		}
		for _, tc := range []struct {
			prefix, from string
			limit        int
			want         []string
		}{
			{"", "", 9, []string{"a", "b/1", "b/2", "b/3", "b0", "c"}},
			{"b/", "", 9, []string{"b/1", "b/2", "b/3"}},
			{"b/", "b/2", 9, []string{"b/2", "b/3"}},
			{"b/", "b/20", 9, []string{"b/3"}},
			{"b/", "a", 9, []string{"b/1", "b/2", "b/3"}},
			{"b/", "c", 9, nil},
			{"x", "", 9, nil},
			{"b0", "", 9, []string{"b0"}},
			{"c", "", 9, []string{"c"}},
			{"\xff", "", 9, nil},
			{"", "b0", 9, []string{"b0", "c"}},
			{"b", "", 2, []string{"b/1", "b/2"}},
		} {
			var got []string
			a.Snapshot().Ascend(tc.prefix, tc.from, func(it store.Item) bool {
				got = append(got, it.Key)
				return len(got) < tc.limit
			})
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("Ascend(%q, %q) of %d (-want +got):\n%s", tc.prefix, tc.from, tc.limit, diff)
			}
		}
	})
	t.Run("Revision", func(t *testing.T) {
		s := Start(t, open)
		a, b := Table(t, s, "a"), Table(t, s, "b")
		rev := Commit(t, s, Put(a, "x", store.Absent(), "1"))
		if got := b.Snapshot().Revision(); got != rev {
			t.Errorf("a quiet table's snapshot is of revision %d, the store is at %d", got, rev)
		}
	})
	t.Run("AcrossTables", func(t *testing.T) {
		s := Start(t, open)
		a, b := Table(t, s, "a"), Table(t, s, "b")
		var revs []store.Revision
		for i := range 50 {
			text := fmt.Sprint(i)
			revs = append(revs, Commit(t, s, Put(a, "x", store.Any(), text), Put(b, "x", store.Any(), text)))
		}
		for i, rev := range revs {
			for _, table := range []store.Table{a, b} {
				snap, err := table.SnapshotAt(rev)
				if err != nil {
					t.Fatalf("SnapshotAt(%d): %v", rev, err)
				}
				if got := Contents(t, snap)["x"].Text; got != fmt.Sprint(i) || snap.Revision() != rev {
					t.Errorf("table %s at %d holds %q of revision %d, want %d", table.Name(), rev, got, snap.Revision(), i)
				}
			}
		}
	})
	t.Run("Bounds", func(t *testing.T) {
		s := Start(t, open)
		a := TableWith(t, s, store.TableConfig{Name: "a", RingBytes: 4 << 10})
		first := Commit(t, s, Put(a, "x", store.Any(), "0"))
		for i := range 200 {
			Commit(t, s, Put(a, "x", store.Any(), fmt.Sprintf("%0100d", i)))
		}
		_, err := a.SnapshotAt(s.Revision() + 1)
		wantError(t, "SnapshotAt the future", err, store.ErrFuture)
		_, err = a.SnapshotAt(first)
		wantError(t, "SnapshotAt the dropped past", err, store.ErrCompacted)
		if _, err := a.SnapshotAt(s.Revision() - 1); err != nil {
			t.Errorf("SnapshotAt one before the newest: %v", err)
		}
	})
}
