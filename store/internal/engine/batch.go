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
	buffer *[]byte // what data is in, if it goes back to encodings
}

// encodings holds memory in which values are encoded.
var encodings = sync.Pool{New: func() any { return new([]byte) }}

// maxEncoding is the largest buffer that is kept for the next value.
const maxEncoding = 64 << 10

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
		if err := c.encode(); err != nil {
			return fmt.Errorf("store: %s %q cannot be encoded: %w", c.table.cfg.Name, c.key, err)
		}
	}
	return nil
}

func (c *change) encode() (err error) {
	a, ok := c.value.(store.Appender)
	if !ok {
		c.data, err = c.value.Encode()
		return err
	}
	buffer := encodings.Get().(*[]byte)
	c.data, err = a.AppendEncode((*buffer)[:0])
	if cap(c.data) <= maxEncoding {
		*buffer, c.buffer = c.data, buffer
	}
	return err
}

// release gives back the memory of the values' bytes, which nobody needs any more.
func (b *batch) release() {
	for _, group := range b.groups {
		for i := range group {
			if c := &group[i]; c.buffer != nil {
				encodings.Put(c.buffer)
				c.buffer, c.data = nil, nil
			}
		}
	}
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

// records appends the batch, as it is for the journal, to out.
func (b *batch) records(out []Record) []Record {
	for _, group := range b.groups {
		for i := range group {
			c := &group[i]
			out = append(out, Record{Table: c.table.cfg.Name, Key: c.key, Revision: c.rev, Data: c.data, Delete: c.delete})
		}
	}
	return out
}
