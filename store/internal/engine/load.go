package engine

import (
	"fmt"
	"runtime"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/tidwall/btree"

	"github.com/yare-project/yare/store"
)

// loadChunk is how many records one goroutine decodes at a time.
const loadChunk = 256

// opening is a table that is being made; done is closed when it is final.
type opening struct {
	done  chan struct{}
	table *table
	err   error
}

// Table implements store.Store.
func (e *Engine) Table(cfg store.TableConfig) (store.Table, error) {
	if cfg.Name == "" || strings.ContainsRune(cfg.Name, 0) {
		return nil, fmt.Errorf("store: %q cannot name a table: a name is not empty and holds no NUL", cfg.Name)
	}
	e.tablesMu.Lock()
	o, found := e.names[cfg.Name]
	if !found {
		o = &opening{done: make(chan struct{})}
		e.names[cfg.Name] = o
	}
	e.tablesMu.Unlock()
	if !found {
		e.openTable(cfg, o)
	}
	<-o.done
	if o.err != nil {
		return nil, o.err
	}
	return o.table, nil
}

// openTable finishes an opening. One that failed is forgotten, so that it can be tried again.
func (e *Engine) openTable(cfg store.TableConfig, o *opening) {
	defer close(o.done)
	o.err = fmt.Errorf("store: opening table %q panicked", cfg.Name)
	defer func() {
		if o.err != nil {
			e.tablesMu.Lock()
			delete(e.names, cfg.Name)
			e.tablesMu.Unlock()
		}
	}()
	o.table, o.err = e.load(cfg)
	if o.err == nil {
		e.install(o.table)
	}
}

func (e *Engine) load(cfg store.TableConfig) (*table, error) {
	t := &table{engine: e, cfg: cfg, pending: map[string]proposal{}, work: btree.NewMap[string, entry](treeDegree), ring: ring{budget: cfg.RingBytes}}
	if t.ring.budget <= 0 {
		t.ring.budget = e.cfg.RingBytes
	}
	if e.cfg.CheckImmutable {
		t.sums = fingerprints{}
	}
	select {
	case <-e.closed:
		return nil, store.ErrClosed
	default:
	}
	if e.cfg.Journal == nil {
		t.ring.floor = e.Revision()
		return t, nil
	}
	d := decoder{table: t}
	d.group.SetLimit(max(2, runtime.GOMAXPROCS(0)))
	loaded, err := e.cfg.Journal.Load(cfg.Name, d.record)
	if decodeErr := d.finish(); decodeErr != nil {
		return nil, decodeErr
	}
	if err != nil {
		return nil, err
	}
	t.ring.floor = max(d.newest, loaded.LastDelete)
	if e.cfg.Unclean && cfg.Durability == store.Relaxed {
		t.ring.floor = e.cfg.Start
	}
	return t, nil
}

// install makes a loaded table part of the world.
func (e *Engine) install(t *table) {
	e.publish.Lock()
	defer e.publish.Unlock()
	old := e.world.Load()
	t.id = len(old.states)
	next := *old
	next.states = append(old.states[:t.id:t.id], t.freeze())
	e.world.Store(&next)
}

// decoder turns records into a table's tree, chunks of them in parallel.
type decoder struct {
	table  *table
	chunk  *chunk
	chunks []*chunk
	group  errgroup.Group
	newest store.Revision
}

type chunk struct {
	records []Record
	values  []store.Value
	err     error
}

func (d *decoder) record(key string, rev store.Revision, data []byte) error {
	if d.table.cfg.Decode == nil {
		return fmt.Errorf("store: table %q has data, but no Decode to read it", d.table.cfg.Name)
	}
	if d.chunk == nil {
		d.chunk = &chunk{records: make([]Record, 0, loadChunk)}
	}
	d.chunk.records = append(d.chunk.records, Record{Key: key, Revision: rev, Data: data})
	d.newest = max(d.newest, rev)
	if len(d.chunk.records) == loadChunk {
		d.flush()
	}
	return nil
}

func (d *decoder) flush() {
	c := d.chunk
	d.chunk = nil
	d.chunks = append(d.chunks, c)
	d.group.Go(func() error {
		c.decode(d.table.cfg)
		return nil
	})
}

func (c *chunk) decode(cfg store.TableConfig) {
	c.values = make([]store.Value, len(c.records))
	for i := range c.records {
		r := &c.records[i]
		v, err := cfg.Decode(r.Key, r.Revision, r.Data)
		if err == nil && v == nil {
			err = fmt.Errorf("decoding gave no value")
		}
		if err != nil {
			c.err = fmt.Errorf("store: table %q: the stored bytes of %q (revision %d) cannot be read: %w", cfg.Name, r.Key, r.Revision, err)
			return
		}
		c.values[i], r.Data = v, nil
	}
}

// finish waits for all chunks and fills the tree; the error is that of the first key in order.
func (d *decoder) finish() error {
	if d.chunk != nil {
		d.flush()
	}
	_ = d.group.Wait()
	for _, c := range d.chunks {
		if c.err != nil {
			return c.err
		}
		for i, r := range c.records {
			en := newEntry(c.values[i], r.Revision)
			d.table.work.Load(r.Key, en)
			d.table.sums.note(d.table, r.Key, en)
		}
	}
	return nil
}
