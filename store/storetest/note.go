package storetest

import (
	"encoding/binary"
	"fmt"

	"github.com/yare-project/yare/store"
)

// Note is a value that knows the revision it was stamped with, so that tests see when a store confuses values.
type Note struct {
	Rev  store.Revision
	Text string
}

// Encode implements store.Value.
func (n *Note) Encode() ([]byte, error) {
	return n.AppendEncode(nil)
}

// AppendEncode implements store.Appender.
func (n *Note) AppendEncode(dst []byte) ([]byte, error) {
	return append(binary.BigEndian.AppendUint64(dst, n.Rev), n.Text...), nil
}

// Mark implements store.Marked.
func (n *Note) Mark() uint64 { return n.Rev }

// Size implements store.Value.
func (n *Note) Size() int { return 8 + len(n.Text) }

// DecodeNote reads what Encode gave and refuses bytes that belong to another revision.
func DecodeNote(_ string, rev store.Revision, data []byte) (store.Value, error) {
	if len(data) < 8 {
		return nil, fmt.Errorf("a note of %d bytes is too short", len(data))
	}
	n := &Note{Rev: binary.BigEndian.Uint64(data), Text: string(data[8:])}
	if n.Rev != rev {
		return nil, fmt.Errorf("the note was stamped with revision %d but stored under %d", n.Rev, rev)
	}
	return n, nil
}

// State is one key's state in a form that compares.
type State struct {
	Rev  store.Revision
	Text string
}

// Change is an event in a form that compares.
type Change struct {
	Rev     store.Revision
	Key     string
	Text    string
	Prev    State
	Deleted bool
}

func changes(events []store.Event) []Change {
	var out []Change
	for _, ev := range events {
		c := Change{Rev: ev.Revision, Key: ev.Key, Text: ev.Value.(*Note).Text, Deleted: ev.Deleted}
		if ev.Prev != nil {
			c.Prev = State{Rev: ev.PrevRevision, Text: ev.Prev.(*Note).Text}
		}
		out = append(out, c)
	}
	return out
}

// Contents lists a snapshot and fails if it contradicts itself.
func Contents(t TB, s store.Snapshot) map[string]State {
	t.Helper()
	out := map[string]State{}
	last := ""
	s.Ascend("", "", func(it store.Item) bool {
		if it.Mark != it.Revision {
			t.Fatalf("the mark of %q is %d, the value's is %d", it.Key, it.Mark, it.Revision)
		}
		if len(out) > 0 && it.Key <= last {
			t.Fatalf("Ascend gave %q after %q", it.Key, last)
		}
		last = it.Key
		n := it.Value.(*Note)
		if n.Rev != it.Revision {
			t.Fatalf("%q: the item has revision %d, its value was stamped with %d", it.Key, it.Revision, n.Rev)
		}
		if got, ok := s.Get(it.Key); !ok || got != it {
			t.Fatalf("Get(%q) = %v, %v, but Ascend gave %v", it.Key, got, ok, it)
		}
		out[it.Key] = State{Rev: it.Revision, Text: n.Text}
		return true
	})
	if s.Len() != len(out) {
		t.Fatalf("Len is %d, Ascend gave %d keys", s.Len(), len(out))
	}
	return out
}
