package stored

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

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

// scratch holds buffers in which documents grow before they are kept at their size.
var scratch = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// EncodeJSON writes obj, whose type information says gvk.
func EncodeJSON(obj runtime.Object, gvk schema.GroupVersionKind) (Bytes, error) {
	buf := scratch.Get().(*bytes.Buffer)
	defer func() {
		if buf.Cap() <= 64<<10 {
			buf.Reset()
			scratch.Put(buf)
		}
	}()
	if err := json.NewEncoder(buf).Encode(obj); err != nil {
		return Bytes{}, fmt.Errorf("encode %s as JSON: %w", gvk.Kind, err)
	}
	whole := bytes.TrimSuffix(buf.Bytes(), []byte("\n"))
	whole = bytes.Clone(whole)
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
	m, ok := obj.(message)
	if !ok {
		return Bytes{}, fmt.Errorf("%s: %w", gvk.Kind, ErrNoProtobuf)
	}
	size := m.Size()
	head := EnvelopeHead(gvk, size)
	whole := make([]byte, len(head)+size+len(envelopeTail))
	copy(whole, head)
	if _, err := m.MarshalToSizedBuffer(whole[len(head) : len(head)+size]); err != nil {
		return Bytes{}, fmt.Errorf("encode %s as protobuf: %w", gvk.Kind, err)
	}
	copy(whole[len(head)+size:], envelopeTail)
	return Bytes{Whole: whole, form: Protobuf, from: len(head), to: len(head) + size}, nil
}

// envelopeTail are Unknown's contentEncoding and contentType, both empty and always written.
var envelopeTail = []byte{0x1a, 0, 0x22, 0}

// EnvelopeTail ends an envelope that EnvelopeHead opened.
func EnvelopeTail() []byte { return envelopeTail }

// EnvelopeHead is what stands before a message of size bytes.
func EnvelopeHead(gvk schema.GroupVersionKind, size int) []byte {
	apiVersion := gvk.GroupVersion().String()
	var meta []byte
	meta = appendField(meta, 0x0a, apiVersion)
	meta = appendField(meta, 0x12, gvk.Kind)
	out := append(make([]byte, 0, len(magic)+len(meta)+16), magic...)
	out = append(out, 0x0a)
	out = binary.AppendUvarint(out, uint64(len(meta)))
	out = append(out, meta...)
	out = append(out, 0x12)
	return binary.AppendUvarint(out, uint64(size))
}

func appendField(dst []byte, tag byte, s string) []byte {
	dst = append(dst, tag)
	dst = binary.AppendUvarint(dst, uint64(len(s)))
	return append(dst, s...)
}

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
