package codec

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/yare-project/yare/apiserver/stored"
	"github.com/yare-project/yare/internal/jsonwrite"
	"github.com/yare-project/yare/kind"
)

// Document is a list on its way out. It is sent piece by piece from its items' own bytes: nothing of its size is built.
type Document struct {
	head, tail []byte
	// brace opens an item that is bare, comma stands between two; nil: nothing does.
	brace, comma []byte
	items        []*stored.Object
	version      *kind.Version
	form         stored.Form
	size         int
	whole        []byte // what had to be built, instead of the pieces
}

// List is a list of kind gvk, made of its items' own bytes, without building the typed list. a picks the objects or their metadata.
func List(gvk schema.GroupVersionKind, meta metav1.ListMeta, items []*stored.Object, v *kind.Version, a Accept) (*Document, error) {
	d := &Document{items: items, version: v, form: a.form()}
	d.brace, d.comma = brace, comma
	var err error
	sizes := 0
	for _, item := range items {
		b, err := item.As(v, d.form)
		if err != nil {
			return nil, err
		}
		n := b.ItemLen()
		if a.Media == Protobuf {
			n += 1 + uvarintLen(n)
		}
		sizes += n
	}
	switch a.Media {
	case Protobuf:
		return d, d.protobuf(gvk, meta, sizes)
	case CBOR:
		d.brace, d.comma = stored.CBORBrace(), nil
		d.head, d.tail, err = stored.CBORList(gvk, meta)
		d.size = len(d.head) + sizes + len(d.tail)
		return d, err
	}
	if err := d.json(gvk, meta, sizes); err != nil || a.Media != YAML {
		return d, err
	}
	doc, err := yaml.JSONToYAML(d.Bytes())
	return &Document{whole: doc, size: len(doc)}, err
}

// Len is the document's length in bytes.
func (d *Document) Len() int { return d.size }

// Bytes builds the document as a whole.
func (d *Document) Bytes() []byte {
	if d.whole != nil {
		return d.whole
	}
	var buf bytes.Buffer
	buf.Grow(d.size)
	_, _ = d.WriteTo(&buf) // a bytes.Buffer takes all
	return buf.Bytes()
}

var comma, brace = []byte{','}, []byte{'{'}

// WriteTo implements io.WriterTo.
func (d *Document) WriteTo(w io.Writer) (int64, error) {
	out := &counter{w: w}
	if d.whole != nil {
		out.write(d.whole)
		return out.n, out.err
	}
	out.write(d.head)
	for i, item := range d.items {
		b, err := item.As(d.version, d.form)
		if err != nil || out.err != nil {
			return out.n, errors.Join(err, out.err)
		}
		if d.form.Binary() {
			var prefix [1 + binary.MaxVarintLen64]byte
			prefix[0] = 0x12
			out.write(prefix[:1+binary.PutUvarint(prefix[1:], uint64(b.ItemLen()))])
		} else if i > 0 && d.comma != nil {
			out.write(d.comma)
		}
		if b.Braced() {
			out.write(d.brace)
		}
		out.write(b.Inner())
	}
	out.write(d.tail)
	return out.n, out.err
}

// counter writes until the first error.
type counter struct {
	w   io.Writer
	n   int64
	err error
}

func (c *counter) write(p []byte) {
	if c.err == nil {
		var n int
		n, c.err = c.w.Write(p)
		c.n += int64(n)
	}
}

// form is how one item of an answer is cached.
func (a Accept) form() stored.Form {
	beta := a.MetaVersion == "v1beta1"
	switch {
	case a.Media == CBOR && a.As != AsMetadata:
		return stored.CBOR
	case a.Media == CBOR && beta:
		return stored.MetaBetaCBOR
	case a.Media == CBOR:
		return stored.MetaCBOR
	case a.As == AsMetadata && a.Media == Protobuf && beta:
		return stored.MetaBetaProtobuf
	case a.As == AsMetadata && a.Media == Protobuf:
		return stored.MetaProtobuf
	case a.As == AsMetadata && beta:
		return stored.MetaBetaJSON
	case a.As == AsMetadata:
		return stored.MetaJSON
	case a.Media == Protobuf:
		return stored.Protobuf
	default:
		return stored.JSON
	}
}

func (d *Document) json(gvk schema.GroupVersionKind, meta metav1.ListMeta, sizes int) error {
	head := make([]byte, 0, 256)
	head = append(head, `{"kind":"`...)
	head = append(head, gvk.Kind...)
	head = append(head, `","apiVersion":"`...)
	head = append(head, gvk.GroupVersion().String()...)
	head = append(head, `","metadata":`...)
	head, err := jsonwrite.Append(head, &meta)
	if err != nil {
		return fmt.Errorf("encode list metadata: %w", err)
	}
	d.head, d.tail = append(head, `,"items":[`...), []byte("]}\n")
	d.size = len(d.head) + sizes + max(0, len(d.items)-1) + len(d.tail)
	return nil
}

// protobuf relies on what every List message of the API has in common: metadata is field 1, items are field 2.
func (d *Document) protobuf(gvk schema.GroupVersionKind, meta metav1.ListMeta, sizes int) error {
	m, err := meta.Marshal()
	if err != nil {
		return fmt.Errorf("encode list metadata: %w", err)
	}
	opening := appendMessage(nil, 0x0a, m)
	d.head = append(stored.EnvelopeHead(gvk, len(opening)+sizes), opening...)
	d.tail = stored.EnvelopeTail()
	d.size = len(d.head) + sizes + len(d.tail)
	return nil
}

func appendMessage(dst []byte, tag byte, m []byte) []byte {
	dst = append(dst, tag)
	dst = binary.AppendUvarint(dst, uint64(len(m)))
	return append(dst, m...)
}

// Item returns one stored object's document in a form that Negotiate gave: shared bytes for JSON (without a trailing newline) and protobuf.
func Item(o *stored.Object, v *kind.Version, a Accept) ([]byte, error) {
	b, err := o.As(v, a.form())
	if err != nil || a.Media != YAML {
		return b.Whole, err
	}
	return yaml.JSONToYAML(b.Whole)
}
