// Package codec decides how bytes from a client are read and in which form it is answered: media types, strictness, and the tables and
// partial metadata that a client may ask for in place of the object.
//
// Everything here is a pure function of its arguments. Failures are *apierrors.StatusError that a client may see. The package bounds
// nothing: whoever reads the body does.
package codec

import (
	"mime"
	"net/http"
	"sort"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Media is a way to write objects on the wire.
type Media uint8

const (
	JSON Media = iota
	Protobuf
	YAML
	CBOR
)

// Content types of the Kubernetes API.
const (
	TypeJSON     = "application/json"
	TypeYAML     = "application/yaml"
	TypeProtobuf = "application/vnd.kubernetes.protobuf"
)

// ContentType is the header value of a single document.
func (m Media) ContentType() string {
	switch m {
	case Protobuf:
		return TypeProtobuf
	case YAML:
		return TypeYAML
	case CBOR:
		return TypeCBOR
	default:
		return TypeJSON
	}
}

// Header is ContentType as a header's list of values. It is shared, and not to be changed.
func (m Media) Header() []string { return headers[m] }

var headers = [...][]string{JSON: {TypeJSON}, YAML: {TypeYAML}, Protobuf: {TypeProtobuf}, CBOR: {TypeCBOR}}

// Stream is the header value of a watch.
func (m Media) Stream() string {
	switch m {
	case Protobuf:
		return TypeProtobuf + ";stream=watch"
	case CBOR:
		return TypeCBORSequence
	}
	return m.ContentType()
}

// As is what a client wants in place of objects.
type As uint8

const (
	AsObject As = iota
	AsTable
	AsMetadata
)

// Accept is how a client wants to be answered.
type Accept struct {
	Media Media
	As    As
	// MetaVersion is the version of meta.k8s.io that As is asked in: "v1" or "v1beta1".
	MetaVersion string
}

// Offer is what an endpoint can answer with.
type Offer struct {
	Protobuf bool
	// Transform allows tables and partial metadata.
	Transform bool
	// List says that the answer is a list (its partial form is PartialObjectMetadataList).
	List bool
	// Watch leaves out YAML, which has no stream form.
	Watch bool
}

// clause is one media range of an Accept header.
type clause struct {
	typ    string
	params map[string]string
	q      float64
}

// Negotiate picks the first form that the header prefers and the endpoint offers. An absent header means JSON. Errors: 406.
func Negotiate(header string, offer Offer) (Accept, error) {
	switch header {
	case "", TypeJSON, "*/*", "application/json, */*":
		return Accept{}, nil
	}
	for _, c := range clauses(header) {
		if a, ok := c.accept(offer); ok {
			return a, nil
		}
	}
	return Accept{}, notAcceptable(offer)
}

func clauses(header string) []clause {
	var out []clause
	for _, part := range strings.Split(header, ",") {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}
		typ, params, err := mime.ParseMediaType(part)
		if err != nil {
			continue
		}
		c := clause{typ: typ, params: params, q: 1}
		if q, ok := params["q"]; ok {
			if f, err := strconv.ParseFloat(q, 64); err == nil {
				c.q = f
			}
		}
		out = append(out, c)
	}
	sort.SliceStable(out, func(i, j int) bool {
		if out[i].q != out[j].q {
			return out[i].q > out[j].q
		}
		return out[i].wild() < out[j].wild()
	})
	return out
}

// wild tells how little a clause says: of two that are wanted as much, the one that says more comes first (RFC 9110, 12.5.1).
func (c clause) wild() int { return strings.Count(c.typ, "*") }

// AcceptsGzip tells whether a client takes compressed answers by its Accept-Encoding, read as Kubernetes does: the name alone, without a weight.
func AcceptsGzip(header string) bool {
	for token := range strings.SplitSeq(header, ",") {
		if strings.TrimSpace(token) == "gzip" {
			return true
		}
	}
	return false
}

func (c clause) accept(offer Offer) (Accept, bool) {
	var a Accept
	switch c.typ {
	case TypeJSON, "*/*", "application/*":
	case TypeYAML, "application/x-yaml", "text/yaml":
		if offer.Watch {
			return a, false
		}
		a.Media = YAML
	case TypeCBOR:
		a.Media = CBOR
	case TypeCBORSequence:
		if !offer.Watch {
			return a, false
		}
		a.Media = CBOR
	case TypeProtobuf:
		if !offer.Protobuf {
			return a, false
		}
		a.Media = Protobuf
	default:
		return a, false
	}
	if s := c.params["stream"]; s != "" && s != "watch" { // what is no stream is served whole to those who would take one
		return a, false
	}
	return a, c.transform(offer, &a)
}

func (c clause) transform(offer Offer, a *Accept) bool {
	as := c.params["as"]
	if as == "" {
		return true
	}
	a.MetaVersion = c.params["v"]
	if !offer.Transform || c.params["g"] != "meta.k8s.io" || a.MetaVersion != "v1" && a.MetaVersion != "v1beta1" {
		return false
	}
	switch {
	case as == "Table":
		a.As = AsTable
		return a.Media != Protobuf
	case as == "PartialObjectMetadataList" && offer.List, as == "PartialObjectMetadata" && !offer.List:
		a.As = AsMetadata
		return true
	}
	return false
}

func notAcceptable(offer Offer) error {
	types := []string{TypeJSON}
	if !offer.Watch {
		types = append(types, TypeYAML)
	}
	if offer.Protobuf {
		types = append(types, TypeProtobuf)
	}
	types = append(types, TypeCBOR)
	if offer.Watch {
		types = append(types, TypeCBORSequence)
	}
	return status(http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable,
		"only the following media types are accepted: "+strings.Join(types, ", "))
}

func status(code int32, reason metav1.StatusReason, message string) *apierrors.StatusError {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message}}
}

// BodyMedia tells how a body is written from its Content-Type; an absent one means JSON. Errors: 415.
func BodyMedia(header string) (Media, error) {
	if header == "" || header == TypeJSON {
		return JSON, nil
	}
	typ, _, err := mime.ParseMediaType(header)
	if err == nil {
		switch typ {
		case TypeJSON:
			return JSON, nil
		case TypeYAML, "application/x-yaml", "text/yaml":
			return YAML, nil
		case TypeProtobuf:
			return Protobuf, nil
		case TypeCBOR:
			return CBOR, nil
		}
	}
	return JSON, status(http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType,
		"the body of the request was in an unknown format - accepted media types include: "+TypeJSON+", "+TypeYAML+", "+TypeProtobuf+", "+TypeCBOR)
}
