package storetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/yare-project/yare/store"
)

// testConcurrent lets writers, watchers and snapshot readers meet: each watch must replay into exactly what snapshots show.
func testConcurrent(t *testing.T, open Opener) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	s := Start(t, open)
	tables := []store.Table{
		TableWith(t, s, store.TableConfig{Name: "durable", RingBytes: 16 << 20}),
		TableWith(t, s, store.TableConfig{Name: "relaxed", RingBytes: 16 << 20, Durability: store.Relaxed}),
	}
	const writers, watchers, steps = 4, 3, 150
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()

	var writing, reading sync.WaitGroup
	for i := range uint64(writers) {
		random := rand.New(rand.NewPCG(seed, i))
		writing.Go(func() {
			for range steps {
				if err := writePair(ctx, s, tables, random); err != nil {
					t.Errorf("seed %d: %v", seed, err)
					return
				}
			}
		})
	}
	for _, table := range tables {
		for range watchers {
			r := &replay{table: table, state: map[string]State{}}
			w := watch(t, table, 0)
			reading.Go(func() {
				if err := r.run(ctx, w); err != nil {
					t.Errorf("seed %d: watch of %s: %v", seed, table.Name(), err)
					return
				}
				if diff := cmp.Diff(r.state, Contents(t, table.Snapshot())); diff != "" {
					t.Errorf("seed %d: %s (-replayed +snapshot):\n%s", seed, table.Name(), diff)
				}
			})
		}
	}
	done := make(chan struct{})
	reading.Go(func() { readSnapshots(t, tables, done) })
	writing.Wait()
	close(done)
	Commit(t, s, Put(tables[0], lastKey, store.Any(), ""), Put(tables[1], lastKey, store.Any(), ""))
	reading.Wait()
}

// writePair changes one key in both tables, to the same text, together.
func writePair(ctx context.Context, s store.Store, tables []store.Table, random *rand.Rand) error {
	key := fmt.Sprint("k", random.IntN(20))
	var writes []store.Write
	text := fmt.Sprint(random.Uint64())
	gone := random.IntN(4) == 0
	for _, table := range tables {
		w := Put(table, key, store.Any(), text)
		if it, ok := table.Proposed(key); ok && random.IntN(2) == 0 {
			w.Expect = store.At(it.Revision)
		}
		w.Delete = gone
		writes = append(writes, w)
	}
	_, err := s.Commit(ctx, writes...)
	var conflict *store.ConflictError
	if errors.As(err, &conflict) {
		return nil
	}
	return err
}

// readSnapshots checks that the two tables agree at whatever moment.
func readSnapshots(t *testing.T, tables []store.Table, done <-chan struct{}) {
	for {
		select {
		case <-done:
			return
		default:
		}
		first := tables[0].Snapshot()
		second, err := tables[1].SnapshotAt(first.Revision())
		if err != nil {
			t.Errorf("SnapshotAt(%d): %v", first.Revision(), err)
			return
		}
		if diff := cmp.Diff(texts(Contents(t, first)), texts(Contents(t, second))); diff != "" {
			t.Errorf("at revision %d two tables that change together differ:\n%s", first.Revision(), diff)
			return
		}
	}
}

func texts(states map[string]State) map[string]string {
	out := map[string]string{}
	for key, state := range states {
		out[key] = state.Text
	}
	return out
}

// lastKey is written when all else is done; a replay ends with it.
const lastKey = "end"

// replay rebuilds a table from its events.
type replay struct {
	table store.Table
	state map[string]State
	last  store.Revision
}

func (r *replay) run(ctx context.Context, w store.Watch) error {
	defer w.Close()
	for r.state[lastKey] == (State{}) {
		events, err := w.Next(ctx)
		if err != nil {
			return err
		}
		for _, c := range changes(events) {
			if err := r.apply(c); err != nil {
				return err
			}
		}
		if err := r.compare(); err != nil {
			return err
		}
	}
	return nil
}

func (r *replay) apply(c Change) error {
	if c.Rev <= r.last {
		return fmt.Errorf("event %d came after %d", c.Rev, r.last)
	}
	r.last = c.Rev
	if diff := cmp.Diff(r.state[c.Key], c.Prev); diff != "" {
		return fmt.Errorf("event %d of %q tells another past (-replayed +told):\n%s", c.Rev, c.Key, diff)
	}
	if c.Deleted {
		delete(r.state, c.Key)
	} else {
		r.state[c.Key] = State{Rev: c.Rev, Text: c.Text}
	}
	return nil
}

// compare holds the replayed state against the snapshot of the same revision.
func (r *replay) compare() error {
	snap, err := r.table.SnapshotAt(r.last)
	if err != nil {
		return err
	}
	got := map[string]State{}
	snap.Ascend("", "", func(it store.Item) bool {
		got[it.Key] = State{Rev: it.Revision, Text: it.Value.(*Note).Text}
		return true
	})
	if !maps.Equal(r.state, got) {
		return fmt.Errorf("at revision %d (-replayed +snapshot):\n%s", r.last, cmp.Diff(r.state, got))
	}
	return nil
}
