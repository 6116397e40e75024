package disk

import (
	"encoding/binary"
	"fmt"

	"github.com/yare-project/yare/store"
)

// The layout. A record's key starts with one letter for what it is:
//
//	f                    format version, as text
//	m                    meta: 8 bytes of revision ceiling, 8 of epoch (big endian), 1 byte: 1 if the last run closed in order
//	d <table>            8 bytes: revision of the table's newest delete
//	t <table> NUL <key>  8 bytes: revision; then the value's bytes
const formatVersion = "1"

var (
	formatKey = []byte("f")
	metaKey   = []byte("m")
)

const revisionBytes = 8

// meta bounds what the last run did. No revision above the ceiling was ever visible.
type meta struct {
	ceiling store.Revision
	clean   bool
	// epoch grows with every meta record, to date a database; see witness.go.
	epoch uint64
}

func (m meta) encode() []byte {
	out := binary.BigEndian.AppendUint64(nil, m.ceiling)
	out = binary.BigEndian.AppendUint64(out, m.epoch)
	if m.clean {
		return append(out, 1)
	}
	return append(out, 0)
}

func decodeMeta(data []byte) (meta, error) {
	const size = revisionBytes + 8 + 1
	if len(data) != size || data[size-1] > 1 {
		return meta{}, damaged(fmt.Sprintf("the meta record has %d bytes, not the %d that were written", len(data), size))
	}
	return meta{
		ceiling: binary.BigEndian.Uint64(data),
		epoch:   binary.BigEndian.Uint64(data[revisionBytes:]),
		clean:   data[size-1] == 1,
	}, nil
}

func deleteKey(table string) []byte { return append([]byte("d"), table...) }

func tablePrefix(table string) []byte {
	return appendKey(make([]byte, 0, keyLen(table, "")), table, "")
}

// appendKey appends the key of a record, which is keyLen bytes long, to dst.
func appendKey(dst []byte, table, key string) []byte {
	dst = append(dst, 't')
	dst = append(dst, table...)
	dst = append(dst, 0)
	return append(dst, key...)
}

func keyLen(table, key string) int { return 1 + len(table) + 1 + len(key) }

// tableEnd is behind the last possible key of a table.
func tableEnd(table string) []byte {
	out := tablePrefix(table)
	out[len(out)-1] = 1
	return out
}

func decodeRevision(data []byte) (store.Revision, error) {
	if len(data) < revisionBytes {
		return 0, damaged(fmt.Sprintf("a record has %d bytes, too few for its revision", len(data)))
	}
	return binary.BigEndian.Uint64(data), nil
}
