package resource

import (
	"context"
	"fmt"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/kind"
)

// AdminAccess is the validator that keeps administrators' access to devices, which is access to those of others too, to namespaces with the label
// resource.kubernetes.io/admin-access: "true". Whoever may write claims in such a namespace may have it.
type AdminAccess struct{}

// Name names the validator.
func (AdminAccess) Name() string { return "DRAAdminAccess" }

// Validate refuses a new claim or template that asks for such access, and a status that gives it.
func (AdminAccess) Validate(ctx context.Context, env kind.Env, r *kind.AdmissionRequest) error {
	var asked *field.Path
	switch o := r.Object.(type) {
	case *resourcev1.ResourceClaim:
		if old, ok := r.Old.(*resourcev1.ResourceClaim); ok { // what was asked for never changes, and what was given only goes
			asked = given(&old.Status)
			if asked != nil {
				return nil
			}
			asked = given(&o.Status)
		} else {
			asked = asks(&o.Spec)
		}
	case *resourcev1.ResourceClaimTemplate:
		if r.Operation == admissionv1.Create {
			asked = asks(&o.Spec.Spec)
		}
	}
	if asked == nil {
		return nil
	}
	refuse := func(e *field.Error) error {
		return apierrors.NewInvalid(r.Kind.Hub.GroupKind(), r.Object.GetName(), field.ErrorList{e})
	}
	ns, err := env.Get(ctx, schema.GroupResource{Resource: "namespaces"}, "", r.Ref.Namespace)
	if err != nil {
		return refuse(field.InternalError(asked, fmt.Errorf("could not retrieve namespace to verify admin access: %w", err)))
	}
	if ns.GetLabels()[resourcev1.DRAAdminNamespaceLabelKey] != "true" {
		return refuse(field.Forbidden(asked, fmt.Sprintf("admin access to devices requires the `%s: true` label on the containing namespace", resourcev1.DRAAdminNamespaceLabelKey)))
	}
	return nil
}

// asks is the first request for the access, by the path that clients know it by.
func asks(spec *resourcev1.ResourceClaimSpec) *field.Path {
	i := slices.IndexFunc(spec.Devices.Requests, func(r resourcev1.DeviceRequest) bool {
		return r.Exactly != nil && ptr.Deref(r.Exactly.AdminAccess, false)
	})
	if i < 0 {
		return nil
	}
	return field.NewPath("spec", "devices", "requests").Index(i).Child("adminAccess")
}

// given is the first device of an allocation that is given with the access.
func given(status *resourcev1.ResourceClaimStatus) *field.Path {
	if status.Allocation == nil {
		return nil
	}
	i := slices.IndexFunc(status.Allocation.Devices.Results, func(r resourcev1.DeviceRequestAllocationResult) bool { return ptr.Deref(r.AdminAccess, false) })
	if i < 0 {
		return nil
	}
	return field.NewPath("status", "allocation", "devices", "results").Index(i).Child("adminAccess")
}
