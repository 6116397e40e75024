package disk

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/yare-project/yare/store"
	"github.com/yare-project/yare/store/internal/engine"
)

const (
	// ceilingStep is how many revisions a crash may skip: relaxed writes become visible before they are on disk, so a run promises
	// ahead which revisions it may show.
	ceilingStep = 1 << 16
	// A failed database is opened anew after firstPause, then after twice as long each time.
	firstPause = 250 * time.Millisecond
	maxPause   = 30 * time.Second
)

// journal implements engine.Journal on a database that it replaces when it fails.
type journal struct {
	cfg   Config
	lock  io.Closer
	cache *pebble.Cache

	mu sync.RWMutex // guards db; Load holds it while it reads
	db *database

	// What follows belongs to the committer.
	meta    meta
	pause   time.Duration
	retryAt time.Time
}

var _ engine.Journal = (*journal)(nil)

// Append implements engine.Journal.
func (j *journal) Append(b engine.Batch) error {
	if err := j.db.failed.get(); err != nil {
		return &refusal{text: explainWrite(j.cfg.Dir, err).Error(), kinds: []error{engine.ErrRetired, err}}
	}
	batch := j.db.NewBatch()
	m := j.db.nextMeta(j.meta, b.Last)
	if err := fill(batch, b, m, m != j.meta); err != nil {
		return &refusal{text: fmt.Sprintf("store: the batch cannot be built: %v", err), kinds: []error{engine.ErrNotWritten, err}}
	}
	if err := j.room(uint64(batch.Len())); err != nil {
		return &refusal{text: err.Error(), kinds: []error{engine.ErrNotWritten, err}}
	}
	if err := j.db.apply(batch, b.Sync || m != j.meta); err != nil {
		return explainWrite(j.cfg.Dir, err)
	}
	_ = batch.Close() // only returns memory to a pool
	j.pause = 0
	if m != j.meta {
		j.meta = m
		j.testify()
	}
	return nil
}

// nextMeta is the meta record after a batch that ends at last. It changes when the batch goes beyond what was promised, and after each
// flush, since a lost flush is what the witness is there to see.
func (d *database) nextMeta(m meta, last store.Revision) meta {
	beyond := last > m.ceiling
	if beyond {
		m.ceiling = last + ceilingStep
	}
	if d.flushed.CompareAndSwap(true, false) || beyond {
		m.epoch++
		m.clean = false
	}
	return m
}

func fill(out *pebble.Batch, b engine.Batch, m meta, withMeta bool) error {
	lastDelete := map[string]store.Revision{}
	for i := range b.Records {
		r := &b.Records[i]
		if r.Delete {
			lastDelete[r.Table] = max(lastDelete[r.Table], r.Revision)
			if err := out.Delete(appendKey(nil, r.Table, r.Key), nil); err != nil {
				return err
			}
			continue
		}
		op := out.SetDeferred(keyLen(r.Table, r.Key), revisionBytes+len(r.Data))
		appendKey(op.Key[:0], r.Table, r.Key)
		binary.BigEndian.PutUint64(op.Value, r.Revision)
		copy(op.Value[revisionBytes:], r.Data)
		if err := op.Finish(); err != nil {
			return err
		}
	}
	for table, rev := range lastDelete {
		if err := out.Set(deleteKey(table), binary.BigEndian.AppendUint64(nil, rev), nil); err != nil {
			return err
		}
	}
	if withMeta {
		return out.Set(metaKey, m.encode(), nil)
	}
	return nil
}

// room refuses a write of so many bytes while the disk has less than the reserve.
func (j *journal) room(bytes uint64) error {
	usage, err := j.cfg.FS.GetDiskUsage(j.cfg.Dir)
	if err != nil {
		if !errors.Is(err, vfs.ErrUnsupported) {
			j.cfg.Log.Debug("store cannot tell how full its disk is", "dir", j.cfg.Dir, "error", err)
		}
		return nil // the write itself will tell
	}
	need := bytes + j.cfg.ReserveBytes
	if usage.AvailBytes >= need {
		return nil
	}
	return &refusal{
		text: fmt.Sprintf("%v: data folder %q has %d KiB free and needs %d KiB: free some room, reads still work",
			store.ErrFull, j.cfg.Dir, usage.AvailBytes>>10, need>>10),
		kinds: []error{store.ErrFull},
	}
}

// Recover implements engine.Journal.
func (j *journal) Recover() error {
	cause := j.db.failed.get()
	if cause == nil {
		return nil
	}
	if err := j.room(0); err != nil {
		return err
	}
	now := j.cfg.Clock.Now()
	if now.Before(j.retryAt) {
		return explainWrite(j.cfg.Dir, cause)
	}
	j.pause = min(max(firstPause, 2*j.pause), maxPause)
	j.retryAt = now.Add(j.pause)
	if err := probe(j.cfg.FS, j.cfg.Dir); err != nil {
		return explainWrite(j.cfg.Dir, err)
	}
	if err := j.reopen(); err != nil {
		return err
	}
	j.cfg.Log.Info("store opened its data folder again after a failure", "dir", j.cfg.Dir, "failure", cause)
	return nil
}

// reopen opens the database and dates it.
func (j *journal) reopen() error {
	db, err := openDatabase(&j.cfg, j.cache, false)
	if err != nil {
		return err
	}
	m, err := db.begin()
	if err != nil {
		return errors.Join(explainOpen(j.cfg.Dir, err), db.close())
	}
	j.mu.Lock()
	j.db = db
	j.mu.Unlock()
	j.meta = m
	j.testify()
	return nil
}

// probe writes a small file, so that a disk that still fails is found out before a database is frozen by it.
func probe(fs vfs.FS, dir string) error {
	name := fs.PathJoin(dir, "PROBE")
	f, err := fs.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, writeErr := f.Write(make([]byte, 64<<10))
	var syncErr error
	if writeErr == nil {
		syncErr = f.Sync()
	}
	return errors.Join(writeErr, syncErr, f.Close(), fs.Remove(name))
}

// Load implements engine.Journal.
func (j *journal) Load(table string, yield func(string, store.Revision, []byte) error) (engine.Loaded, error) {
	j.mu.RLock()
	defer j.mu.RUnlock()
	loaded, err := j.load(table, yield)
	if err != nil && (pebble.IsCorruptionError(err) || errors.Is(err, ErrDamaged)) {
		return loaded, explainDamage(j.cfg.Dir, fmt.Errorf("table %q: %w", table, err))
	}
	if err != nil {
		return loaded, fmt.Errorf("store: table %q cannot be read: %w", table, err)
	}
	return loaded, nil
}

func (j *journal) load(table string, yield func(string, store.Revision, []byte) error) (engine.Loaded, error) {
	if err := j.db.failed.get(); err != nil {
		return engine.Loaded{}, err
	}
	var loaded engine.Loaded
	last, err := j.db.read(deleteKey(table))
	if err != nil {
		return loaded, err
	}
	if last != nil {
		if loaded.LastDelete, err = decodeRevision(last); err != nil {
			return loaded, err
		}
	}
	prefix := tablePrefix(table)
	it, err := j.db.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: tableEnd(table)})
	if err != nil {
		return loaded, err
	}
	if err := scan(it, len(prefix), yield); err != nil {
		_ = it.Close() // tells the same again
		return loaded, err
	}
	return loaded, it.Close()
}

func scan(it *pebble.Iterator, prefix int, yield func(string, store.Revision, []byte) error) error {
	for ok := it.First(); ok; ok = it.Next() {
		value, err := it.ValueAndErr()
		if err != nil {
			return err
		}
		rev, err := decodeRevision(value)
		if err != nil {
			return err
		}
		if err := yield(string(it.Key()[prefix:]), rev, append([]byte{}, value[revisionBytes:]...)); err != nil {
			return err
		}
	}
	return it.Error()
}

// Close implements engine.Journal.
func (j *journal) Close(last store.Revision, clean bool) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	defer j.release()
	if j.db.failed.get() != nil {
		return nil
	}
	if clean {
		j.meta = meta{ceiling: last, epoch: j.meta.epoch + 1, clean: true}
		if err := j.db.writeMeta(j.meta); err != nil {
			return explainWrite(j.cfg.Dir, err)
		}
		j.testify()
	}
	if err := j.db.close(); err != nil {
		return fmt.Errorf("store: data folder %q: %w", j.cfg.Dir, err)
	}
	return nil
}

func (j *journal) release() {
	if j.db == nil || j.db.failed.get() == nil {
		j.cache.Unref()
	}
	if err := j.lock.Close(); err != nil {
		j.cfg.Log.Warn("store cannot release its folder", "dir", j.cfg.Dir, "error", err)
	}
}
