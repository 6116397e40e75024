package jsonread

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf8"
)

// at is the byte at i, 0 beyond the end.
func (r *reader) at(i int) byte {
	if i < len(r.data) {
		return r.data[i]
	}
	return 0
}

// space skips white space.
func (r *reader) space(i int) int {
	for i < len(r.data) && r.data[i] <= ' ' {
		if c := r.data[i]; c != ' ' && c != '\n' && c != '\t' && c != '\r' {
			return i
		}
		i++
	}
	return i
}

// ones has each byte 1; tops has each byte's top bit.
const (
	ones = 0x0101010101010101
	tops = 0x8080808080808080
)

// marks marks, by its top bit, the first of eight bytes that is a control character, a quote, a backslash or not ASCII. Bytes above the first may
// be marked without reason.
func marks(w uint64) uint64 {
	return (w | (w - 0x20*ones) | ((w ^ '"'*ones) - ones) | ((w ^ '\\'*ones) - ones)) & tops
}

// ordinary is where the first byte at or after i stands that marks looks for.
func (r *reader) ordinary(i int) int {
	for ; i+8 <= len(r.data); i += 8 {
		if m := marks(binary.LittleEndian.Uint64(r.data[i:])); m != 0 {
			return i + bits.TrailingZeros64(m)/8
		}
	}
	for ; i < len(r.data); i++ {
		if c := r.data[i]; c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			break
		}
	}
	return i
}

// quote finds the end of a string that begins after a quote at i: what stands between the quotes is r.data[i+1:end]. simple says that this is the
// string, without escapes. end is -1 if there is no string at i, or one that is not plain.
func (r *reader) quote(i int) (end int, simple bool) {
	if r.at(i) != '"' {
		return -1, false
	}
	simple = true
	start, ascii := i+1, true
	for i = r.ordinary(start); i < len(r.data); i = r.ordinary(i) {
		switch c := r.data[i]; {
		case c == '"':
			if !ascii && !utf8.Valid(r.data[start:i]) {
				return -1, false
			}
			return i, simple
		case c == '\\':
			simple = false
			i += 2
		case c < ' ':
			return -1, false
		default:
			ascii = false
			i++
		}
	}
	return -1, false
}

// word goes over a literal.
func (r *reader) word(i int, word string) int {
	if len(r.data)-i < len(word) || string(r.data[i:i+len(word)]) != word {
		return -1
	}
	return i + len(word)
}

// number goes over a number.
func (r *reader) number(i int) int {
	if r.at(i) == '-' {
		i++
	}
	if r.at(i) == '0' {
		i++
	} else if i = r.digits(i); i < 0 {
		return -1
	}
	if r.at(i) == '.' {
		if i = r.digits(i + 1); i < 0 {
			return -1
		}
	}
	if c := r.at(i); c == 'e' || c == 'E' {
		if c := r.at(i + 1); c == '+' || c == '-' {
			i++
		}
		return r.digits(i + 1)
	}
	return i
}

// digits goes over digits, of which there must be one.
func (r *reader) digits(i int) int {
	start := i
	for c := r.at(i); '0' <= c && c <= '9'; c = r.at(i) {
		i++
	}
	if i == start {
		return -1
	}
	return i
}

// skip goes over a value of any kind.
func (r *reader) skip(i int) int {
	switch r.at(i) {
	case '{':
		return r.skipMembers(i, '{', '}')
	case '[':
		return r.skipMembers(i, '[', ']')
	case '"':
		return r.skipString(i)
	case 't':
		return r.word(i, "true")
	case 'f':
		return r.word(i, "false")
	case 'n':
		return r.word(i, "null")
	}
	return r.number(i)
}

func (r *reader) skipMembers(i int, open, end byte) int {
	if i = r.enter(i, open); i < 0 {
		return -1
	}
	if r.at(i) == end {
		return r.leave(i + 1)
	}
	for last := false; !last; {
		if open == '{' {
			if i = r.colon(r.skipString(i)); i < 0 {
				return -1
			}
		}
		if i, last = r.more(r.skip(i), end); i < 0 {
			return -1
		}
	}
	return r.leave(i)
}

// colon goes from the end of a name to the value.
func (r *reader) colon(i int) int {
	if i < 0 {
		return -1
	}
	if i = r.space(i); r.at(i) != ':' {
		return -1
	}
	return r.space(i + 1)
}

// skipString goes over a string; it must be valid, though nobody reads it.
func (r *reader) skipString(i int) int {
	end, simple := r.quote(i)
	if end < 0 {
		return -1
	}
	if !simple {
		var ok bool
		if r.text, ok = unescape(r.text[:0], r.data[i+1:end]); !ok {
			return -1
		}
	}
	return end + 1
}
