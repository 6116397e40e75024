// Package storetest is the suite that every store backend passes: what each method promises, linearizability of concurrent histories,
// and agreement of snapshots and watches with a model.
//
// A backend's own tests add what only it can do, such as crashing; [Note], [Put] and the like are exported for them.
package storetest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/yare-project/yare/store"
)

// Patience bounds every wait of the suite: long enough for a loaded machine, short enough to end a hung test.
const Patience = 30 * time.Second

// Opener opens an empty store. Reopen closes it in order and opens what survived; nil where nothing does. The suite closes the store.
type Opener func(t TB) (s store.Store, reopen func(TB) store.Store)

// TB is what the suite needs of a test: *testing.T, *testing.B and *rapid.T have it.
type TB interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
	Logf(format string, args ...any)
}

// Run runs the suite, without the groups of these names.
func Run(t *testing.T, open Opener, without ...string) {
	for _, group := range []struct {
		name string
		run  func(*testing.T, Opener)
	}{
		{"Commit", testCommit},
		{"Tables", testTables},
		{"Snapshots", testSnapshots},
		{"Watches", testWatches},
		{"Close", testClose},
		{"Model", testModel},
		{"Linearizable", testLinearizable},
		{"Concurrent", testConcurrent},
	} {
		if slices.Contains(without, group.name) {
			continue
		}
		t.Run(group.name, func(t *testing.T) { group.run(t, open) })
	}
}

// Start opens a store that closes with the test.
func Start(t *testing.T, open Opener) store.Store {
	t.Helper()
	s, _ := open(t)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

// Table opens a durable table of notes.
func Table(t TB, s store.Store, name string) store.Table {
	t.Helper()
	return TableWith(t, s, store.TableConfig{Name: name})
}

// TableWith opens a table of notes.
func TableWith(t TB, s store.Store, cfg store.TableConfig) store.Table {
	t.Helper()
	cfg.Decode = DecodeNote
	table, err := s.Table(cfg)
	if err != nil {
		t.Fatalf("Table(%q): %v", cfg.Name, err)
	}
	return table
}

// Put is a write of a note.
func Put(table store.Table, key string, expect store.Expectation, text string) store.Write {
	return store.Write{Table: table, Key: key, Expect: expect, Make: func(rev store.Revision) store.Value { return &Note{Rev: rev, Text: text} }}
}

// Remove is a delete whose watchers see the last text, stamped with the delete's revision.
func Remove(table store.Table, key string, expect store.Expectation) store.Write {
	return store.Write{Table: table, Key: key, Expect: expect, Delete: true}
}

// Commit commits or fails the test.
func Commit(t TB, s store.Store, writes ...store.Write) store.Revision {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	rev, err := s.Commit(ctx, writes...)
	if err != nil {
		t.Fatalf("Commit: %v", err)
	}
	return rev
}

// next reads from a watch or fails the test.
func next(t TB, w store.Watch) []store.Event {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	events, err := w.Next(ctx)
	if err != nil {
		t.Fatalf("Next: %v", err)
	}
	if len(events) == 0 {
		t.Fatal("Next returned no event and no error")
	}
	return events
}

func watch(t TB, table store.Table, rev store.Revision) store.Watch {
	t.Helper()
	w, err := table.Watch(rev)
	if err != nil {
		t.Fatalf("Watch(%d): %v", rev, err)
	}
	return w
}

func wantError(t TB, what string, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Fatalf("%s: got error %v, want %v", what, got, want)
	}
	if strings.TrimSpace(got.Error()) == "" {
		t.Fatalf("%s: the error explains nothing", what)
	}
}
