package jsonwrite

import (
	"encoding/base64"
	"encoding/binary"
	"math/bits"
	"unicode/utf8"
	"unsafe"
)

// ones has each byte 1; tops has each byte's top bit.
const (
	ones = 0x0101010101010101
	tops = 0x8080808080808080
)

// special marks, by its top bit, the first of eight bytes that can not stand in a string as it is or needs a look: control characters, quote,
// backslash, <, >, & and all that is not ASCII. Bytes above the first may be marked without reason.
func special(w uint64) uint64 {
	m := w | (w - 0x20*ones)
	m |= ((w | 0x04*ones) ^ 0x26*ones) - ones // " and &
	m |= ((w | 0x02*ones) ^ 0x3e*ones) - ones // < and >
	m |= (w ^ 0x5c*ones) - ones               // \
	return m & tops
}

// ordinary is how many of b's first bytes can stand in a string as they are.
func ordinary(b []byte) int {
	if len(b) < 8 {
		return ordinaryShort(b)
	}
	last := len(b) - 8
	for i := 0; ; i += 8 {
		i = min(i, last)
		if m := special(binary.LittleEndian.Uint64(b[i:])); m != 0 {
			return i + bits.TrailingZeros64(m)/8
		}
		if i == last {
			return len(b)
		}
	}
}

func ordinaryShort(b []byte) int {
	if len(b) >= 4 { // two halves that overlap
		both := uint64(binary.LittleEndian.Uint32(b)) | uint64(binary.LittleEndian.Uint32(b[len(b)-4:]))<<32
		if special(both) == 0 {
			return len(b)
		}
	}
	for i, c := range b {
		if c < ' ' || c >= utf8.RuneSelf || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			return i
		}
	}
	return len(b)
}

func bytesOf(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }

// AppendString appends s as a JSON string.
func AppendString(dst []byte, s string) []byte { return appendString(dst, s) }

func appendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	dst = appendText(dst, bytesOf(s))
	return append(dst, '"')
}

// appendText appends what stands for b within quotes.
func appendText(dst, b []byte) []byte {
	n := ordinary(b)
	dst = append(dst, b[:n]...)
	if n < len(b) {
		dst = appendEscaped(dst, b[n:])
	}
	return dst
}

const hexDigits = "0123456789abcdef"

// appendEscaped is appendText for what begins with a byte that is special.
func appendEscaped(dst, b []byte) []byte {
	for len(b) > 0 {
		c, size := rune(b[0]), 1
		if c >= utf8.RuneSelf {
			c, size = utf8.DecodeRune(b)
		}
		switch {
		case c == utf8.RuneError && size == 1:
			dst = append(dst, `\ufffd`...)
		case c == '\u2028' || c == '\u2029':
			dst = append(dst, `\u202`...)
			dst = append(dst, hexDigits[c&15])
		case c < utf8.RuneSelf:
			dst = appendEscape(dst, byte(c))
		default:
			dst = append(dst, b[:size]...)
		}
		b = b[size:]
		n := ordinary(b)
		dst = append(dst, b[:n]...)
		b = b[n:]
	}
	return dst
}

func appendEscape(dst []byte, c byte) []byte {
	short := c
	switch c {
	case '"', '\\':
	case '\b':
		short = 'b'
	case '\f':
		short = 'f'
	case '\n':
		short = 'n'
	case '\r':
		short = 'r'
	case '\t':
		short = 't'
	default:
		return append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
	}
	return append(dst, '\\', short)
}

// appendBinary appends bytes as base64, nil as null.
func appendBinary(dst, b []byte) []byte {
	if b == nil {
		return append(dst, "null"...)
	}
	dst = append(dst, '"')
	dst = base64.StdEncoding.AppendEncode(dst, b)
	return append(dst, '"')
}
