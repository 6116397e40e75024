package disk

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// database is one opening of the Pebble files. Once failed is set it is never used again.
type database struct {
	*pebble.DB
	failed   *failure
	files    *freezer
	requests chan request
	flushed  atomic.Bool // since the last meta record
}

// errEmpty says that there is no database, or nothing in it.
var errEmpty = errors.New("there is no database")

// request asks the database's writer to apply a batch.
type request struct {
	batch *pebble.Batch
	sync  *pebble.WriteOptions
	done  chan error
}

// openDatabase opens the files, or says what was wrong with them. errEmpty: there are none to be only read.
func openDatabase(cfg *Config, cache *pebble.Cache, readOnly bool) (*database, error) {
	d := &database{failed: newFailure(), requests: make(chan request)}
	d.files = &freezer{FS: cfg.FS, failed: d.failed}
	options := d.options(cfg, cache, readOnly)
	opened := make(chan error, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil {
				opened <- damaged(fmt.Sprint(p))
			}
		}()
		db, err := pebble.Open(cfg.Dir, options)
		d.DB = db
		opened <- err
	}()
	select {
	case err := <-opened:
		if errors.Is(err, pebble.ErrDBDoesNotExist) {
			return nil, errEmpty
		}
		if err != nil {
			return nil, explainOpen(cfg.Dir, err)
		}
	case <-d.failed.done:
		return nil, explainOpen(cfg.Dir, d.failed.err)
	}
	go d.write()
	return d, nil
}

func (d *database) options(cfg *Config, cache *pebble.Cache, readOnly bool) *pebble.Options {
	log := pebbleLog{log: cfg.Log, failed: d.failed}
	options := &pebble.Options{
		FS:                         d.files,
		ReadOnly:                   readOnly,
		Cache:                      cache,
		MemTableSize:               cfg.MemTableBytes,
		MaxOpenFiles:               256,
		FormatMajorVersion:         pebble.FormatWALSyncChunks, // tells a torn tail of the log from damage within it
		CompactionConcurrencyRange: func() (int, int) { return 1, 1 },
		DisableTableStats:          true,
		L0CompactionThreshold:      level0Files,
		L0StopWritesThreshold:      4 * level0Files,
		Logger:                     log,
		EventListener: &pebble.EventListener{
			BackgroundError: log.background,
			FlushEnd:        func(pebble.FlushInfo) { d.flushed.Store(true) },
			// As text: these errors carry stack traces, which the log would print.
			DataCorruption: func(info pebble.DataCorruptionInfo) {
				cfg.Log.Error("store found damaged data", "file", info.Path, "error", oneLine(info.Details))
			},
		},
	}
	// A file of the first level lives until the next compaction: compressing it costs more than it saves.
	options.Levels[0].Compression = func() *sstable.CompressionProfile { return sstable.NoCompression }
	options.Levels[1].Compression = func() *sstable.CompressionProfile { return sstable.SnappyCompression }
	return options
}

// level0Files is how many files that overlap make a compaction. More of them make reading slower, which only opening does, and let each compaction
// rewrite less for what it takes in.
const level0Files = 12

// write applies batches one by one, in a goroutine of its own because one that meets a failure never returns.
func (d *database) write() {
	defer func() {
		if p := recover(); p != nil {
			d.failed.set(fmt.Errorf("the database gave up: %v", p))
		}
	}()
	for {
		select {
		case req, more := <-d.requests:
			if !more {
				return
			}
			err := d.Apply(req.batch, req.sync)
			if err != nil {
				d.failed.set(err)
			}
			req.done <- err
		case <-d.failed.done:
			return
		}
	}
}

// apply writes a batch; any error means that the database has failed and that the batch may or may not be there.
func (d *database) apply(b *pebble.Batch, sync bool) error {
	req := request{batch: b, sync: pebble.NoSync, done: make(chan error, 1)}
	if sync {
		req.sync = pebble.Sync
	}
	select {
	case d.requests <- req:
	case <-d.failed.done:
		return d.failed.err
	}
	select {
	case err := <-req.done:
		return err
	case <-d.failed.done:
		return d.failed.err
	}
}

// close releases the files. A failed database is left frozen.
func (d *database) close() error {
	if d.failed.get() != nil {
		return nil
	}
	close(d.requests)
	closed := make(chan error, 1)
	go func() { closed <- d.DB.Close() }()
	select {
	case err := <-closed:
		return err
	case <-d.failed.done:
		return d.failed.err
	}
}

// read gets one record; nil where there is none.
func (d *database) read(key []byte) ([]byte, error) {
	data, closer, err := d.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer closer.Close()
	return append([]byte{}, data...), nil
}

// begin marks a new database as Yare's, or dates an existing one anew, and returns its meta record.
func (d *database) begin() (meta, error) {
	m, err := d.meta()
	if errors.Is(err, errEmpty) {
		m = meta{clean: true}
	} else if err != nil {
		return meta{}, err
	}
	m.epoch++
	return m, d.writeMeta(m)
}

// meta checks that the database is Yare's and of a known form. errEmpty: it holds nothing.
func (d *database) meta() (meta, error) {
	format, err := d.read(formatKey)
	if err != nil {
		return meta{}, err
	}
	if format == nil {
		return meta{}, d.foreign()
	}
	if string(format) != formatVersion {
		return meta{}, damaged(fmt.Sprintf("its format is %q and this Yare reads %q", format, formatVersion))
	}
	data, err := d.read(metaKey)
	if err != nil {
		return meta{}, err
	}
	return decodeMeta(data)
}

// foreign tells a database without Yare's mark from an empty one.
func (d *database) foreign() error {
	it, err := d.NewIter(nil)
	if err != nil {
		return err
	}
	found := it.First()
	if err := errors.Join(it.Error(), it.Close()); err != nil {
		return err
	}
	if found {
		return damaged("it holds the database of another program")
	}
	return errEmpty
}

func (d *database) writeMeta(m meta) error {
	b := d.NewBatch()
	if err := errors.Join(b.Set(formatKey, []byte(formatVersion), nil), b.Set(metaKey, m.encode(), nil)); err != nil {
		return err
	}
	if err := d.apply(b, true); err != nil {
		return err
	}
	return b.Close()
}

// pebbleLog takes Pebble's log lines; none of them ends the process.
type pebbleLog struct {
	log    *slog.Logger
	failed *failure
}

func (l pebbleLog) Infof(format string, args ...any) {
	l.log.Debug("pebble", "line", strings.TrimSpace(fmt.Sprintf(format, args...)))
}

func (l pebbleLog) Errorf(format string, args ...any) {
	l.log.Warn("pebble", "line", strings.TrimSpace(fmt.Sprintf(format, args...)))
}

// Fatalf must not return: Pebble can't go on from there.
func (l pebbleLog) Fatalf(format string, args ...any) {
	l.failed.set(fmt.Errorf(format, args...))
	park()
}

// background hears of failed flushes and compactions. Damage in a file doesn't hinder writing, anything else does.
func (l pebbleLog) background(err error) {
	l.log.Warn("store's background work failed", "error", oneLine(err))
	if !pebble.IsCorruptionError(err) && !errors.Is(err, vfs.ErrUnsupported) {
		l.failed.set(err)
	}
}
