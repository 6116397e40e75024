package jsonread

import (
	"bytes"
	"strconv"
)

// Object reads data, a plain JSON object, as maps, lists, strings, int64s, float64s, booleans and nil. A number is an int64 if it is written as an
// integer and is one. It reports false if the document is not plain.
func Object(data []byte) (map[string]any, bool) {
	r := readers.Get().(*reader)
	r.data, r.depth = data, 0
	out, i := r.object(r.space(0))
	ok := i >= 0 && r.space(i) == len(data)
	r.data = nil
	readers.Put(r)
	if !ok {
		return nil, false
	}
	return out, true
}

// any reads a value of any kind.
func (r *reader) any(i int) (v any, end int) {
	switch r.at(i) {
	case '{':
		return r.object(i)
	case '[':
		return r.array(i)
	case '"':
		return r.string(i)
	case 't':
		return true, r.word(i, "true")
	case 'f':
		return false, r.word(i, "false")
	case 'n':
		return nil, r.word(i, "null")
	}
	return r.amountOf(i)
}

func (r *reader) object(i int) (map[string]any, int) {
	out := map[string]any{}
	if i = r.enter(i, '{'); i < 0 {
		return nil, -1
	}
	if r.at(i) == '}' {
		return out, r.leave(i + 1)
	}
	for last := false; !last; {
		key, end := r.string(i)
		if i = r.colon(end); i < 0 {
			return nil, -1
		}
		known := len(out)
		var v any
		v, end = r.any(i)
		out[key] = v
		if len(out) == known { // the key stands twice
			return nil, -1
		}
		if i, last = r.more(end, '}'); i < 0 {
			return nil, -1
		}
	}
	return out, r.leave(i)
}

func (r *reader) array(i int) ([]any, int) {
	out := []any{}
	if i = r.enter(i, '['); i < 0 {
		return nil, -1
	}
	if r.at(i) == ']' {
		return out, r.leave(i + 1)
	}
	for last := false; !last; {
		v, end := r.any(i)
		out = append(out, v)
		if i, last = r.more(end, ']'); i < 0 {
			return nil, -1
		}
	}
	return out, r.leave(i)
}

func (r *reader) amountOf(i int) (any, int) {
	end := r.number(i)
	if end < 0 {
		return nil, -1
	}
	text := r.data[i:end]
	if !bytes.ContainsAny(text, ".eE") {
		if n, err := strconv.ParseInt(bytesAsString(text), 10, 64); err == nil {
			return n, end
		}
	}
	f, err := strconv.ParseFloat(bytesAsString(text), 64)
	if err != nil {
		return nil, -1
	}
	return f, end
}
