package jsonread

import (
	"encoding/base64"
	"encoding/binary"
	"unicode/utf16"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/api/resource"
)

// shared are values that many objects have in common, and a buffer.
type shared struct {
	strings    [512]string
	quantities [64]quantity
	text       []byte
}

type quantity struct {
	text  string
	value resource.Quantity
}

// maxShared is the length of the longest string that may be shared.
const maxShared = 32

// hash spreads short texts that differ at their ends.
func hash(b []byte) uint32 {
	h := uint64(len(b))
	if n := len(b); n >= 8 {
		h ^= binary.LittleEndian.Uint64(b) ^ binary.LittleEndian.Uint64(b[n-8:])<<1
	} else {
		for _, c := range b {
			h = h<<8 | uint64(c)
		}
	}
	return uint32(h * 0x9e3779b97f4a7c15 >> 40)
}

// keep makes a string of b: one that an object read before has, if it is short and was read lately.
func (s *shared) keep(b []byte) string {
	if len(b) == 0 {
		return ""
	}
	if len(b) > maxShared {
		return string(b)
	}
	known := &s.strings[hash(b)%uint32(len(s.strings))]
	if *known != string(b) {
		*known = string(b)
	}
	return *known
}

// string reads a string.
func (r *reader) string(i int) (s string, end int) {
	end, simple := r.quote(i)
	if end < 0 {
		return "", -1
	}
	b := r.data[i+1 : end]
	if !simple {
		var ok bool
		if r.text, ok = unescape(r.text[:0], b); !ok {
			return "", -1
		}
		b = r.text
	}
	return r.keep(b), end + 1
}

// unescape appends what a string with escapes stands for. Halves of characters are not plain.
func unescape(dst, b []byte) ([]byte, bool) {
	for i := 0; i < len(b); {
		if b[i] != '\\' {
			dst = append(dst, b[i])
			i++
			continue
		}
		if i+1 == len(b) {
			return dst, false
		}
		c := b[i+1]
		i += 2
		switch c {
		case '"', '\\', '/':
		case 'b':
			c = '\b'
		case 'f':
			c = '\f'
		case 'n':
			c = '\n'
		case 'r':
			c = '\r'
		case 't':
			c = '\t'
		case 'u':
			u, n := escaped(b[i:])
			if n == 0 {
				return dst, false
			}
			dst = utf8.AppendRune(dst, u)
			i += n
			continue
		default:
			return dst, false
		}
		dst = append(dst, c)
	}
	return dst, true
}

// escaped reads the hexadecimal digits of a character, and the second half if it has two; n is 0 if there is none.
func escaped(b []byte) (u rune, n int) {
	u = hex4(b)
	if u < 0 || !utf16.IsSurrogate(u) {
		if u < 0 {
			return 0, 0
		}
		return u, 4
	}
	if len(b) < 6 || b[4] != '\\' || b[5] != 'u' {
		return 0, 0
	}
	if u = utf16.DecodeRune(u, hex4(b[6:])); u == utf8.RuneError {
		return 0, 0
	}
	return u, 10
}

func hex4(b []byte) rune {
	if len(b) < 4 {
		return -1
	}
	var u rune
	for _, c := range b[:4] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return -1
		}
		u = u<<4 | rune(c)
	}
	return u
}

// binary reads base64.
func (r *reader) binary(i int) (b []byte, end int) {
	end, simple := r.quote(i)
	if end < 0 || !simple {
		return nil, -1
	}
	text := r.data[i+1 : end]
	b = make([]byte, base64.StdEncoding.DecodedLen(len(text)))
	n, err := base64.StdEncoding.Decode(b, text)
	if err != nil {
		return nil, -1
	}
	return b[:n], end + 1
}
