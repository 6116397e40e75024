package engine

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/yare-project/yare/store"
)

// watch implements store.Watch: a position and nothing else, so that an idle or slow one costs the publisher nothing.
type watch struct {
	table    *table
	position atomic.Uint64 // every event up to here was returned
	once     sync.Once
	closed   chan struct{}
}

func (t *table) Watch(rev store.Revision) (store.Watch, error) {
	select {
	case <-t.engine.closed:
		return nil, store.ErrClosed
	default:
	}
	w := t.engine.world.Load()
	if err := w.retained(w.states[t.id], rev); err != nil {
		return nil, err
	}
	out := &watch{table: t, closed: make(chan struct{})}
	out.position.Store(rev)
	return out, nil
}

func (w *watch) Next(ctx context.Context) ([]store.Event, error) {
	for {
		events, s, err := w.ready()
		if err != nil || len(events) > 0 {
			return events, err
		}
		if err := w.park(ctx, s); err != nil {
			return nil, err
		}
	}
}

func (w *watch) Ready() ([]store.Event, error) {
	events, _, err := w.ready()
	return events, err
}

// ready also returns the state that it looked at.
func (w *watch) ready() ([]store.Event, *state, error) {
	select {
	case <-w.closed:
		return nil, nil, store.ErrClosed
	default:
	}
	world := w.table.engine.world.Load()
	s := world.states[w.table.id]
	events, err := w.read(world, s)
	return events, s, err
}

// read returns what is ready and moves the position.
func (w *watch) read(world *world, s *state) ([]store.Event, error) {
	position := w.position.Load()
	if position < s.floor {
		return nil, fmt.Errorf("%w: the watch stands at %d, oldest is %d", store.ErrCompacted, position, s.floor)
	}
	events := s.events[s.after(position):]
	if world.revision > position {
		w.position.Store(world.revision)
	}
	return events[:len(events):len(events)], nil
}

func (w *watch) park(ctx context.Context, s *state) error {
	w.table.engine.waiting.Add(1)
	defer w.table.engine.waiting.Add(-1)
	select {
	case <-s.next:
		return nil
	case <-w.closed:
		return store.ErrClosed
	case <-w.table.engine.closed:
		return store.ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Progress grows while nothing happens in the table but elsewhere, so that a bookmark can tell a client to resume from there.
func (w *watch) Progress() store.Revision {
	position := w.position.Load()
	world := w.table.engine.world.Load()
	s := world.states[w.table.id]
	if position >= s.floor && s.after(position) == len(s.events) {
		return max(position, world.revision)
	}
	return position
}

func (w *watch) Close() { w.once.Do(func() { close(w.closed) }) }
