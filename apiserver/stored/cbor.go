package stored

import (
	"bytes"
	"encoding/binary"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor"

	"github.com/yare-project/yare/kind"
)

// Parts of CBOR (RFC 8949) from which documents are put together. Maps and arrays of indefinite length need no count ahead of their items, so that a
// list is made of its items' own bytes; every decoder of the Kubernetes API takes them.
const (
	cborMap   = 0xbf
	cborArray = 0x9f
	cborEnd   = 0xff
	cborBytes = 2 << 5
)

// cborMagic is the tag that marks a document as CBOR (RFC 8949, 3.4.6), with which every document of the Kubernetes API begins.
var cborMagic = []byte{0xd9, 0xd9, 0xf7}

// cborEncoder is Kubernetes' own; to encode, it needs to know no types.
var cborEncoder = cbor.NewSerializer(nil, nil)

// EncodeCBOR writes obj, whose type information says gvk, as the CBOR of the Kubernetes API.
func EncodeCBOR(obj runtime.Object, gvk schema.GroupVersionKind) (Bytes, error) {
	_, plain := obj.(runtime.Unstructured)
	bare := !plain && gvk.Kind != partialKind
	if bare {
		obj = untyped(obj)
	}
	var buf bytes.Buffer
	if err := cborEncoder.EncodeNondeterministic(obj, &buf); err != nil {
		return Bytes{}, fmt.Errorf("encode %s as CBOR: %w", gvk.Kind, err)
	}
	pairs, err := cborPairs(buf.Bytes())
	if err != nil {
		return Bytes{}, fmt.Errorf("encode %s as CBOR: %w", gvk.Kind, err)
	}
	whole := make([]byte, 0, len(pairs)+len(gvk.Kind)+len(gvk.Group)+len(gvk.Version)+32)
	whole = append(append(whole, cborMagic...), cborMap)
	b := Bytes{form: CBOR, from: len(cborMagic)}
	if bare {
		whole = AppendCBORString(AppendCBORString(whole, "kind"), gvk.Kind)
		whole = AppendCBORString(AppendCBORString(whole, "apiVersion"), gvk.GroupVersion().String())
		b.from = len(whole)
	}
	whole = append(append(whole, pairs...), cborEnd)
	b.Whole, b.to = whole, len(whole)
	return b, nil
}

// untyped is obj without its type information, sharing all else.
func untyped(obj runtime.Object) runtime.Object {
	if k, ok := obj.(kind.Object); ok {
		obj = Shallow(k)
	} else {
		obj = obj.DeepCopyObject() // a Status, a Scale: they are small
	}
	if t, ok := obj.GetObjectKind().(*metav1.TypeMeta); ok {
		*t = metav1.TypeMeta{}
	}
	return obj
}

// cborPairs are the keys and values of a document that is a map.
func cborPairs(doc []byte) ([]byte, error) {
	doc = bytes.TrimPrefix(doc, cborMagic)
	if len(doc) > 0 && doc[0]>>5 == 5 {
		switch n := doc[0] & 31; {
		case n < 24:
			return doc[1:], nil
		case n <= 27 && len(doc) > 1<<(n-24):
			return doc[1+1<<(n-24):], nil
		}
	}
	return nil, fmt.Errorf("the document is no map")
}

// AppendCBORString appends a string as Kubernetes writes it: its bytes, which need not be valid UTF-8.
func AppendCBORString(dst []byte, s string) []byte {
	n := len(s)
	switch {
	case n < 24:
		dst = append(dst, cborBytes|byte(n))
	case n < 1<<8:
		dst = append(dst, cborBytes|24, byte(n))
	case n < 1<<16:
		dst = binary.BigEndian.AppendUint16(append(dst, cborBytes|25), uint16(n))
	default:
		dst = binary.BigEndian.AppendUint32(append(dst, cborBytes|26), uint32(n))
	}
	return append(dst, s...)
}

var cborBrace = []byte{cborMap}

// CBORBrace opens an item of a list that is bare.
func CBORBrace() []byte { return cborBrace }

// CBORList is what stands before and after the items of a List of kind gvk.
func CBORList(gvk schema.GroupVersionKind, meta metav1.ListMeta) (head, tail []byte, err error) {
	head = append(append(head, cborMagic...), cborMap)
	head = AppendCBORString(AppendCBORString(head, "kind"), gvk.Kind)
	head = AppendCBORString(AppendCBORString(head, "apiVersion"), gvk.GroupVersion().String())
	m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&meta)
	if err != nil {
		return nil, nil, fmt.Errorf("encode list metadata: %w", err)
	}
	inner, err := CBOROf(m)
	if err != nil {
		return nil, nil, fmt.Errorf("encode list metadata: %w", err)
	}
	head = append(AppendCBORString(head, "metadata"), inner[len(cborMagic):]...)
	head = append(AppendCBORString(head, "items"), cborArray)
	return head, []byte{cborEnd, cborEnd}, nil
}

// CBOROf writes decoded JSON as a document.
func CBOROf(content map[string]any) ([]byte, error) {
	var buf bytes.Buffer
	err := cborEncoder.EncodeNondeterministic(&unstructured.Unstructured{Object: content}, &buf)
	pairs, failed := []byte(nil), err
	if err == nil {
		pairs, failed = cborPairs(buf.Bytes())
	}
	if failed != nil {
		return nil, failed
	}
	doc := append(append(make([]byte, 0, len(pairs)+5), cborMagic...), cborMap)
	return append(append(doc, pairs...), cborEnd), nil
}
