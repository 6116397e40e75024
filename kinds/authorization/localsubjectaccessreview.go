package authorization

import (
	"context"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/yare-project/yare/kind"
)

var _ = kind.Add(&Group, kind.Def[authorizationv1.LocalSubjectAccessReview]{
	Names:    kind.Names{Plural: "localsubjectaccessreviews"},
	Validate: validateLocalReview,
	Answer: func(ctx context.Context, env kind.Env, r *authorizationv1.LocalSubjectAccessReview) (*authorizationv1.LocalSubjectAccessReview, error) {
		if err := invalid("LocalSubjectAccessReview", validateLocalReview(r, nil)); err != nil {
			return nil, err
		}
		out := r.DeepCopy()
		out.Status = answer(ctx, env, subject(&r.Spec), question{resource: r.Spec.ResourceAttributes})
		return out, nil
	},
})

func validateLocalReview(r, _ *authorizationv1.LocalSubjectAccessReview) field.ErrorList {
	errs := validateQuestion(question{r.Spec.ResourceAttributes, r.Spec.NonResourceAttributes})
	errs = append(errs, validateSubject(&r.Spec)...)
	errs = append(errs, validateMeta(&r.ObjectMeta, "must be empty except for namespace")...)
	if a := r.Spec.ResourceAttributes; a != nil && a.Namespace != r.Namespace {
		errs = append(errs, field.Invalid(field.NewPath("spec", "resourceAttributes", "namespace"), a.Namespace, "must match metadata.namespace"))
	}
	if a := r.Spec.NonResourceAttributes; a != nil {
		errs = append(errs, field.Invalid(field.NewPath("spec", "nonResourceAttributes"), a, "disallowed on this kind of request"))
	}
	return errs
}
