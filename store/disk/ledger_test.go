package disk_test

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/yare-project/yare/store"
	"github.com/yare-project/yare/store/storetest"
)

// The ledger workload: each writer counts upward, and with each number commits, together,
//   - "seq" <writer>: the number, in one table,
//   - "pair" <writer>: the number in another table, or nothing at all where the number is divisible by five.
//
// So a store that lost or halved a commit contradicts itself or the ledger.

// progress is how far one writer came.
type progress struct {
	acknowledged, attempted int
	revision                store.Revision // of the last acknowledged commit
}

type ledger struct {
	mu      sync.Mutex
	writers map[int]progress
}

func (l *ledger) note(writer int, p progress) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.writers == nil {
		l.writers = map[int]progress{}
	}
	l.writers[writer] = p
}

func (l *ledger) copy() map[int]progress {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.writers)
}

type ledgerTables struct{ seq, pair, relaxed store.Table }

func openLedgerTables(t storetest.TB, s store.Store) ledgerTables {
	return ledgerTables{
		seq:     storetest.Table(t, s, "seq"),
		pair:    storetest.Table(t, s, "pair"),
		relaxed: storetest.TableWith(t, s, store.TableConfig{Name: "relaxed", Durability: store.Relaxed}),
	}
}

// padding makes a few hundred commits fill memtables, so that flushes and compactions take part.
var padding = strings.Repeat(".", 2000)

// write commits one number.
func (lt ledgerTables) write(ctx context.Context, s store.Store, writer, number int) (store.Revision, error) {
	key, text := fmt.Sprint(writer), strconv.Itoa(number)
	pair := storetest.Put(lt.pair, key, store.Any(), text+padding)
	pair.Delete = number%5 == 0
	if number%3 == 0 {
		if _, err := s.Commit(ctx, storetest.Put(lt.relaxed, key, store.Any(), text)); err != nil {
			return 0, err
		}
	}
	return s.Commit(ctx, storetest.Put(lt.seq, key, store.Any(), text), pair)
}

// run counts from the number after first until stop, or the first error.
func (l *ledger) run(ctx context.Context, s store.Store, lt ledgerTables, writer, first, count int) error {
	p := progress{acknowledged: first, attempted: first}
	for n := first + 1; n <= first+count; n++ {
		p.attempted = n
		l.note(writer, p)
		rev, err := lt.write(ctx, s, writer, n)
		if err != nil {
			return err
		}
		p.acknowledged, p.revision = n, rev
		l.note(writer, p)
	}
	return nil
}

// verify holds a store that was opened after a crash against what was acknowledged before and attempted until then. It returns the
// number that each writer reached.
func verifyLedger(t testing.TB, s store.Store, before, after map[int]progress) map[int]int {
	t.Helper()
	lt := openLedgerTables(t, s)
	reached := map[int]int{}
	for writer, p := range after {
		key := fmt.Sprint(writer)
		number := 0
		if it, ok := lt.seq.Get(key); ok {
			number, _ = strconv.Atoi(it.Value.(*storetest.Note).Text)
		}
		if number < before[writer].acknowledged || number > p.attempted {
			t.Errorf("writer %d: number %d is on disk; %d was acknowledged, %d attempted", writer, number, before[writer].acknowledged, p.attempted)
		}
		it, ok := lt.pair.Get(key)
		switch {
		case ok != (number%5 != 0):
			t.Errorf("writer %d: half of commit %d is on disk: the pair exists: %v", writer, number, ok)
		case ok && it.Value.(*storetest.Note).Text != strconv.Itoa(number)+padding:
			t.Errorf("writer %d: half of commit %d is on disk: the pair is of %.10q", writer, number, it.Value.(*storetest.Note).Text)
		}
		reached[writer] = number
	}
	return reached
}
