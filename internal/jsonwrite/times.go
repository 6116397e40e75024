package jsonwrite

import (
	"time"
	"unsafe"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func seconds(_ *writer, dst []byte, p unsafe.Pointer) []byte {
	return appendTime(dst, (*metav1.Time)(p).Time, false)
}

func microseconds(_ *writer, dst []byte, p unsafe.Pointer) []byte {
	return appendTime(dst, (*metav1.MicroTime)(p).Time, true)
}

// appendTime appends a moment in UTC as RFC 3339 has it, to the second or the microsecond; none is null.
func appendTime(dst []byte, t time.Time, micro bool) []byte {
	if t.IsZero() {
		return append(dst, "null"...)
	}
	t = t.UTC()
	year, month, day := t.Date()
	if year < 0 || year > 9999 {
		return appendOddTime(dst, t, micro)
	}
	hour, minute, second := t.Clock()
	text := [...]byte{'"', 0, 0, 0, 0, '-', 0, 0, '-', 0, 0, 'T', 0, 0, ':', 0, 0, ':', 0, 0, 'Z', '"'}
	two(text[1:], year/100)
	two(text[3:], year%100)
	two(text[6:], int(month))
	two(text[9:], day)
	two(text[12:], hour)
	two(text[15:], minute)
	two(text[18:], second)
	if !micro {
		return append(dst, text[:]...)
	}
	dst = append(dst, text[:len(text)-2]...)
	n := t.Nanosecond() / 1000
	text[0] = '.'
	two(text[1:], n/10000)
	two(text[3:], n/100%100)
	two(text[5:], n%100)
	return append(append(dst, text[:7]...), `Z"`...)
}

// two writes n, which is less than 100, as two digits.
func two(to []byte, n int) { to[1], to[0] = '0'+byte(n%10), '0'+byte(n/10) }

func appendOddTime(dst []byte, t time.Time, micro bool) []byte {
	format := time.RFC3339
	if micro {
		format = metav1.RFC3339Micro
	}
	dst = append(dst, '"')
	dst = t.AppendFormat(dst, format)
	return append(dst, '"')
}
