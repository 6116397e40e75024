package engine

import (
	"fmt"
	"hash/fnv"

	"github.com/yare-project/yare/store"
)

// fingerprints remembers what each value of a table looked like when it was written, by revision. A nil map checks nothing.
type fingerprints map[store.Revision]uint64

func (f fingerprints) note(t *table, key string, en entry) {
	if f == nil {
		return
	}
	sum, err := fingerprint(en.value)
	if err != nil {
		t.engine.cfg.OnMutation(fmt.Errorf("store: %s %q at revision %d cannot be encoded: %w", t.cfg.Name, key, en.revision, err))
		return
	}
	f[en.revision] = sum
}

// check reports a value that isn't what it was.
func (f fingerprints) check(t *table, key string, en entry) {
	want, ok := f[en.revision]
	if !ok {
		return
	}
	if sum, err := fingerprint(en.value); err == nil && sum == want {
		return
	}
	t.engine.cfg.OnMutation(fmt.Errorf(
		"store: %s %q at revision %d was changed after it was stored: values are shared and immutable, copy before changing", t.cfg.Name, key, en.revision))
}

// drop checks an event's value for the last time. The newest state of a key stays known.
func (f fingerprints) drop(t *table, ev store.Event) {
	if f == nil {
		return
	}
	f.check(t, ev.Key, newEntry(ev.Value, ev.Revision))
	if en, ok := t.work.Get(ev.Key); !ok || en.revision != ev.Revision {
		delete(f, ev.Revision)
	}
}

func fingerprint(v store.Value) (uint64, error) {
	encode := v.Encode
	if fresh, ok := v.(store.Fresh); ok {
		encode = fresh.EncodeFresh
	}
	data, err := encode()
	if err != nil {
		return 0, err
	}
	h := fnv.New64a()
	_, _ = h.Write(data)
	return h.Sum64(), nil
}

// checkAll looks at every value that is still held, when the engine closes.
func (e *Engine) checkAll() {
	if !e.cfg.CheckImmutable {
		return
	}
	e.publish.Lock()
	defer e.publish.Unlock()
	e.tablesMu.Lock()
	defer e.tablesMu.Unlock()
	for _, o := range e.names {
		select {
		case <-o.done:
		default:
			continue // still being opened: nothing was handed out
		}
		t := o.table
		for _, ev := range t.ring.events {
			t.sums.check(t, ev.Key, newEntry(ev.Value, ev.Revision))
		}
		t.work.Scan(func(key string, en entry) bool {
			t.sums.check(t, key, en)
			return true
		})
	}
}
