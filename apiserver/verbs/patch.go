package verbs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/mergepatch"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/yare-project/yare/apiserver/codec"
	"github.com/yare-project/yare/apiserver/stored"
	"github.com/yare-project/yare/internal/jsonwrite"
	"github.com/yare-project/yare/kind"
)

// maxPatchOperations bounds a JSON patch, as Kubernetes.
const maxPatchOperations = 10000

// Patch changes an object, or a subresource that is part of it, by a patch of any of the API's four types.
func (r *Resource) Patch(ctx context.Context, rq *Request, typ types.PatchType, body []byte, opts *metav1.PatchOptions, mayCreate func(context.Context) error) (*stored.Object, bool, error) {
	if errs := metav1validation.ValidatePatchOptions(opts, typ); len(errs) > 0 {
		return nil, false, apierrors.NewInvalid(metav1.SchemeGroupVersion.WithKind("PatchOptions").GroupKind(), "", errs)
	}
	p := &patcher{r: r, rq: rq, typ: typ, body: body, strict: opts.FieldValidation, sub: rq.Ref.Subresource, manager: opts.FieldManager}
	p.force = opts.Force != nil && *opts.Force
	e := &Edit{Sub: p.sub, Replace: r.replaceSub(p.sub), Options: opts, DryRun: dryRun(opts.DryRun), Manager: opts.FieldManager, Build: p.build}
	p.edit = e
	if typ == types.ApplyPatchType {
		e.Applied = true
		e.Create = mayCreate
		if err := p.readConfig(); err != nil {
			return nil, false, err
		}
		e.Build = p.apply
	}
	return r.Edit(ctx, rq, e)
}

// patcher turns a patch into new states.
type patcher struct {
	r       *Resource
	edit    *Edit
	rq      *Request
	typ     types.PatchType
	body    []byte
	strict  string
	sub     string
	manager string
	force   bool
	config  *unstructured.Unstructured
	unfit   error    // why the applied configuration is no object of the kind
	unknown []string // its unknown fields, as warnings
	warned  bool
}

// build patches the newest state's JSON in the request's version and decodes the result.
func (p *patcher) build(old *stored.Object) (kind.Object, error) {
	p.edit.separated = false
	obj, ok, err := p.narrow(old)
	if !ok {
		obj, err = p.whole(old)
	}
	if err != nil {
		return nil, err
	}
	if obj.GetName() == "" {
		return nil, noName(p.rq)
	}
	return obj, p.keepsUID(obj, old)
}

// keepsUID refuses a patch that gives an object another identity.
func (p *patcher) keepsUID(obj kind.Object, old *stored.Object) error {
	uid := obj.GetUID()
	if old == nil || uid == "" || uid == old.Hub().GetUID() {
		return nil
	}
	return apierrors.NewInvalid(p.r.Kind.Hub.GroupKind(), p.rq.Ref.Name, field.ErrorList{field.Invalid(field.NewPath("metadata", "uid"), uid, "field is immutable")})
}

// whole is the general way.
func (p *patcher) whole(old *stored.Object) (kind.Object, error) {
	current, err := old.As(p.rq.Version, stored.JSON)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	patched, faults, err := PatchJSON(p.typ, current.Whole, p.body, p.rq.Version.New(), p.strict)
	if err != nil {
		return nil, err
	}
	obj := p.rq.Version.New()
	more, err := codec.UnmarshalJSON(patched, obj, p.strict)
	if err != nil {
		return nil, p.invalid(err)
	}
	if err := p.sameKind(obj); err != nil {
		return nil, err
	}
	faults = append(faults, more...)
	if p.rq.Version.Settle != nil {
		unknown, err := p.rq.Version.Settle(obj)
		if err != nil {
			return nil, p.invalid(err)
		}
		faults = append(faults, unknown...)
	}
	warnings, err := codec.Judge(faults, p.strict)
	if err != nil {
		return nil, p.invalid(err)
	}
	p.warn(warnings)
	return ToHub(p.r.Kind, p.rq.Version, obj)
}

// warn tells the client once, however often the patch is tried.
func (p *patcher) warn(warnings []string) {
	if !p.warned {
		for _, w := range warnings {
			p.rq.Warn(w)
		}
	}
	p.warned = true
}

// sameKind refuses a patch that makes another kind of the object. One that takes the kind away takes nothing: it is that of the path.
func (p *patcher) sameKind(obj runtime.Object) error {
	want, have := p.rq.Version.GroupVersionKind, obj.GetObjectKind()
	version, kind := have.GroupVersionKind().ToAPIVersionAndKind()
	switch {
	case have.GroupVersionKind() == want:
		return nil
	case !p.r.Kind.Dynamic && (kind == "" || kind == want.Kind) && (version == "" || version == want.GroupVersion().String()):
		have.SetGroupVersionKind(want)
		return nil
	case !p.r.Kind.Dynamic:
		return p.invalid(fmt.Errorf("a patch cannot change the kind of an object: %s is served here, not %s", want, have.GroupVersionKind()))
	}
	var errs field.ErrorList
	if version != want.GroupVersion().String() {
		errs = append(errs, field.Invalid(field.NewPath("apiVersion"), version, "must be "+want.GroupVersion().String()))
	}
	if kind != want.Kind {
		errs = append(errs, field.Invalid(field.NewPath("kind"), kind, "must be "+want.Kind))
	}
	return Invalid(p.r.Kind.Hub.GroupKind(), p.rq.Ref.Name, errs)
}

func (p *patcher) invalid(err error) error {
	return badPatch(p.r.Kind.Hub.GroupKind(), p.rq.Ref.Name, err)
}

// badPatch blames the patch for what came of it. Its value is left out, which in Kubernetes is the whole patched object.
func badPatch(of schema.GroupKind, name string, err error) error {
	return apierrors.NewInvalid(of, name, field.ErrorList{field.Invalid(field.NewPath("patch"), field.OmitValueType{}, err.Error())})
}

// PatchJSON applies a JSON, merge or strategic-merge patch to a document. like is an empty object of the document's Go type, whose tags
// steer a strategic merge. It returns duplicate fields of the patch as faults unless strict ignores them.
func PatchJSON(typ types.PatchType, doc, patch []byte, like runtime.Object, strict string) ([]byte, []error, error) {
	var faults []error
	var fields map[string]any
	if typ != types.JSONPatchType {
		found, err := codec.UnmarshalJSON(patch, &fields, strict)
		if err != nil {
			return nil, nil, apierrors.NewBadRequest(fmt.Sprintf("error decoding patch: %v", err))
		}
		faults = found
	}
	out, err := patchJSON(typ, doc, patch, fields, like)
	return out, faults, err
}

// patchJSON takes the patch as it came and, if it is an object, also its fields.
func patchJSON(typ types.PatchType, doc, patch []byte, fields map[string]any, like runtime.Object) ([]byte, error) {
	switch typ {
	case types.JSONPatchType:
		return jsonPatch(doc, patch)
	case types.MergePatchType:
		out, err := jsonpatch.MergePatch(doc, patch)
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		return out, nil
	case types.StrategicMergePatchType:
		if _, dynamic := like.(*unstructured.Unstructured); dynamic {
			return nil, UnsupportedPatch(typ, types.JSONPatchType, types.MergePatchType, types.ApplyPatchType)
		}
		return strategicMerge(doc, patch, fields, like)
	}
	return nil, UnsupportedPatch(typ, types.JSONPatchType, types.MergePatchType, types.StrategicMergePatchType, types.ApplyPatchType)
}

func strategicMerge(doc, patch []byte, fields map[string]any, like runtime.Object) ([]byte, error) {
	if fields == nil {
		out, err := strategicpatch.StrategicMergePatch(doc, patch, like)
		if err != nil {
			return nil, strategicError(err)
		}
		return out, nil
	}
	var current map[string]any
	if _, err := codec.UnmarshalJSON(doc, &current, metav1.FieldValidationIgnore); err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	out, err := strategicpatch.StrategicMergeMapPatch(current, fields, like)
	if err != nil {
		return nil, strategicError(err)
	}
	return jsonwrite.Marshal(out)
}

func jsonPatch(doc, patch []byte) ([]byte, error) {
	p, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("error decoding patch: %v", err))
	}
	if len(p) > maxPatchOperations {
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("The allowed maximum operations in a JSON patch is %d, got %d", maxPatchOperations, len(p)))
	}
	out, err := applyPatch(p, doc)
	if err != nil {
		return nil, unprocessable(err)
	}
	return out, nil
}

// applyPatch makes an error of what the library panics at, such as a test without a value of a whole document.
func applyPatch(p jsonpatch.Patch, doc []byte) (out []byte, err error) {
	defer func() {
		if fault := recover(); fault != nil {
			err = fmt.Errorf("an operation is malformed: %v", fault)
		}
	}()
	return p.Apply(doc)
}

func strategicError(err error) error {
	switch {
	case mergepatch.IsPreconditionFailed(err), errors.Is(err, mergepatch.ErrBadJSONDoc), errors.Is(err, mergepatch.ErrBadPatchFormatForPrimitiveList),
		errors.Is(err, mergepatch.ErrBadPatchFormatForRetainKeys), errors.Is(err, mergepatch.ErrBadPatchFormatForSetElementOrderList),
		errors.Is(err, mergepatch.ErrUnsupportedStrategicMergePatchFormat):
		return apierrors.NewBadRequest(err.Error())
	}
	return unprocessable(err)
}

// unprocessable is the 422 for a patch that is well formed and does not fit the object.
func unprocessable(err error) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusUnprocessableEntity,
		Reason: metav1.StatusReasonInvalid, Message: "the patch does not fit the object: " + err.Error()}}
}

// UnsupportedPatch is the 415 for a patch type that an endpoint does not take.
func UnsupportedPatch(got types.PatchType, takes ...types.PatchType) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusUnsupportedMediaType,
		Reason:  metav1.StatusReasonUnsupportedMediaType,
		Message: fmt.Sprintf("the body of the request was in an unknown format (%s) - accepted media types include: %v", got, takes)}}
}

// readConfig reads the applied configuration once.
func (p *patcher) readConfig() error {
	if p.readPlain() {
		return p.checkConfig(p.body)
	}
	if err := codec.CheckAliases(p.body); err != nil {
		return apierrors.NewBadRequest(fmt.Sprintf("error decoding YAML: %v", err))
	}
	doc, err := yaml.YAMLToJSONStrict(p.body)
	if err != nil {
		loose, looseErr := yaml.YAMLToJSON(p.body)
		if looseErr != nil {
			return apierrors.NewBadRequest(fmt.Sprintf("error decoding YAML: %v", looseErr))
		}
		warnings, strictErr := codec.Judge([]error{err}, p.strict)
		if strictErr != nil {
			return apierrors.NewBadRequest(strictErr.Error())
		}
		for _, w := range warnings {
			p.rq.Warn(w)
		}
		doc = loose
	}
	p.config = &unstructured.Unstructured{}
	if err := json.Unmarshal(doc, &p.config.Object); err != nil {
		return apierrors.NewBadRequest(fmt.Sprintf("error decoding YAML: error unmarshaling JSON: while decoding JSON: %v", err))
	}
	normalizeNumbers(p.config.Object)
	return p.checkConfig(doc)
}

// readPlain reads a configuration that is plain JSON, which is YAML too but takes a fifth of the time to read as itself.
func (p *patcher) readPlain() bool {
	if body := bytes.TrimLeft(p.body, " \t\r\n"); len(body) == 0 || body[0] != '{' {
		return false
	}
	var fields map[string]any
	faults, err := codec.UnmarshalJSON(p.body, &fields, metav1.FieldValidationStrict)
	if err != nil || len(faults) > 0 {
		return false
	}
	p.config = &unstructured.Unstructured{Object: fields}
	return true
}

// checkConfig refuses a configuration of another kind, and finds unknown fields by decoding it into its Go type. What it finds is for apply to say, unless
// merging says it better, with the path of a field that the schema does not have.
func (p *patcher) checkConfig(doc []byte) error {
	if gvk := p.config.GroupVersionKind(); gvk.Kind != p.rq.Version.Kind || gvk.Version == "" {
		return apierrors.NewBadRequest(fmt.Sprintf("an apply configuration must name its apiVersion and kind: %s %s is served here, not %q %q",
			p.rq.Version.GroupVersion(), p.rq.Version.Kind, p.config.GetAPIVersion(), p.config.GetKind()))
	}
	obj := p.rq.Version.New()
	if err := codec.CheckQuantities(doc, obj); err != nil { // merging would count with them
		return apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: %v", p.rq.Version.Kind, p.rq.Version.Version, p.rq.Version.Kind, err))
	}
	if _, dynamic := obj.(*unstructured.Unstructured); dynamic || p.strict == metav1.FieldValidationIgnore {
		return nil
	}
	faults, err := codec.UnmarshalJSON(doc, obj, p.strict)
	if err != nil {
		p.unfit = apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: %v", p.rq.Version.Kind, p.rq.Version.Version, p.rq.Version.Kind, err))
		return nil
	}
	if p.unknown, err = codec.Judge(faults, p.strict); err != nil {
		p.unfit = apierrors.NewBadRequest(err.Error())
	}
	return nil
}

// normalizeNumbers turns whole floats into integers, as the API's own decoders do.
func normalizeNumbers(v any) any {
	switch x := v.(type) {
	case map[string]any:
		for k, e := range x {
			x[k] = normalizeNumbers(e)
		}
	case []any:
		for i, e := range x {
			x[i] = normalizeNumbers(e)
		}
	case float64:
		if n := int64(x); float64(n) == x {
			return n
		}
	}
	return v
}

// apply merges the configuration into the newest state, or into nothing.
func (p *patcher) apply(old *stored.Object) (kind.Object, error) {
	live := p.r.empty()
	switch {
	case old != nil:
		live = old.Hub()
	case p.config.GetName() == "":
		return nil, noName(p.rq)
	default:
		live.SetName(p.rq.Ref.Name)
		live.SetNamespace(p.rq.Ref.Namespace)
	}
	config := p.config.DeepCopy()
	out, err := p.r.fields.Apply(live, config, p.rq.Version, p.sub, p.manager, p.force)
	if err != nil {
		var status apierrors.APIStatus
		if errors.As(err, &status) {
			return nil, err
		}
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if p.unfit != nil {
		return nil, p.unfit
	}
	p.warn(p.unknown)
	if out == nil {
		if old == nil {
			return nil, apierrors.NewInternalError(errors.New("apply made no object"))
		}
		return nil, nil
	}
	if p.r.Kind.Default != nil {
		p.r.Kind.Default(out)
	}
	return out, p.keepsUID(out, old)
}

// ToHub converts a decoded object of version v to the hub and defaults it.
func ToHub(k *kind.Kind, v *kind.Version, obj runtime.Object) (kind.Object, error) {
	hub, err := toHub(k, v, obj)
	if err != nil {
		return nil, err
	}
	if k.Default != nil {
		k.Default(hub)
	}
	return hub, nil
}

func toHub(k *kind.Kind, v *kind.Version, obj runtime.Object) (kind.Object, error) {
	if v.From == nil {
		hub, ok := obj.(kind.Object)
		if !ok {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("%T is no %s", obj, v.Kind))
		}
		return hub, nil
	}
	hub, err := v.From(obj)
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("cannot convert the %s from %s: %v", v.Kind, v.GroupVersion(), err))
	}
	hub.GetObjectKind().SetGroupVersionKind(k.Hub)
	return hub, nil
}
