package disk

import (
	"bytes"
	"testing"
)

// FuzzRecords reads what is on a disk: what is taken for a record is one that would be written so.
func FuzzRecords(f *testing.F) {
	f.Add(meta{ceiling: 1, epoch: 2, clean: true}.encode(), "pods", "ns/a")
	f.Add(meta{}.encode(), "", "")
	f.Add([]byte("12345678"), "a", "\x00")
	f.Add([]byte{}, "pods.apps", "b/c")
	f.Fuzz(func(t *testing.T, data []byte, table, key string) {
		if m, err := decodeMeta(data); err == nil && !bytes.Equal(m.encode(), data) {
			t.Errorf("%x was read as %x", data, m.encode())
		}
		if rev, err := decodeRevision(data); err == nil && len(data) < revisionBytes {
			t.Errorf("%x has the revision %d", data, rev)
		}
		full := appendKey(nil, table, key)
		if len(full) != keyLen(table, key) || !bytes.HasPrefix(full, tablePrefix(table)) || bytes.Compare(full, tableEnd(table)) >= 0 {
			t.Errorf("the key %x is not within its table %q", full, table)
		}
	})
}
