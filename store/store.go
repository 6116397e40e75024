// Package store is the one place where state lives: tables of immutable objects under one revision counter.
//
// Guarantees:
//   - Every committed write has its own revision; revisions grow by at least one per write and never repeat, across restarts too.
//   - Writes become visible, to reads and to watches, in revision order and never before a crash could no longer undo them
//     (tables that are [Relaxed] give up only the second half).
//   - A [Snapshot] is a consistent picture of one table at one revision; taking one costs O(1) and blocks no writer.
//   - A [Watch] delivers every change after its start, once, in order, or says that it cannot ([ErrCompacted]).
//
// Everything is safe for concurrent use. A value that was handed in or out is shared by all: nobody may change it.
//
// The store knows keys, bytes and opaque values. It does not know kinds, namespaces, authorization or time.
package store

import (
	"context"
	"errors"
	"fmt"
)

// Revision numbers a committed write. Zero means "before the first write".
type Revision = uint64

// Value is an immutable object as its table keeps it.
type Value interface {
	// Encode returns the bytes that go to disk, which nobody may change. It is called once per write, off the writer's lock, and
	// once more only where a disk that failed must be repaired.
	Encode() ([]byte, error)
	// Size estimates the memory that the value holds, in bytes; it accounts for the event ring's budget.
	Size() int
}

// Fresh is what a Value that keeps its encoded bytes implements as well, so that a build that looks for changed values sees the
// value itself and not the kept bytes.
type Fresh interface {
	// EncodeFresh encodes the value anew. Equal values give equal bytes.
	EncodeFresh() ([]byte, error)
}

// Appender is what a Value implements as well that can write its bytes behind others: they then take no memory of their own.
type Appender interface {
	// AppendEncode is Encode into dst, which may grow.
	AppendEncode(dst []byte) ([]byte, error)
}

// Marked is what a Value implements as well that can be told apart by one word: it is kept beside the key, so that who looks for few among many need
// not touch the values.
type Marked interface {
	// Mark is asked once for a value.
	Mark() uint64
}

// Durability says when a write to a table is acknowledged.
type Durability int

const (
	// Durable writes are acknowledged once they would survive a power cut.
	Durable Durability = iota
	// Relaxed writes are acknowledged once visible; they reach the disk with the next batch.
	Relaxed
)

// TableConfig describes a table to Store.Table.
type TableConfig struct {
	// Name is the table's unique name, such as "apps/deployments".
	Name       string
	Durability Durability
	// Decode rebuilds a value from what Encode gave, when a store opens again. It is called once per key, concurrently for different keys.
	Decode func(key string, rev Revision, data []byte) (Value, error)
	// RingBytes bounds the events kept for watchers that lag (sum of Size). Zero takes the backend's default.
	RingBytes int
}

// Item is one key's state.
type Item struct {
	Key      string
	Value    Value
	Revision Revision // of the write that made this state
	Mark     uint64   // the value's, if it is Marked
}

// Expectation is what a write demands of its key's newest state.
type Expectation struct {
	kind expectKind
	rev  Revision
}

type expectKind int

const (
	expectAbsent expectKind = iota + 1
	expectAt
	expectAny
)

// Absent demands that the key does not exist.
func Absent() Expectation { return Expectation{kind: expectAbsent} }

// At demands that the key exists and was last written at rev.
func At(rev Revision) Expectation { return Expectation{kind: expectAt, rev: rev} }

// Any demands nothing.
func Any() Expectation { return Expectation{kind: expectAny} }

// Holds tells whether the expectation is met by a key in this state.
func (e Expectation) Holds(current Item, exists bool) bool {
	switch e.kind {
	case expectAbsent:
		return !exists
	case expectAt:
		return exists && current.Revision == e.rev
	default:
		return e.kind == expectAny
	}
}

func (e Expectation) String() string {
	switch e.kind {
	case expectAbsent:
		return "absent"
	case expectAt:
		return fmt.Sprintf("at revision %d", e.rev)
	default:
		return "any"
	}
}

// Write is one change of one key. The writes of one Commit happen together or not at all.
type Write struct {
	Table  Table
	Key    string
	Expect Expectation
	// Make returns the value stamped with its revision. It is called once, inside the commit order: it must be quick and must not
	// call the store. For a delete it returns what watchers see as the last state; nil there means the previous value.
	Make func(rev Revision) Value
	// Delete removes the key. Where the key does not exist and Expect allows that, nothing happens: no revision, no event.
	Delete bool
}

// Store is a set of tables under one revision counter.
type Store interface {
	// Table opens a table, making it if it is new. A name opens once; a second call returns the same table.
	// An error names the first key whose bytes Decode refused.
	Table(TableConfig) (Table, error)
	// Commit checks each write against the newest proposed state and, if all hold, makes them durable and visible together.
	// It returns the revision of the last write. Errors: *ConflictError, ErrClosed, ErrFull (nothing was written and the store
	// stays readable), ctx's own (the write may still land).
	Commit(ctx context.Context, writes ...Write) (Revision, error)
	// Revision is the newest visible revision.
	Revision() Revision
	// Close waits for open batches, then releases files and ends every watch.
	Close() error
}

// Table holds the objects of one resource, ordered by key.
type Table interface {
	Name() string
	// Get reads the newest visible state of a key.
	Get(key string) (Item, bool)
	// Proposed reads the newest state that a Commit would be checked against, which a crash could still undo: good for
	// building a write, never for answering a reader.
	Proposed(key string) (Item, bool)
	// Snapshot is the newest visible state.
	Snapshot() Snapshot
	// SnapshotAt is the state at rev, rebuilt from retained events. ErrCompacted: rev is older than what is retained.
	// ErrFuture: rev is not visible yet.
	SnapshotAt(rev Revision) (Snapshot, error)
	// WaitFor returns once the store's visible revision is at least rev, or ctx ends.
	WaitFor(ctx context.Context, rev Revision) error
	// Watch delivers the events after rev. ErrCompacted and ErrFuture as for SnapshotAt.
	Watch(rev Revision) (Watch, error)
	// Len is the number of visible keys.
	Len() int
}

// Snapshot is an immutable picture of a table.
type Snapshot interface {
	Revision() Revision
	Get(key string) (Item, bool)
	// Ascend calls yield for the keys that are at least from and start with prefix, in order, until yield returns false.
	Ascend(prefix, from string, yield func(Item) bool)
	Len() int
}

// Event is one committed change.
type Event struct {
	Revision Revision
	Key      string
	// Value is the new state; for a delete, the last state stamped with the delete's revision.
	Value Value
	// Prev is the state before; nil when the key was created.
	Prev Value
	// PrevRevision is the revision of Prev; zero when the key was created.
	PrevRevision Revision
	Deleted      bool
}

// Watch is a reader's position in a table's events. One goroutine uses it at a time.
type Watch interface {
	// Next waits for events and returns all that are ready, oldest first, at least one. The slice is shared: read only.
	// ErrCompacted: the reader fell out of the ring and must list again. ErrClosed: the store or the watch closed.
	Next(ctx context.Context) ([]Event, error)
	// Ready is Next without waiting: what is ready, which may be nothing.
	Ready() ([]Event, error)
	// Progress is the newest revision up to which every event of the table has been returned by Next.
	Progress() Revision
	Close()
}

var (
	// ErrCompacted says that the asked-for revision is no longer retained.
	ErrCompacted = errors.New("store: revision is no longer retained")
	// ErrFuture says that the asked-for revision is not visible yet.
	ErrFuture = errors.New("store: revision is not visible yet")
	// ErrClosed says that the store was closed.
	ErrClosed = errors.New("store: closed")
	// ErrFull says that the disk refused a write for lack of room.
	ErrFull = errors.New("store: no space left on the data disk")
)

// ConflictError says that a write's expectation did not hold.
type ConflictError struct {
	Table, Key string
	Expect     Expectation
	// Current is the newest proposed state, Exists whether there is one.
	Current Item
	Exists  bool
}

func (e *ConflictError) Error() string {
	if !e.Exists {
		return fmt.Sprintf("store: %s %q: expected %s, but it does not exist", e.Table, e.Key, e.Expect)
	}
	return fmt.Sprintf("store: %s %q: expected %s, but it is at revision %d", e.Table, e.Key, e.Expect, e.Current.Revision)
}
