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
	if x.req.ContentLength > limit {
		return nil, tooLarge(limit)
	}
	if x.req.Body == nil {
		return nil, nil
	}
	r := http.MaxBytesReader(x.w, x.req.Body, limit)
	if n := x.req.ContentLength; n > 0 {
		data := make([]byte, n)
		if _, err := io.ReadFull(r, data); err != nil {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("reading the body: %v", err))
		}
		return data, nil
	}
	data, err := io.ReadAll(r)
	var over *http.MaxBytesError
	switch {
	case errors.As(err, &over):
		return nil, tooLarge(limit)
	case err != nil:
		return nil, apierrors.NewBadRequest(fmt.Sprintf("reading the body: %v", err))
	}
	return data, nil
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
	return verbs.ToHub(x.route.served.Kind, v, obj)
}

func (x *exchange) decode(to codec.Target, strict string) (runtime.Object, error) {
	media, err := codec.BodyMedia(x.req.Header.Get("Content-Type"))
	if err != nil {
		return nil, err
	}
	data, err := x.body()
	if err != nil {
		return nil, err
	}
	obj, warnings, err := codec.Decode(data, media, to, strictness(strict))
	if err != nil {
		return nil, err
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
	case types.ApplyYAMLPatchType:
		x.verb = "apply"
	default:
		return "", nil, nil, verbs.UnsupportedPatch(typ, types.JSONPatchType, types.MergePatchType, types.StrategicMergePatchType, types.ApplyYAMLPatchType)
	}
	body, err := x.body()
	return typ, opts, body, err
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
	return opts, err
}

// decodeDeleteOptions accepts the options in any API version: clients send that of the object.
func (x *exchange) decodeDeleteOptions(data []byte, opts *metav1.DeleteOptions) error {
	media, err := codec.BodyMedia(x.req.Header.Get("Content-Type"))
	if err != nil {
		return err
	}
	gvk := schema.GroupVersionKind{}
	switch media {
	case codec.Protobuf:
		var raw []byte
		if gvk, raw, err = stored.OpenEnvelope(data); err == nil {
			err = stored.UnmarshalProtobuf(opts, raw)
		}
	case codec.YAML:
		err = yaml.Unmarshal(data, opts)
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
