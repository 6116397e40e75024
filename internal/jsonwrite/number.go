package jsonwrite

import (
	"math"
	"strconv"
)

func appendBool(dst []byte, b bool) []byte { return strconv.AppendBool(dst, b) }

func appendInt(dst []byte, n int64) []byte { return strconv.AppendInt(dst, n, 10) }

func appendUint(dst []byte, n uint64) []byte { return strconv.AppendUint(dst, n, 10) }

// float appends a number as ECMAScript prints it: with an exponent, of as few digits as it takes, only when it is very small or very large.
func (w *writer) float(dst []byte, f float64, size int) []byte {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return w.fail(dst)
	}
	small := 1e-6
	if size == 32 {
		small = float64(float32(small))
	}
	abs := math.Abs(f)
	if abs == 0 || abs >= small && abs < 1e21 {
		return strconv.AppendFloat(dst, f, 'f', -1, size)
	}
	dst = strconv.AppendFloat(dst, f, 'e', -1, size)
	if n := len(dst); dst[n-2] == '0' && dst[n-3] == '-' && dst[n-4] == 'e' {
		dst[n-2] = dst[n-1]
		dst = dst[:n-1]
	}
	return dst
}
