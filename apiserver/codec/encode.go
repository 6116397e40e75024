package codec

import (
	"bytes"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/yare-project/yare/apiserver/stored"
	"github.com/yare-project/yare/internal/jsonwrite"
)

// Encode writes an object that is not stored (a Status, a Scale, a Table), whose type is gvk. JSON ends with a newline.
func Encode(obj runtime.Object, gvk schema.GroupVersionKind, media Media) ([]byte, error) {
	if media == Protobuf {
		b, err := stored.EncodeProtobuf(obj, gvk)
		return b.Whole, err
	}
	if media == CBOR {
		b, err := stored.EncodeCBOR(obj, gvk)
		return b.Whole, err
	}
	obj.GetObjectKind().SetGroupVersionKind(gvk)
	doc, err := jsonwrite.Append(make([]byte, 0, 1<<10), obj)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", gvk.Kind, err)
	}
	if media == YAML {
		return yaml.JSONToYAML(doc)
	}
	return append(doc, '\n'), nil
}

// Pretty indents a JSON document for human eyes.
func Pretty(doc []byte) []byte {
	var buf bytes.Buffer
	if json.Indent(&buf, bytes.TrimSpace(doc), "", "  ") != nil {
		return doc
	}
	return buf.Bytes()
}

// Plain writes a value that is no API object as JSON, indented as /version is.
func Plain(v any) ([]byte, error) { return json.MarshalIndent(v, "", "  ") }
