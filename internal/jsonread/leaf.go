package jsonread

import (
	"reflect"
	"time"
	"unsafe"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// leaf reads types of the API whose own method needs no call for what is plain.
func leaf(t reflect.Type) (value, bool) {
	switch t {
	case reflect.TypeFor[metav1.Time]():
		return value{read: moment}, true
	case reflect.TypeFor[resource.Quantity]():
		return value{read: amount}, true
	case reflect.TypeFor[intstr.IntOrString]():
		return value{read: intOrString}, true
	}
	return value{}, false
}

var byTime = unmarshaled(reflect.TypeFor[metav1.Time]()).read

// moment reads a time to the second in UTC; other forms are left to the type.
func moment(r *reader, i int, p unsafe.Pointer) int {
	const form = "\"2006-01-02T15:04:05Z\""
	if len(r.data)-i < len(form) {
		return byTime(r, i, p)
	}
	text := r.data[i : i+len(form)]
	fits := true
	for at, c := range []byte(form) {
		if digit := '0' <= c && c <= '9'; digit && (text[at] < '0' || text[at] > '9') || !digit && text[at] != c {
			fits = false
		}
	}
	number := func(at int) int { return int(text[at]-'0')*10 + int(text[at+1]-'0') }
	year, month, day := number(1)*100+number(3), number(6), number(9)
	hour, minute, second := number(12), number(15), number(18)
	if !fits || month < 1 || month > 12 || day < 1 || day > 28 || hour > 23 || minute > 59 || second > 59 {
		return byTime(r, i, p)
	}
	(*metav1.Time)(p).Time = time.Date(year, time.Month(month), day, hour, minute, second, 0, time.UTC).Local()
	return i + len(form)
}

// amount reads a quantity. The last ones are remembered: few are in use.
func amount(r *reader, i int, p unsafe.Pointer) int {
	end := r.skip(i)
	if end < 0 {
		return -1
	}
	raw, q := r.data[i:end], (*resource.Quantity)(p)
	known := &r.quantities[hash(raw)%uint32(len(r.quantities))]
	if known.text == string(raw) {
		*q = known.value.DeepCopy()
		return end
	}
	if q.UnmarshalJSON(raw) != nil {
		return -1
	}
	if len(raw) <= maxShared {
		*known = quantity{string(raw), q.DeepCopy()}
	}
	return end
}

func intOrString(r *reader, i int, p unsafe.Pointer) int {
	v := (*intstr.IntOrString)(p)
	if r.at(i) == '"' {
		v.Type = intstr.String
		return text(r, i, unsafe.Pointer(&v.StrVal))
	}
	return signed[int32](r, i, unsafe.Pointer(&v.IntVal))
}
