package disk

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Pebble's write-ahead log is a row of blocks of 32 KiB; a block is a row of chunks, and what is left of it, if no header fits, is zero.
// A chunk's header: 4 bytes of checksum, 2 of payload length, 1 of type, 4 of log number, 8 that tell how much of the log was synced when
// the chunk was written; all little endian. (See package record of Pebble.)
const (
	logBlock       = 32 << 10
	logHeader      = 19
	firstChunkType = 9
	lastChunkType  = 12
)

func logNumber(name string) (uint64, bool) {
	digits, ok := strings.CutSuffix(name, ".log")
	if !ok {
		return 0, false
	}
	number, err := strconv.ParseUint(digits, 10, 64)
	return number, err == nil
}

// checkLogs finds damage in the midst of a log. Pebble takes a chunk that it can't read for the log's end, unless a later block tells that
// it was once synced; here every later chunk can tell. Of the last chunk or two
// nothing tells. Logs before the first hold nothing that isn't in tables as well, or Pebble itself
// wants them whole.
func checkLogs(files vfs.FS, dir string, names []string, first uint64) error {
	for _, name := range names {
		number, ok := logNumber(name)
		if !ok || number < first {
			continue
		}
		data, err := readFile(files, files.PathJoin(dir, name))
		if err != nil {
			return err
		}
		end := logEnd(data, uint32(number))
		if promised := promisedLog(data[end:], uint32(number)); promised > uint64(end) {
			return damaged(fmt.Sprintf("%s is whole up to byte %d and had at least %d", name, end, promised))
		}
	}
	return nil
}

func readFile(files vfs.FS, name string) ([]byte, error) {
	f, err := files.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
}

// logEnd is where the first chunk begins that isn't whole.
func logEnd(data []byte, number uint32) int {
	for at := 0; ; {
		if left := logBlock - at%logBlock; left < logHeader {
			at += left
		}
		if at >= len(data) {
			return len(data)
		}
		size, _, ok := logChunk(data[at:], number)
		if !ok {
			return at
		}
		at += size
	}
}

// promisedLog is how much of the log was synced according to the chunks in its rest.
func promisedLog(rest []byte, number uint32) (promised uint64) {
	for at := range rest {
		if _, synced, ok := logChunk(rest[at:], number); ok {
			promised = max(promised, synced)
		}
	}
	return promised
}

// logChunk reads the chunk at the start of data.
func logChunk(data []byte, number uint32) (size int, synced uint64, ok bool) {
	if len(data) < logHeader || data[6] < firstChunkType || data[6] > lastChunkType || binary.LittleEndian.Uint32(data[7:]) != number {
		return 0, 0, false
	}
	size = logHeader + int(binary.LittleEndian.Uint16(data[4:]))
	if size > len(data) {
		return 0, 0, false
	}
	sum := crc32.Checksum(data[6:size], castagnoli)
	if (sum>>15|sum<<17)+0xa282ead8 != binary.LittleEndian.Uint32(data) {
		return 0, 0, false
	}
	return size, binary.LittleEndian.Uint64(data[11:]), true
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)
