package stored

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/bits"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/yare-project/yare/internal/jsonwrite"
	"github.com/yare-project/yare/kind"
	"github.com/yare-project/yare/store"
)

// ErrNoProtobuf says that a type has no protobuf form.
var ErrNoProtobuf = errors.New("this kind has no protobuf form")

// Bytes is one encoded object. All of it is shared: read only.
type Bytes struct {
	// Whole is the complete document; JSON carries no trailing newline.
	Whole []byte
	form  Form
	// from and to bound what stands for the object inside a list: without type information in JSON, without the envelope in protobuf.
	from, to int
}

// Inner is what stands for the object inside its List: bare, as the typed lists of the Kubernetes API have it, and without the opening brace
// if Braced says that there must be one: Brace.
func (b Bytes) Inner() []byte { return b.Whole[b.from:b.to] }

// Braced tells whether Inner lacks its opening brace.
func (b Bytes) Braced() bool {
	return b.from > 0 && b.form == JSON || b.from > len(cborMagic) && b.form == CBOR
}

// Brace opens an object in the form.
func (b Bytes) Brace() byte {
	if b.form == CBOR {
		return cborMap
	}
	return '{'
}

// ItemLen is the length of Inner with its brace.
func (b Bytes) ItemLen() int {
	n := b.to - b.from
	if b.Braced() {
		n++
	}
	return n
}

// message is what the generated protobuf code of an API type offers.
type message interface {
	Size() int
	MarshalToSizedBuffer([]byte) (int, error)
	Unmarshal([]byte) error
}

// HasProtobuf tells whether obj's type has a protobuf form.
func HasProtobuf(obj runtime.Object) bool {
	_, ok := obj.(message)
	return ok
}

// magic opens every protobuf document of the Kubernetes API.
var magic = []byte{'k', '8', 's', 0}

// IsProtobuf tells whether data opens like a protobuf document of the Kubernetes API.
func IsProtobuf(data []byte) bool { return bytes.HasPrefix(data, magic) }

// EncodeJSON writes obj, whose type information says gvk.
func EncodeJSON(obj runtime.Object, gvk schema.GroupVersionKind) (Bytes, error) {
	whole, err := jsonwrite.Marshal(obj)
	if err != nil {
		return Bytes{}, fmt.Errorf("encode %s as JSON: %w", gvk.Kind, err)
	}
	b := Bytes{Whole: whole, form: JSON, to: len(whole)}
	if head := jsonHead(gvk); bytes.HasPrefix(whole, head) && gvk.Kind != partialKind {
		b.from = len(head)
	}
	return b, nil
}

func jsonHead(gvk schema.GroupVersionKind) []byte {
	return []byte(`{"kind":"` + gvk.Kind + `","apiVersion":"` + gvk.GroupVersion().String() + `",`)
}

// EncodeProtobuf writes obj in the envelope of the Kubernetes API: the magic number, then a runtime.Unknown that carries type information
// and the object's own message.
func EncodeProtobuf(obj runtime.Object, gvk schema.GroupVersionKind) (Bytes, error) {
	whole, from, err := appendProtobuf(nil, obj, gvk)
	return Bytes{Whole: whole, form: Protobuf, from: from, to: len(whole) - len(envelopeTail)}, err
}

// appendProtobuf appends obj in its envelope to dst; its own message begins at from.
func appendProtobuf(dst []byte, obj runtime.Object, gvk schema.GroupVersionKind) (whole []byte, from int, err error) {
	m, ok := obj.(message)
	if !ok {
		return nil, 0, fmt.Errorf("%s: %w", gvk.Kind, ErrNoProtobuf)
	}
	size := m.Size()
	dst = slices.Grow(dst, headRoom(gvk)+size+len(envelopeTail))
	dst = appendEnvelopeHead(dst, gvk, size)
	from = len(dst)
	dst = dst[:from+size]
	if _, err := m.MarshalToSizedBuffer(dst[from:]); err != nil {
		return nil, 0, fmt.Errorf("encode %s as protobuf: %w", gvk.Kind, err)
	}
	return append(dst, envelopeTail...), from, nil
}

// envelopeTail are Unknown's contentEncoding and contentType, both empty and always written.
var envelopeTail = []byte{0x1a, 0, 0x22, 0}

// EnvelopeTail ends an envelope that EnvelopeHead opened.
func EnvelopeTail() []byte { return envelopeTail }

// EnvelopeHead is what stands before a message of size bytes.
func EnvelopeHead(gvk schema.GroupVersionKind, size int) []byte {
	return appendEnvelopeHead(make([]byte, 0, headRoom(gvk)), gvk, size)
}

// headRoom is how long an EnvelopeHead is at most.
func headRoom(gvk schema.GroupVersionKind) int {
	return len(magic) + len(gvk.Group) + len(gvk.Version) + len(gvk.Kind) + 5*binary.MaxVarintLen64
}

func appendEnvelopeHead(dst []byte, gvk schema.GroupVersionKind, size int) []byte {
	version := len(gvk.Version)
	if gvk.Group != "" {
		version += len(gvk.Group) + 1
	}
	dst = append(dst, magic...)
	dst = append(dst, 0x0a)
	dst = binary.AppendUvarint(dst, uint64(fieldLen(version)+fieldLen(len(gvk.Kind))))
	dst = append(dst, 0x0a)
	dst = binary.AppendUvarint(dst, uint64(version))
	if gvk.Group != "" {
		dst = append(append(dst, gvk.Group...), '/')
	}
	dst = append(dst, gvk.Version...)
	dst = append(dst, 0x12)
	dst = binary.AppendUvarint(dst, uint64(len(gvk.Kind)))
	dst = append(dst, gvk.Kind...)
	dst = append(dst, 0x12)
	return binary.AppendUvarint(dst, uint64(size))
}

// fieldLen is how long a field with n bytes is: a tag, n, and the bytes.
func fieldLen(n int) int { return 1 + (bits.Len(uint(n)|1)+6)/7 + n }

// OpenEnvelope takes a protobuf document apart: its type information and the object's own message, which shares data's memory.
func OpenEnvelope(data []byte) (schema.GroupVersionKind, []byte, error) {
	if !IsProtobuf(data) {
		return schema.GroupVersionKind{}, nil, errors.New("protobuf: the document does not begin with k8s\\0")
	}
	var u runtime.Unknown
	if err := u.Unmarshal(data[len(magic):]); err != nil {
		return schema.GroupVersionKind{}, nil, fmt.Errorf("protobuf: %w", err)
	}
	return schema.FromAPIVersionAndKind(u.APIVersion, u.Kind), u.Raw, nil
}

// UnmarshalProtobuf fills obj from its own message.
func UnmarshalProtobuf(obj runtime.Object, raw []byte) error {
	m, ok := obj.(message)
	if !ok {
		return ErrNoProtobuf
	}
	return m.Unmarshal(raw)
}

// Decoder rebuilds what Encode wrote, for store.TableConfig.Decode.
func Decoder(k *kind.Kind) func(key string, rev store.Revision, data []byte) (store.Value, error) {
	return func(key string, rev store.Revision, data []byte) (store.Value, error) {
		obj := k.New()
		if err := unmarshal(obj, data); err != nil {
			return nil, fmt.Errorf("%s %q: %w", k.Resource(), key, err)
		}
		if k.Recall != nil {
			k.Recall(obj)
		}
		return New(k, obj).Stamp(rev), nil
	}
}

func unmarshal(obj kind.Object, data []byte) error {
	if !IsProtobuf(data) {
		return json.Unmarshal(data, obj)
	}
	_, raw, err := OpenEnvelope(data)
	if err != nil {
		return err
	}
	return UnmarshalProtobuf(obj, raw)
}
