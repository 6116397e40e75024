package crd

import (
	"errors"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1beta1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// review is a question to a conversion webhook, in the first version of the API that both sides know.
type review struct {
	uid     types.UID
	request runtime.Object
	answer  runtime.Object
}

func newReview(versions []string, objects []*unstructured.Unstructured, to schema.GroupVersion) (*review, error) {
	r := &review{uid: uuid.NewUUID()}
	raw := make([]runtime.RawExtension, len(objects))
	for i, u := range objects {
		raw[i].Object = u
	}
	for _, version := range versions {
		switch version {
		case "v1":
			r.request = &apiextensionsv1.ConversionReview{Request: &apiextensionsv1.ConversionRequest{UID: r.uid, DesiredAPIVersion: to.String(), Objects: raw}}
			r.answer = &apiextensionsv1.ConversionReview{}
			return r, nil
		case "v1beta1":
			r.request = &v1beta1.ConversionReview{Request: &v1beta1.ConversionRequest{UID: r.uid, DesiredAPIVersion: to.String(), Objects: raw},
				Response: &v1beta1.ConversionResponse{}}
			r.answer = &v1beta1.ConversionReview{}
			return r, nil
		}
	}
	return nil, fmt.Errorf("it takes none of the review versions v1 and v1beta1, only %q", versions)
}

// objects reads the answer.
func (r *review) objects() ([]runtime.RawExtension, error) {
	switch a := r.answer.(type) {
	case *apiextensionsv1.ConversionReview:
		want := apiextensionsv1.SchemeGroupVersion.WithKind("ConversionReview")
		switch {
		case a.GroupVersionKind() != want:
			return nil, fmt.Errorf("expected an answer of %s, got %s", want, a.GroupVersionKind())
		case a.Response == nil:
			return nil, errors.New("no response provided")
		case a.Response.UID != r.uid:
			return nil, fmt.Errorf("expected response.uid=%q, got %q", r.uid, a.Response.UID)
		}
		return a.Response.ConvertedObjects, success(a.Response.Result)
	case *v1beta1.ConversionReview:
		if a.Response == nil {
			return nil, errors.New("no response provided")
		}
		return a.Response.ConvertedObjects, success(a.Response.Result)
	}
	return nil, fmt.Errorf("unexpected answer %T", r.answer)
}

func success(result metav1.Status) error {
	switch {
	case result.Status == metav1.StatusSuccess:
		return nil
	case result.Message != "":
		return errors.New(result.Message)
	}
	return fmt.Errorf("response.result.status was %q, not 'Success'", result.Status)
}

// converted reads one object of an answer. Of its metadata only labels and annotations may differ from what was sent.
func converted(sent *unstructured.Unstructured, raw *runtime.RawExtension, to schema.GroupVersion) (*unstructured.Unstructured, error) {
	u, ok := raw.Object.(*unstructured.Unstructured)
	if raw.Object == nil {
		u, ok = &unstructured.Unstructured{}, true
		if err := u.UnmarshalJSON(raw.Raw); err != nil {
			return nil, err
		}
	}
	switch {
	case !ok:
		return nil, fmt.Errorf("it is a %T", raw.Object)
	case u.GroupVersionKind().GroupVersion() != to:
		return nil, fmt.Errorf("invalid groupVersion (expected %v, received %v)", to, u.GroupVersionKind().GroupVersion())
	case u.GetKind() != sent.GetKind():
		return nil, fmt.Errorf("invalid kind (expected %v, received %v)", sent.GetKind(), u.GetKind())
	case u.GetName() != sent.GetName():
		return nil, fmt.Errorf("must have the same name: %v != %v", sent.GetName(), u.GetName())
	case u.GetNamespace() != sent.GetNamespace():
		return nil, fmt.Errorf("must have the same namespace: %v != %v", sent.GetNamespace(), u.GetNamespace())
	case u.GetUID() != sent.GetUID():
		return nil, fmt.Errorf("must have the same UID: %v != %v", sent.GetUID(), u.GetUID())
	}
	return u, restore(sent, u)
}

// restore gives u the metadata of what was sent, but for labels and annotations, which must be valid.
func restore(sent, u *unstructured.Unstructured) error {
	answer, ok := u.Object["metadata"].(map[string]any)
	if !ok {
		return errors.New("missing metadata in converted object")
	}
	meta := map[string]any{}
	if original, has := sent.Object["metadata"].(map[string]any); has {
		meta = runtime.DeepCopyJSON(original)
	}
	for _, name := range []string{"labels", "annotations"} {
		values, found, err := unstructured.NestedStringMap(answer, name)
		if err != nil {
			return fmt.Errorf("invalid metadata.%s in converted object: %w", name, err)
		}
		errs := metavalidation.ValidateLabels(values, field.NewPath("metadata", name))
		if name == "annotations" {
			errs = validation.ValidateAnnotations(values, field.NewPath("metadata", name))
		}
		if len(errs) > 0 {
			return errs.ToAggregate()
		}
		delete(meta, name)
		if found && len(values) > 0 {
			meta[name] = answer[name]
		}
	}
	u.Object["metadata"] = meta
	return nil
}
