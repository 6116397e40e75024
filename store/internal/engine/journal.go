package engine

import (
	"errors"

	"github.com/yare-project/yare/store"
)

// Journal keeps batches so that they outlive the process. Append, Recover and Close are called by one goroutine at a time;
// Load may be called beside them.
type Journal interface {
	// Load yields a table's records in key order. The data belongs to the receiver.
	Load(table string, yield func(key string, rev store.Revision, data []byte) error) (Loaded, error)
	// Append writes a batch so that after a crash either all or nothing of it is there; with Sync it returns once that includes
	// a power cut. The records' data is not the journal's to keep. Errors: ErrNotWritten, ErrRetired, or any other, after which the batch may or may not be on disk and
	// Recover is due.
	Append(Batch) error
	// Recover makes a journal that failed usable again. What was appended without Sync since the last Sync may be lost.
	Recover() error
	// Close releases the journal; last is the newest revision that was given out. Not clean: what is on disk may differ from what
	// was visible.
	Close(last store.Revision, clean bool) error
}

// Batch is what one Append writes.
type Batch struct {
	Records []Record
	// Last is the newest revision of the batch.
	Last store.Revision
	Sync bool
}

// Record is one key's new state.
type Record struct {
	Table, Key string
	Revision   store.Revision
	Data       []byte
	Delete     bool
}

// Loaded is what a journal knows of a table besides its records.
type Loaded struct {
	// LastDelete is the revision of the table's newest delete.
	LastDelete store.Revision
}

var (
	// ErrNotWritten says that nothing of the batch is on disk and the journal is still good.
	ErrNotWritten = errors.New("nothing was written")
	// ErrRetired says that nothing of this batch is on disk, but the journal failed since the last Append: Recover is due.
	ErrRetired = errors.New("the journal failed since it was last used")
)
