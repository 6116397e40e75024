package crilog

import (
	"bytes"
	"io"
)

// block is how much is read at a time, going backwards.
const block = 64 << 10

// tailOffset finds where the last n lines of output begin. Parts of one line
// count once. An unfinished line at the end of the file counts as one.
func tailOffset(f io.ReaderAt, size int64, n int64) (int64, error) {
	if n <= 0 {
		return size, nil
	}
	// Going backwards, a whole line opens a new line of output, and a part belongs
	// to the one that was opened last.
	w := window{f: f}
	var found int64
	for end := size; end > 0; {
		start, err := w.lineStart(end)
		if err != nil {
			return 0, err
		}
		full, err := lineIsFull(f, start, end)
		if err != nil {
			return 0, err
		}
		if full || end == size {
			if found == n {
				return end, nil
			}
			found++
		}
		end = start
	}
	return 0, nil
}

// window is a piece of a file that is read backwards.
type window struct {
	f    io.ReaderAt
	from int64
	buf  []byte
}

// upTo returns bytes that end at end, and where they begin.
func (w *window) upTo(end int64) ([]byte, int64, error) {
	if w.from < end && end <= w.from+int64(len(w.buf)) {
		return w.buf[:end-w.from], w.from, nil
	}
	w.from = max(0, end-block)
	w.buf = make([]byte, end-w.from)
	_, err := w.f.ReadAt(w.buf, w.from)
	if err == io.EOF {
		err = nil
	}
	return w.buf, w.from, err
}

// lineStart finds the start of the line that ends at end.
func (w *window) lineStart(end int64) (int64, error) {
	for at := end - 1; at > 0; { // the byte at end-1 may be the line's own newline
		part, from, err := w.upTo(at)
		if err != nil {
			return 0, err
		}
		if i := bytes.LastIndexByte(part, '\n'); i >= 0 {
			return from + int64(i) + 1, nil
		}
		at = from
	}
	return 0, nil
}

func lineIsFull(f io.ReaderAt, start, end int64) (bool, error) {
	head := make([]byte, min(end-start, 80)) // enough for time, stream and tags
	if _, err := f.ReadAt(head, start); err != nil && err != io.EOF {
		return false, err
	}
	return isFull(head), nil
}
