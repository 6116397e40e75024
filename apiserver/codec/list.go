package codec

import (
	"encoding/binary"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/yare-project/yare/apiserver/stored"
	"github.com/yare-project/yare/kind"
)

// List writes a list of kind gvk from its items' own bytes, without building the typed list. a picks the objects or their metadata.
func List(gvk schema.GroupVersionKind, meta metav1.ListMeta, items []*stored.Object, v *kind.Version, a Accept) ([]byte, error) {
	media := a.Media
	encoded := make([]stored.Bytes, len(items))
	form, total := a.form(), 0
	for i, item := range items {
		b, err := item.As(v, form)
		if err != nil {
			return nil, err
		}
		encoded[i] = b
		total += b.ItemLen() + 8
	}
	if media == Protobuf {
		return listProtobuf(gvk, meta, encoded, total)
	}
	doc, err := listJSON(gvk, meta, encoded, total)
	if err == nil && media == YAML {
		return yaml.JSONToYAML(doc)
	}
	return doc, err
}

// form is how one item of an answer is cached.
func (a Accept) form() stored.Form {
	beta := a.MetaVersion == "v1beta1"
	switch {
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

func listJSON(gvk schema.GroupVersionKind, meta metav1.ListMeta, items []stored.Bytes, size int) ([]byte, error) {
	m, err := json.Marshal(meta)
	if err != nil {
		return nil, fmt.Errorf("encode list metadata: %w", err)
	}
	out := make([]byte, 0, size+len(m)+128)
	out = append(out, `{"kind":"`...)
	out = append(out, gvk.Kind...)
	out = append(out, `","apiVersion":"`...)
	out = append(out, gvk.GroupVersion().String()...)
	out = append(out, `","metadata":`...)
	out = append(out, m...)
	out = append(out, `,"items":[`...)
	for i, item := range items {
		if i > 0 {
			out = append(out, ',')
		}
		out = item.AppendItem(out)
	}
	return append(out, "]}\n"...), nil
}

// listProtobuf relies on what every List message of the API has in common: metadata is field 1, items are field 2.
func listProtobuf(gvk schema.GroupVersionKind, meta metav1.ListMeta, items []stored.Bytes, size int) ([]byte, error) {
	m, err := meta.Marshal()
	if err != nil {
		return nil, fmt.Errorf("encode list metadata: %w", err)
	}
	body := make([]byte, 0, size+len(m)+16)
	body = appendMessage(body, 0x0a, m)
	for _, item := range items {
		body = append(body, 0x12)
		body = binary.AppendUvarint(body, uint64(item.ItemLen()))
		body = item.AppendItem(body)
	}
	head := stored.EnvelopeHead(gvk, len(body))
	out := make([]byte, 0, len(head)+len(body)+len(stored.EnvelopeTail()))
	out = append(out, head...)
	out = append(out, body...)
	return append(out, stored.EnvelopeTail()...), nil
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
