package engine

import (
	"fmt"
	"sync"

	"github.com/yare-project/yare/store"
)

// change is one write that was checked and stamped.
type change struct {
	table  *table
	key    string
	rev    store.Revision
	value  store.Value
	delete bool
	data   []byte
}

// batch collects commits that are written, and become visible, together.
type batch struct {
	groups   [][]change // one per commit, in commit order; guarded by Engine.mu while the batch is open
	last     store.Revision
	durable  bool // one of the changes waits for the disk
	commits  int
	encoding sync.WaitGroup
	encodeMu sync.Mutex
	badValue error
	done     chan struct{} // closed when err is final and, if nil, the batch is visible
	err      error
}

func newBatch() *batch { return &batch{done: make(chan struct{})} }

// add joins a commit's changes to the batch. Engine.mu is held.
func (b *batch) add(group []change, last store.Revision) {
	b.commits++
	b.last = last
	b.encoding.Add(1)
	if len(group) == 0 {
		return
	}
	b.groups = append(b.groups, group)
	for i := range group {
		b.durable = b.durable || group[i].table.cfg.Durability == store.Durable
	}
}

// encode fills in the bytes of one commit, in the goroutine of its caller, so that many commits encode in parallel.
func (b *batch) encode(group []change, wanted bool) {
	err := fmt.Errorf("store: encoding panicked")
	defer func() {
		if err != nil {
			b.encodeMu.Lock()
			b.badValue = err
			b.encodeMu.Unlock()
		}
		b.encoding.Done()
	}()
	if wanted {
		err = encodeAll(group)
	} else {
		err = nil
	}
}

func encodeAll(group []change) error {
	for i := range group {
		c := &group[i]
		if c.delete {
			continue
		}
		data, err := c.value.Encode()
		if err != nil {
			return fmt.Errorf("store: %s %q cannot be encoded: %w", c.table.cfg.Name, c.key, err)
		}
		c.data = data
	}
	return nil
}

// finish answers the batch's callers.
func (b *batch) finish(err error) {
	b.err = err
	close(b.done)
}

func (b *batch) outcome(last store.Revision) (store.Revision, error) {
	if b.err != nil {
		return 0, b.err
	}
	return last, nil
}

// records lists the batch for the journal.
func (b *batch) records() []Record {
	var out []Record
	for _, group := range b.groups {
		for i := range group {
			c := &group[i]
			out = append(out, Record{Table: c.table.cfg.Name, Key: c.key, Revision: c.rev, Data: c.data, Delete: c.delete})
		}
	}
	return out
}
