package jsonwrite

import (
	"reflect"
	"unsafe"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

var timeType = reflect.TypeFor[metav1.Time]()

// leaf is the encoder of a type whose own method needs no call; nil for all others.
func leaf(t reflect.Type, addr bool) encoder {
	switch t {
	case timeType:
		return seconds
	case reflect.TypeFor[metav1.MicroTime]():
		return microseconds
	case reflect.TypeFor[resource.Quantity]():
		return func(_ *writer, dst []byte, p unsafe.Pointer) []byte {
			return appendQuantity(dst, (*resource.Quantity)(p))
		}
	case reflect.TypeFor[intstr.IntOrString]():
		return intOrString
	case reflect.TypeFor[metav1.FieldsV1]():
		return fieldsV1
	case reflect.TypeFor[runtime.RawExtension]():
		return rawExtension
	case reflect.TypeFor[unstructured.Unstructured]():
		if addr {
			return func(w *writer, dst []byte, p unsafe.Pointer) []byte {
				return w.object(dst, (*unstructured.Unstructured)(p).Object)
			}
		}
	}
	return nil
}

func intOrString(w *writer, dst []byte, p unsafe.Pointer) []byte {
	switch v := (*intstr.IntOrString)(p); v.Type {
	case intstr.Int:
		return appendInt(dst, int64(v.IntVal))
	case intstr.String:
		return appendString(dst, v.StrVal)
	}
	return w.fail(dst)
}

func fieldsV1(w *writer, dst []byte, p unsafe.Pointer) []byte {
	raw := (*metav1.FieldsV1)(p).GetRawBytes()
	switch {
	case len(raw) == 0:
		return append(dst, "null"...)
	case raw[0] == '{':
		return w.raw(dst, raw)
	}
	return fieldsByMethod(w, dst, p)
}

func rawExtension(w *writer, dst []byte, p unsafe.Pointer) []byte {
	switch e := (*runtime.RawExtension)(p); {
	case e.Raw == nil && e.Object == nil:
		return append(dst, "null"...)
	case e.Raw == nil:
		return w.value(dst, e.Object)
	case len(e.Raw) > 0 && e.Raw[0] == '{':
		return w.raw(dst, e.Raw)
	}
	return extensionByMethod(w, dst, p)
}

var (
	fieldsByMethod    = marshaled(reflect.TypeFor[metav1.FieldsV1]())
	extensionByMethod = marshaled(reflect.TypeFor[runtime.RawExtension]())
)
