package codec

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/yare-project/yare/apiserver/stored"
)

// Strictness says what happens to fields that are unknown or given twice: metav1.FieldValidationIgnore, Warn or Strict.
type Strictness = string

// Target is what a body is decoded into.
type Target struct {
	Kind schema.GroupVersionKind
	New  func() runtime.Object
	// Older are further versions in which the body may come; they have the same fields. Optional.
	Older []schema.GroupVersion
	// Settle finishes an object without a Go type ([kind.Version]). Optional.
	Settle func(obj runtime.Object) (unknown []error, err error)
}

// Decode reads one object. Warnings are for the client's eyes. A body without type information is taken for the target's kind; one with another is refused.
func Decode(data []byte, media Media, to Target, strict Strictness) (runtime.Object, []string, error) {
	obj := to.New()
	if media == Protobuf || media == JSON && stored.IsProtobuf(data) {
		return obj, nil, decodeProtobuf(data, obj, to)
	}
	if media == CBOR {
		var err error
		if data, err = FromCBOR(data); err != nil {
			return nil, nil, refuseBody(err, to)
		}
	}
	var faults []error
	if media == YAML {
		var err error
		if data, faults, err = fromYAML(data, strict); err != nil {
			return nil, nil, cannotHandle(data, to, err)
		}
	}
	if err := weigh(data, obj); err != nil {
		return nil, nil, err
	}
	more, err := UnmarshalJSON(data, obj, strict)
	if err != nil {
		return nil, nil, cannotHandle(data, to, err)
	}
	if err := checkType(obj.GetObjectKind().GroupVersionKind(), to); err != nil {
		return nil, nil, err
	}
	obj.GetObjectKind().SetGroupVersionKind(to.Kind)
	faults = append(faults, more...)
	if to.Settle != nil {
		unknown, err := to.Settle(obj)
		if err != nil {
			return nil, nil, cannotHandle(data, to, err)
		}
		faults = append(faults, unknown...)
	}
	warnings, err := Judge(faults, strict)
	if err != nil {
		return nil, nil, cannotHandle(data, to, err)
	}
	return obj, warnings, nil
}

// Judge turns unknown and duplicate fields into warnings or an error.
func Judge(faults []error, strict Strictness) (warnings []string, err error) {
	if len(faults) == 0 || strict == metav1.FieldValidationIgnore {
		return nil, nil
	}
	if strict == metav1.FieldValidationStrict {
		return nil, runtime.NewStrictDecodingError(faults)
	}
	for _, f := range faults {
		warnings = append(warnings, f.Error())
	}
	return warnings, nil
}

// UnmarshalJSON reads data into obj by the API's rules: names match exactly, integers stay integers. It returns the unknown and duplicate
// fields unless they are ignored.
func UnmarshalJSON(data []byte, obj any, strict Strictness) ([]error, error) {
	if u, dynamic := obj.(*unstructured.Unstructured); dynamic {
		return unmarshalMap(data, u, strict)
	}
	if err := CheckQuantities(data, obj); err != nil {
		return nil, err
	}
	if quick(data, obj) {
		return nil, nil
	}
	if strict == metav1.FieldValidationIgnore {
		return nil, kjson.UnmarshalCaseSensitivePreserveInts(data, obj)
	}
	return kjson.UnmarshalStrict(data, obj)
}

// unmarshalMap reads an object without a Go type.
func unmarshalMap(data []byte, u *unstructured.Unstructured, strict Strictness) ([]error, error) {
	u.Object = nil
	faults, err := UnmarshalJSON(data, &u.Object, strict)
	if err == nil && u.Object == nil {
		err = errors.New("the body is no JSON object")
	}
	if u.Object == nil {
		u.Object = map[string]any{}
	}
	return faults, err
}

func fromYAML(data []byte, strict Strictness) ([]byte, []error, error) {
	if err := CheckAliases(data); err != nil {
		return data, nil, err
	}
	if strict != metav1.FieldValidationIgnore {
		out, err := yaml.YAMLToJSONStrict(data)
		if err == nil {
			return out, nil, nil
		}
		loose, looseErr := yaml.YAMLToJSON(data)
		if looseErr != nil {
			return data, nil, looseErr
		}
		return loose, []error{err}, nil
	}
	out, err := yaml.YAMLToJSON(data)
	return out, nil, err
}

func decodeProtobuf(data []byte, obj runtime.Object, to Target) error {
	if !stored.HasProtobuf(obj) {
		return status(http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType,
			"the body of the request was in an unknown format - accepted media types include: "+TypeJSON+", "+TypeYAML+", "+TypeCBOR)
	}
	gvk, raw, err := stored.OpenEnvelope(data)
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	if err := checkType(gvk, to); err != nil {
		return err
	}
	if err := weighProtobuf(raw, obj); err != nil {
		return refuseBody(err, to)
	}
	if err := checkProtobuf(raw, obj); err != nil {
		return cannotHandle(nil, to, err)
	}
	if err := stored.UnmarshalProtobuf(obj, raw); err != nil {
		return cannotHandle(nil, to, err)
	}
	obj.GetObjectKind().SetGroupVersionKind(to.Kind)
	return nil
}

func checkType(got schema.GroupVersionKind, to Target) error {
	want := to.Kind
	if got.Version != "" && got.GroupVersion() != want.GroupVersion() && !slices.Contains(to.Older, got.GroupVersion()) {
		return apierrors.NewBadRequest(fmt.Sprintf("the API version in the data (%s) does not match the expected API version (%s)",
			got.GroupVersion(), want.GroupVersion()))
	}
	if got.Kind != "" && got.Kind != want.Kind {
		return apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: the kind in the data is not what this path serves",
			got.Kind, want.Version, want.Kind))
	}
	return nil
}

// cannotHandle explains a body that could not be read; if it was of another kind, that is the reason.
func cannotHandle(data []byte, to Target, err error) error {
	var meta metav1.TypeMeta
	if json.Unmarshal(data, &meta) == nil {
		if wrong := checkType(schema.FromAPIVersionAndKind(meta.APIVersion, meta.Kind), to); wrong != nil {
			return wrong
		}
	}
	if data != nil && !json.Valid(data) {
		return apierrors.NewBadRequest(fmt.Sprintf("the object provided is unrecognized (must be of type %s): couldn't get version/kind; json parse error: %v (%s)",
			to.Kind.Kind, err, beginning(data)))
	}
	return apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: %s",
		to.Kind.Kind, to.Kind.Version, to.Kind.Kind, err))
}

// beginning shows the first bytes of a body that could not be read.
func beginning(data []byte) string {
	const most = 30
	switch {
	case len(data) == 0:
		return "<empty>"
	case data[0] == '{' && len(data) > most:
		return string(data[:most]) + " ..."
	case data[0] == '{':
		return string(data)
	case len(data) > most:
		return hex.EncodeToString(data[:most]) + " ..."
	}
	return hex.EncodeToString(data)
}
