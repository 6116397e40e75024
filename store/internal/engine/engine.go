// Package engine is the in-memory half of a store: proposed and visible state, revision order, group commit, event rings, snapshots
// and watches. A [Journal] adds what survives the process; without one the engine is the whole store.
//
// How a commit travels:
//
//	Commit: check, stamp, join the open batch (one short lock) ─► encode (in the caller) ─► wait
//	committer: take the open batch ─► Journal.Append ─► publish ─► wake callers and watchers; meanwhile the next batch collects
//
// All that readers see hangs on one atomic pointer, [world]: the visible revision and, for each table, an immutable tree and its
// retained events. Reads therefore take no lock, and a batch that touches several tables becomes visible at once.
//
// Two states exist besides: what is proposed (visible state plus the writes of batches that are not on disk yet), which only checks
// of new writes see; and what is loose (keys whose disk state a crash could differ from memory), which is written again after the
// journal failed.
package engine

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/yare-project/yare/store"
)

// DefaultRingBytes bounds a table's retained events where its config doesn't.
const DefaultRingBytes = 4 << 20

// Config describes an engine.
type Config struct {
	// Journal keeps writes; nil for a store that lives and dies with the process.
	Journal Journal
	// Start is the newest revision that may have been seen by anybody before: the first write gets a higher one.
	Start store.Revision
	// Unclean says that the last run ended without Close, so that relaxed writes that readers saw may be gone.
	Unclean bool
	// RingBytes is the event budget of tables that name none; zero means DefaultRingBytes.
	RingBytes int
	// Log gets what an operator should know; nil discards.
	Log *slog.Logger
	// CheckImmutable fingerprints every value and looks whether somebody changed it. It costs an encoding per write and check.
	CheckImmutable bool
	// OnMutation is told of a changed value; nil panics.
	OnMutation func(error)
}

// Engine implements store.Store.
type Engine struct {
	cfg   Config
	world atomic.Pointer[world]
	// waiting counts the goroutines parked on a table's change, to decide who wakes them.
	waiting atomic.Int64

	mu       sync.Mutex // guards proposed state: the fields below and every table's pending
	work     *sync.Cond
	open     *batch
	proposed store.Revision
	closing  bool

	tablesMu sync.Mutex // guards names and, through its opening, who may make a table
	names    map[string]*opening
	publish  sync.Mutex // held while world is replaced

	persist persister

	closeOnce sync.Once
	closeErr  error
	drained   chan struct{} // closed when the committer has ended
	closed    chan struct{} // closed when watches must end
}

var _ store.Store = (*Engine)(nil)

// New starts an engine; Close stops it.
func New(cfg Config) *Engine {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.RingBytes <= 0 {
		cfg.RingBytes = DefaultRingBytes
	}
	if cfg.OnMutation == nil {
		cfg.OnMutation = func(err error) { panic(err) }
	}
	cfg.CheckImmutable = cfg.CheckImmutable || checkByDefault
	e := &Engine{
		cfg:      cfg,
		open:     newBatch(),
		proposed: cfg.Start,
		names:    map[string]*opening{},
		drained:  make(chan struct{}),
		closed:   make(chan struct{}),
	}
	e.persist = persister{journal: cfg.Journal, visible: e.visibleItem, log: cfg.Log}
	e.work = sync.NewCond(&e.mu)
	e.world.Store(&world{revision: cfg.Start, next: make(chan struct{})})
	go e.run()
	return e
}

// Commit implements store.Store.
func (e *Engine) Commit(ctx context.Context, writes ...store.Write) (store.Revision, error) {
	if err := ctx.Err(); err != nil {
		return 0, fmt.Errorf("store: nothing was committed: %w", err)
	}
	b, group, last, err := e.propose(writes)
	if err != nil {
		return 0, err
	}
	b.encode(group, e.cfg.Journal != nil)
	select {
	case <-b.done:
		return b.outcome(last)
	default:
	}
	select {
	case <-b.done:
		return b.outcome(last)
	case <-ctx.Done():
		return 0, fmt.Errorf("store: gave up waiting for a commit that may still land: %w", ctx.Err())
	}
}

// Revision implements store.Store.
func (e *Engine) Revision() store.Revision { return e.world.Load().revision }

// Close implements store.Store. A second call returns what the first did.
func (e *Engine) Close() error {
	e.closeOnce.Do(func() {
		e.mu.Lock()
		e.closing = true
		e.work.Broadcast()
		e.mu.Unlock()
		<-e.drained
		e.closeErr = e.persist.close(e.proposed)
		e.checkAll()
		close(e.closed)
	})
	<-e.closed
	return e.closeErr
}

func (e *Engine) visibleItem(t *table, key string) (store.Item, bool) {
	return e.world.Load().states[t.id].get(key)
}
