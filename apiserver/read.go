package apiserver

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/yare-project/yare/apiserver/codec"
	"github.com/yare-project/yare/apiserver/stored"
	"github.com/yare-project/yare/apiserver/verbs"
	"github.com/yare-project/yare/kind"
)

// options fills a request's options from its query.
func options[T any](query url.Values, into *T, convert func(*url.Values, *T, conversion.Scope) error) error {
	if len(query) == 0 {
		return nil
	}
	if err := convert(&query, into, nil); err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	return nil
}

// body reads the request's body within the limit.
func (x *exchange) body() ([]byte, error) {
	limit := x.server.cfg.Limits.Body
	if served := x.route.served; served != nil {
		limit = max(limit, served.Kind.Body)
	}
	if x.req.ContentLength > limit {
		return nil, tooLarge(limit)
	}
	if x.req.Body == nil {
		return nil, nil
	}
	if w, ok := x.req.Body.(interface{ Whole() ([]byte, bool) }); ok && x.req.ContentLength > 0 { // and at most limit
		if data, ok := w.Whole(); ok {
			return data, nil
		}
	}
	r := http.MaxBytesReader(x.w, x.req.Body, limit)
	var data []byte
	var err error
	if n := x.req.ContentLength; n > 0 {
		data, err = announced(r, n)
	} else {
		data, err = io.ReadAll(r)
	}
	var over *http.MaxBytesError
	switch {
	case errors.As(err, &over):
		return nil, tooLarge(limit)
	case err != nil && x.ctx.Err() != nil:
		return nil, x.ctx.Err()
	case err != nil:
		return nil, apierrors.NewBadRequest(fmt.Sprintf("reading the body: %v", err))
	}
	return data, nil
}

// announced reads n bytes. Room is made as they come: who announces much and sends nothing gets little memory.
func announced(r io.Reader, n int64) ([]byte, error) {
	data := make([]byte, min(n, 64<<10))
	for at := 0; ; {
		m, err := io.ReadFull(r, data[at:])
		if at += m; err != nil || int64(at) == n {
			return data[:at], err
		}
		data = append(data, make([]byte, min(n-int64(at), int64(at)))...)
	}
}

func tooLarge(limit int64) error {
	return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d bytes", limit))
}

// decodeHub reads an object of the request's version and turns it into the hub version, defaulted.
func (x *exchange) decodeHub(strict string) (kind.Object, error) {
	v := x.route.served.Version
	obj, err := x.decode(codec.Target{Kind: v.GroupVersionKind, New: v.New, Settle: v.Settle}, strict)
	if err != nil {
		return nil, err
	}
	x.trace.Mark("decode")
	hub, err := verbs.ToHub(x.route.served.Kind, v, obj)
	x.trace.Mark("default")
	return hub, err
}

func (x *exchange) decode(to codec.Target, strict string) (runtime.Object, error) {
	media, err := codec.BodyMedia(x.req.Header.Get("Content-Type"))
	if err != nil {
		return nil, err
	}
	data, err := x.body()
	x.trace.Mark("body")
	if err != nil {
		return nil, err
	}
	obj, warnings, err := codec.Decode(data, media, to, strictness(strict))
	if err != nil {
		return nil, err
	}
	if x.record != nil {
		x.recordRequest(data, media, obj, to.Kind)
	}
	for _, w := range warnings {
		x.warn(w)
	}
	return obj, nil
}

// strictness is what a client gets that does not say: warnings, since Kubernetes 1.27.
func strictness(s string) string {
	if s == "" {
		return metav1.FieldValidationWarn
	}
	return s
}

func (x *exchange) readPatch() (types.PatchType, *metav1.PatchOptions, []byte, error) {
	opts := &metav1.PatchOptions{}
	if err := options(x.route.query, opts, metav1.Convert_url_Values_To_v1_PatchOptions); err != nil {
		return "", nil, nil, err
	}
	opts.FieldValidation = strictness(opts.FieldValidation)
	x.dryRun = len(opts.DryRun) > 0
	typ := types.PatchType(mediaType(x.req.Header.Get("Content-Type")))
	switch typ {
	case types.JSONPatchType, types.MergePatchType, types.StrategicMergePatchType:
	case types.ApplyYAMLPatchType, types.ApplyCBORPatchType:
		x.verb = "apply"
	default:
		return "", nil, nil, verbs.UnsupportedPatch(typ, types.JSONPatchType, types.MergePatchType, types.StrategicMergePatchType, types.ApplyYAMLPatchType, types.ApplyCBORPatchType)
	}
	body, err := x.body()
	x.trace.Mark("body")
	if typ == types.ApplyCBORPatchType && err == nil {
		typ = types.ApplyYAMLPatchType // of which JSON is a part
		body, err = appliedCBOR(body)
	}
	if x.record != nil {
		x.recordPatch(body, typ == types.ApplyYAMLPatchType)
	}
	return typ, opts, body, err
}

// appliedCBOR is a body of CBOR as JSON.
func appliedCBOR(body []byte) ([]byte, error) {
	doc, err := codec.FromCBOR(body)
	var status *apierrors.StatusError
	if err != nil && !errors.As(err, &status) {
		err = apierrors.NewBadRequest(fmt.Sprintf("error decoding CBOR: %v", err))
	}
	return doc, err
}

// deleteOptions come in the body, or in the query where there is none.
func (x *exchange) deleteOptions() (*metav1.DeleteOptions, error) {
	data, err := x.body()
	if err != nil {
		return nil, err
	}
	opts := &metav1.DeleteOptions{}
	if len(data) == 0 {
		err = options(x.route.query, opts, metav1.Convert_url_Values_To_v1_DeleteOptions)
	} else {
		err = x.decodeDeleteOptions(data, opts)
	}
	x.dryRun = len(opts.DryRun) > 0
	if x.record != nil && err == nil && len(data) > 0 {
		x.recordOptions(opts)
	}
	return opts, err
}

// decodeDeleteOptions accepts the options in any API version: clients send that of the object.
func (x *exchange) decodeDeleteOptions(data []byte, opts *metav1.DeleteOptions) error {
	media, err := codec.BodyMedia(x.req.Header.Get("Content-Type"))
	if err != nil {
		return err
	}
	if media == codec.CBOR {
		if data, err = appliedCBOR(data); err != nil {
			return err
		}
	}
	gvk := schema.GroupVersionKind{}
	switch media {
	case codec.Protobuf:
		var raw []byte
		if gvk, raw, err = stored.OpenEnvelope(data); err == nil {
			err = stored.UnmarshalProtobuf(opts, raw)
		}
	case codec.YAML:
		if err = codec.CheckAliases(data); err == nil {
			err = yaml.Unmarshal(data, opts)
		}
		gvk = opts.GroupVersionKind()
	default:
		_, err = codec.UnmarshalJSON(data, opts, metav1.FieldValidationIgnore)
		gvk = opts.GroupVersionKind()
	}
	if err != nil {
		return apierrors.NewBadRequest(fmt.Sprintf("the body is no valid DeleteOptions: %v", err))
	}
	if gvk.Kind != "" && gvk.Kind != "DeleteOptions" {
		return apierrors.NewBadRequest(fmt.Sprintf("a delete takes DeleteOptions as its body, not %s", gvk.Kind))
	}
	return nil
}
