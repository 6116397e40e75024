// Package disk is the default store: everything in memory for reading, every write in a Pebble database for surviving.
//
// Beyond package store it guarantees:
//   - One process at a time uses a folder; a second one gets ErrInUse.
//   - After a crash or a power cut every acknowledged Durable write is there, and no commit is half there. A write that was refused for
//     an I/O error may be there if the process ends before it could write again. Relaxed writes of the last moments may be gone;
//     then watches of their tables must list again.
//   - A write that the disk refuses (full, failing) is undone in memory, reads go on, and writes work again by themselves once the disk
//     does: room is looked at before each batch, and a failed database is opened anew.
//
// A failed write leaves Pebble in a state that it doesn't claim to survive. The files are therefore reached through [freezer], which parks,
// for good, whoever meets a write error, and everybody who wants to write after that: the database is frozen as it was, nothing of it
// can do harm to the one that is opened in its place, and it costs a few MiB until the process ends.
//
// Damage is refused, not papered over: a folder that lost something when it opens, before anything in it is changed; a block that can't be
// read when the table it belongs to opens. See witness.go for what Pebble would not notice by itself, and
// wal.go for what nobody can (the last record of a log, in a store that was killed).
//
// It doesn't encrypt, replicate or back up. It is safe for concurrent use.
package disk

import (
	"errors"
	"log/slog"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"k8s.io/utils/clock"

	"github.com/yare-project/yare/store"
	"github.com/yare-project/yare/store/internal/engine"
)

// Config describes a store on disk. Only Dir must be set.
type Config struct {
	// Dir is the data folder; it is made if it doesn't exist.
	Dir string
	// FS holds the folder; nil is the machine's.
	FS vfs.FS
	// Clock spaces out the attempts to open a failed database again; nil is the machine's.
	Clock clock.PassiveClock
	// Log gets what an operator should know; nil discards.
	Log *slog.Logger
	// RingBytes bounds, per table, the events kept for watchers that lag, where the table's own config doesn't. Zero means 4 MiB.
	RingBytes int
	// CacheBytes is Pebble's block cache: only opening and compaction read. Zero means 8 MiB.
	CacheBytes int64
	// MemTableBytes is how much is written before Pebble sorts it into a file, and bounds how much an open must replay. Zero means 4 MiB.
	MemTableBytes uint64
	// ReserveBytes is the room that must be left on the disk for a write to be accepted, so that Pebble can always flush what it has.
	// Zero means four times MemTableBytes.
	ReserveBytes uint64
	// CheckImmutable looks for values that were changed after they were stored, at the cost of encoding them again. Builds with
	// -tags immutable always do.
	CheckImmutable bool
	// OnMutation is told of such a value; nil panics.
	OnMutation func(error)
}

func (c *Config) setDefaults() {
	if c.FS == nil {
		c.FS = vfs.Default
	}
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.CacheBytes == 0 {
		c.CacheBytes = 8 << 20
	}
	if c.MemTableBytes == 0 {
		c.MemTableBytes = 4 << 20
	}
	if c.ReserveBytes == 0 {
		c.ReserveBytes = 4 * c.MemTableBytes
	}
}

// Open opens the store in cfg.Dir, making it if there is none. Errors: ErrInUse, ErrDamaged, store.ErrFull, or the file system's own;
// each names the folder and says what to do.
func Open(cfg Config) (store.Store, error) {
	cfg.setDefaults()
	if cfg.Dir == "" {
		return nil, errors.New("store: no data folder was given")
	}
	lock, err := lockFolder(cfg.FS, cfg.Dir)
	if err != nil {
		return nil, err
	}
	j := &journal{cfg: cfg, lock: lock, cache: pebble.NewCache(cfg.CacheBytes)}
	start, unclean, err := j.start()
	if err != nil {
		j.release()
		return nil, err
	}
	if unclean {
		cfg.Log.Info("store was not closed in order; relaxed writes of its last moments may be missing", "dir", cfg.Dir, "revision", start)
	}
	return engine.New(engine.Config{
		Journal: j, Start: start, Unclean: unclean, RingBytes: cfg.RingBytes, Log: cfg.Log,
		CheckImmutable: cfg.CheckImmutable, OnMutation: cfg.OnMutation,
	}), nil
}

// start opens the database and reads where the last run ended.
func (j *journal) start() (start store.Revision, unclean bool, err error) {
	if err := j.room(0); err != nil {
		return 0, false, err
	}
	if err := j.examine(); err != nil {
		return 0, false, err
	}
	if err := j.reopen(); err != nil {
		return 0, false, err
	}
	return j.meta.ceiling, !j.meta.clean, nil
}
