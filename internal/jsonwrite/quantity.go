package jsonwrite

import (
	"reflect"
	"strconv"
	"unsafe"

	"k8s.io/apimachinery/pkg/api/resource"
)

// quantity is what a resource.Quantity consists of.
type quantity struct {
	// value times 10 to the power of scale is the amount, unless there is a decimal number.
	value   int64
	scale   int32
	decimal unsafe.Pointer
	// written is the text that the quantity was last written as, if it was.
	written string
	format  resource.Format
}

// known tells whether resource.Quantity is still what quantity says.
var known = func() bool {
	t, q := reflect.TypeFor[resource.Quantity](), quantity{}
	is := func(name string, offset uintptr, kind reflect.Kind) bool {
		f, ok := t.FieldByName(name)
		if ok && kind == reflect.Pointer {
			return f.Offset == offset && f.Type.NumField() == 1 && f.Type.Field(0).Type.Kind() == kind
		}
		return ok && f.Offset == offset && f.Type.Kind() == kind
	}
	i, ok := t.FieldByName("i")
	return ok && t.NumField() == 4 && t.Size() == unsafe.Sizeof(q) && i.Offset == 0 && i.Type.Kind() == reflect.Struct && i.Type.NumField() == 2 &&
		i.Type.Field(0).Name == "value" && i.Type.Field(0).Type.Kind() == reflect.Int64 &&
		i.Type.Field(1).Name == "scale" && i.Type.Field(1).Type.Kind() == reflect.Int32 && i.Type.Field(1).Offset == unsafe.Offsetof(q.scale) &&
		is("d", unsafe.Offsetof(q.decimal), reflect.Pointer) && is("s", unsafe.Offsetof(q.written), reflect.String) &&
		is("Format", unsafe.Offsetof(q.format), reflect.String)
}()

// appendQuantity appends a quantity in its canonical form, without leaving that in the quantity as its own methods do.
func appendQuantity(dst []byte, q *resource.Quantity) []byte {
	dst = append(dst, '"')
	if known {
		if out, ok := appendCanonical(dst, (*quantity)(unsafe.Pointer(q))); ok {
			return append(out, '"')
		}
	}
	number, suffix := q.CanonicalizeBytes(nil)
	dst = append(append(dst, number...), suffix...)
	return append(dst, '"')
}

var (
	decimals = [...]string{"n", "u", "m", "", "k", "M", "G", "T", "P", "E"}
	binaries = [...]string{"", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"}
)

// appendCanonical appends the canonical form of most quantities: whole numbers with binary suffixes, numbers of moderate size with decimal ones.
func appendCanonical(dst []byte, q *quantity) ([]byte, bool) {
	switch n := q.value; {
	case q.written != "":
		return append(dst, q.written...), true
	case q.decimal != nil:
		return dst, false
	case n == 0:
		return append(dst, '0'), true
	case q.format == resource.DecimalSI, q.format == resource.BinarySI && q.scale == 0 && -1024 < n && n < 1024:
		return appendDecimal(dst, n, q.scale)
	case q.format == resource.BinarySI && q.scale == 0:
		power := 0
		for ; n%1024 == 0; n /= 1024 {
			power++
		}
		return append(strconv.AppendInt(dst, n, 10), binaries[power]...), true
	}
	return dst, false
}

// appendDecimal appends n times 10 to the power of scale with the largest suffix that leaves a whole number.
func appendDecimal(dst []byte, n int64, scale int32) ([]byte, bool) {
	for ; n%10 == 0; n /= 10 {
		scale++
	}
	const enough = 1 << 56 // times 100 it still fits
	if scale < -9 || scale > 20 || n > enough || n < -enough {
		return dst, false
	}
	for ; scale%3 != 0; n *= 10 {
		scale--
	}
	return append(strconv.AppendInt(dst, n, 10), decimals[scale/3+3]...), true
}
