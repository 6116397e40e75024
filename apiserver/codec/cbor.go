package codec

import (
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yare-project/yare/apiserver/stored"
)

// TypeCBOR and TypeCBORSequence are the content types of CBOR (RFC 8949) and of a sequence of CBOR documents (RFC 8742), as a watch is one. Kubernetes
// serves them behind its feature gate CBORServingAndStorage; here they are served to whoever asks for them.
const (
	TypeCBOR         = "application/cbor"
	TypeCBORSequence = "application/cbor-seq"
)

// maxFromCBOR is how large a document may become as JSON, in bytes: as large as a body of JSON may be, for the shortest items of CBOR are shorter than
// those of JSON, and what a document costs goes by its items.
const maxFromCBOR = 3 << 20

// FromCBOR turns a body of CBOR into the JSON that says the same, so that all rules of JSON hold for it: which fields there are, what is given twice,
// which numbers are integers. What has no JSON, or not the JSON of Kubernetes (keys that are no strings, NaN, integers beyond 64 bits), is an error.
func FromCBOR(data []byte) ([]byte, error) {
	t := transcoder{data: data, limit: max(maxFromCBOR, len(data)), out: make([]byte, 0, len(data)+len(data)/4)}
	if err := t.value(0, 0); err != nil {
		return nil, fmt.Errorf("cbor: %w", err)
	}
	if t.at < len(data) {
		return nil, fmt.Errorf("cbor: %d bytes of extraneous data starting at index %d", len(data)-t.at, t.at)
	}
	return t.out, nil
}

// toCBOR turns a document of this server's own JSON into CBOR.
func toCBOR(doc []byte) ([]byte, error) {
	var content map[string]any
	if _, err := UnmarshalJSON(doc, &content, metav1.FieldValidationIgnore); err != nil {
		return nil, err
	}
	return stored.CBOROf(content)
}

// appendEventCBOR writes one item of a sequence: a WatchEvent.
func appendEventCBOR(dst []byte, typ string, object []byte) []byte {
	const magicAndMapOfTwo = "\xd9\xd9\xf7\xa2"
	dst = append(dst, magicAndMapOfTwo...)
	dst = stored.AppendCBORString(stored.AppendCBORString(dst, "type"), typ)
	return append(stored.AppendCBORString(dst, "object"), object...)
}

func tooLargeAsJSON(limit int) error {
	return status(http.StatusRequestEntityTooLarge, metav1.StatusReasonRequestEntityTooLarge,
		fmt.Sprintf("Request entity too large: limit is %d bytes, and the body has more when written as JSON", limit))
}

// refuseBody explains a body that could not be read.
func refuseBody(err error, to Target) error {
	var large *apierrors.StatusError
	if errors.As(err, &large) {
		return large
	}
	return cannotHandle(nil, to, err)
}
