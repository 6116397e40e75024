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
	// Going backwards, the start of a line is known when the newline before it is
	// found; whether that newline ended a whole line of output decides if the line
	// before belongs to the same one.
	end := size // end of the line in hand, after its newline
	var found int64
	for start := size; start > 0; {
		prev, err := lineStart(f, end)
		if err != nil {
			return 0, err
		}
		full, err := lineIsFull(f, prev, end)
		if err != nil {
			return 0, err
		}
		if full || end == size {
			if found == n {
				return end, nil
			}
			found++
		}
		start, end = prev, prev
	}
	return 0, nil
}

// lineStart finds the start of the line that ends at end.
func lineStart(f io.ReaderAt, end int64) (int64, error) {
	buf := make([]byte, block)
	for at := end - 1; at > 0; { // the byte at end-1 may be the line's own newline
		from := max(0, at-block)
		part := buf[:at-from]
		if _, err := f.ReadAt(part, from); err != nil && err != io.EOF {
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
