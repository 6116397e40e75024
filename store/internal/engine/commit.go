package engine

import (
	"fmt"
)

// run is the committer: it writes and publishes one batch after the other until the engine closes and nothing is left.
func (e *Engine) run() {
	defer close(e.drained)
	for {
		b := e.take()
		if b == nil {
			return
		}
		b.encoding.Wait()
		if err := e.settle(b); err != nil {
			e.abort(b, err)
			continue
		}
		e.show(b)
	}
}

// take waits for commits and closes the batch that they joined; nil says that there will be none.
func (e *Engine) take() *batch {
	e.mu.Lock()
	defer e.mu.Unlock()
	for e.open.commits == 0 {
		if e.closing {
			return nil
		}
		e.work.Wait()
	}
	b := e.open
	e.open = newBatch()
	return b
}

func (e *Engine) settle(b *batch) error {
	if b.badValue != nil {
		return b.badValue
	}
	defer b.release()
	return e.persist.write(b)
}

// abort takes back a batch that could not be written, and the open one, whose writes were checked against it. Revisions that were
// given out are not given out again.
func (e *Engine) abort(b *batch, err error) {
	e.mu.Lock()
	next := e.open
	e.open = newBatch()
	for _, group := range append(b.groups, next.groups...) {
		for i := range group {
			delete(group[i].table.pending, group[i].key)
		}
	}
	e.mu.Unlock()
	e.cfg.Log.Error("store refused writes", "commits", b.commits+next.commits, "error", err)
	b.finish(err)
	next.finish(fmt.Errorf("store: undone with the batch before it: %w", err))
}
