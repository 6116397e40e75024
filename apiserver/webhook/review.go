package webhook

import (
	"encoding/json"
	"errors"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/api/admission/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/yare-project/yare/apiserver/matching"
	"github.com/yare-project/yare/internal/jsonwrite"
)

// question is a review to be sent.
type question struct {
	uid     types.UID
	version string // of AdmissionReview
	body    []byte
}

// answer is a webhook's response.
type answer struct {
	allowed     bool
	patch       []byte
	status      *metav1.Status
	warnings    []string
	annotations map[string]string
}

// ask writes the review of a request in the form t, in the first version of the list that is known here.
func ask(r *matching.Request, t matching.Target, versions []string) (*question, error) {
	for _, v := range versions {
		if v == "v1" || v == "v1beta1" {
			return encode(r, t, v)
		}
	}
	return nil, errors.New("webhook does not accept known AdmissionReview versions (v1, v1beta1)")
}

func encode(r *matching.Request, t matching.Target, version string) (*question, error) {
	shown, err := r.Shown(t)
	if err != nil {
		return nil, err
	}
	request := r.Review(t)
	request.UID = uuid.NewUUID()
	for _, o := range []struct {
		to   *runtime.RawExtension
		from runtime.Object
	}{{&request.Object, shown.VersionedObject}, {&request.OldObject, shown.VersionedOldObject}, {&request.Options, request.Options.Object}} {
		o.to.Object = nil
		if o.from == nil {
			continue
		}
		if o.to.Raw, err = jsonwrite.Marshal(o.from); err != nil {
			return nil, err
		}
	}
	// v1beta1's request has the same fields as v1's, so one document serves both.
	body, err := jsonwrite.Marshal(&admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: admissionv1.GroupName + "/" + version, Kind: "AdmissionReview"}, Request: request})
	return &question{uid: request.UID, version: version, body: body}, err
}

// read takes a webhook's response apart, checking what the review's version promises.
func (q *question) read(body []byte, mutating bool) (*answer, error) {
	if q.version == "v1" {
		return q.readV1(body, mutating)
	}
	var review v1beta1.AdmissionReview
	if err := json.Unmarshal(body, &review); err != nil {
		return nil, fmt.Errorf("the answer is no AdmissionReview: %w", err)
	}
	response := review.Response
	if response == nil {
		return nil, errors.New("webhook response was absent")
	}
	a := &answer{allowed: response.Allowed, status: response.Result, warnings: response.Warnings, annotations: response.AuditAnnotations}
	if mutating {
		a.patch = response.Patch
	}
	return a, nil
}

func (q *question) readV1(body []byte, mutating bool) (*answer, error) {
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(body, &review); err != nil {
		return nil, fmt.Errorf("the answer is no AdmissionReview: %w", err)
	}
	response := review.Response
	if response == nil {
		return nil, errors.New("webhook response was absent")
	}
	if response.UID != q.uid {
		return nil, fmt.Errorf("expected response.uid=%q, got %q", q.uid, response.UID)
	}
	if want, got := admissionv1.SchemeGroupVersion.WithKind("AdmissionReview"), review.GroupVersionKind(); got != want {
		return nil, fmt.Errorf("expected webhook response of %v, got %v", want, got)
	}
	if err := checkPatch(response, mutating); err != nil {
		return nil, err
	}
	return &answer{allowed: response.Allowed, patch: response.Patch, status: response.Result, warnings: response.Warnings, annotations: response.AuditAnnotations}, nil
}

func checkPatch(r *admissionv1.AdmissionResponse, mutating bool) error {
	switch {
	case !mutating && len(r.Patch) > 0:
		return errors.New("validating webhook may not return response.patch")
	case !mutating && r.PatchType != nil:
		return errors.New("validating webhook may not return response.patchType")
	case !mutating:
		return nil
	case len(r.Patch) > 0 && r.PatchType == nil:
		return errors.New("webhook returned response.patch but not response.patchType")
	case len(r.Patch) == 0 && r.PatchType != nil:
		return errors.New("webhook returned response.patchType but not response.patch")
	case r.PatchType != nil && *r.PatchType != admissionv1.PatchTypeJSONPatch:
		return fmt.Errorf("webhook returned invalid response.patchType of %q", *r.PatchType)
	}
	return nil
}
