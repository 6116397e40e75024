package crilog

import (
	"bytes"
	"fmt"
	"time"
)

// timeFormat prints a fixed width of nanoseconds, as clients expect of ?timestamps.
const timeFormat = "2006-01-02T15:04:05.000000000Z07:00"

// line is one line of the file, without its newline.
type line struct {
	stamp   time.Time
	stderr  bool
	partial bool
	content []byte // shares memory with the input
}

func parse(b []byte) (line, error) {
	stamp, rest, ok1 := bytes.Cut(b, []byte{' '})
	stream, rest, ok2 := bytes.Cut(rest, []byte{' '})
	tags, content, ok3 := bytes.Cut(rest, []byte{' '})
	if !ok1 || !ok2 || (!ok3 && len(tags) == 0) {
		return line{}, fmt.Errorf("log line %.80q is not of the form TIME STREAM TAGS CONTENT", b)
	}
	at, err := time.Parse(time.RFC3339Nano, string(stamp))
	if err != nil {
		return line{}, fmt.Errorf("log line %.80q: time: %w", b, err)
	}
	l := line{stamp: at, content: content}
	switch string(stream) {
	case "stdout":
	case "stderr":
		l.stderr = true
	default:
		return line{}, fmt.Errorf("log line %.80q: stream is neither stdout nor stderr", b)
	}
	// Tags are separated by colons; the first says whether the line is whole.
	first, _, _ := bytes.Cut(tags, []byte{':'})
	l.partial = string(first) == "P"
	return l, nil
}

// isFull tells, without parsing the rest, whether a line of the file ends a line
// of the program's output.
func isFull(b []byte) bool {
	for range 2 {
		_, b, _ = bytes.Cut(b, []byte{' '})
	}
	tags, _, _ := bytes.Cut(b, []byte{' '})
	first, _, _ := bytes.Cut(tags, []byte{':'})
	return string(first) != "P"
}
