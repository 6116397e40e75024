package apiserver

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// unsafeVerb is what one must be allowed, besides to delete, to remove an object that cannot be read (KEP-3926).
const unsafeVerb = "unsafe-delete-ignore-read-errors"

// unsafeDelete tells whether a delete shall remove an object that cannot be read, too.
func unsafeDelete(opts *metav1.DeleteOptions) bool {
	return opts.IgnoreStoreReadErrorWithClusterBreakingPotential != nil && *opts.IgnoreStoreReadErrorWithClusterBreakingPotential
}

// allowUnsafe asks for the further right that an unsafe delete takes.
func (s *Server) allowUnsafe(ctx context.Context, opts *metav1.DeleteOptions, of func() authorizer.AttributesRecord) error {
	if !unsafeDelete(opts) {
		return nil
	}
	a := of()
	a.Verb = unsafeVerb
	return s.allow(ctx, a)
}

// refuseUnsafe keeps an unsafe delete to one object.
func refuseUnsafe(opts *metav1.DeleteOptions) error {
	if !unsafeDelete(opts) {
		return nil
	}
	return apierrors.NewInvalid(metav1.SchemeGroupVersion.WithKind("DeleteOptions").GroupKind(), "", field.ErrorList{
		field.Invalid(field.NewPath("ignoreStoreReadErrorWithClusterBreakingPotential"), true, "is not allowed with DELETECOLLECTION, try again after removing the option")})
}
