package authorization

import (
	"context"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/yare-project/yare/kind"
)

var _ = kind.Add(&Group, kind.Def[authorizationv1.SubjectAccessReview]{
	Names:    kind.Names{Plural: "subjectaccessreviews"},
	Scope:    kind.Cluster,
	Validate: validateReview,
	Answer: func(ctx context.Context, env kind.Env, r *authorizationv1.SubjectAccessReview) (*authorizationv1.SubjectAccessReview, error) {
		if err := invalid("SubjectAccessReview", validateReview(r, nil)); err != nil {
			return nil, err
		}
		out := r.DeepCopy()
		out.Status = answer(ctx, env, subject(&r.Spec), question{r.Spec.ResourceAttributes, r.Spec.NonResourceAttributes})
		return out, nil
	},
})

func validateReview(r, _ *authorizationv1.SubjectAccessReview) field.ErrorList {
	errs := validateQuestion(question{r.Spec.ResourceAttributes, r.Spec.NonResourceAttributes})
	errs = append(errs, validateSubject(&r.Spec)...)
	return append(errs, validateMeta(&r.ObjectMeta, "must be empty")...)
}
