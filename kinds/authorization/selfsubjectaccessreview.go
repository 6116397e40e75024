package authorization

import (
	"context"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/yare-project/yare/kind"
)

var _ = kind.Add(&Group, kind.Def[authorizationv1.SelfSubjectAccessReview]{
	Names:    kind.Names{Plural: "selfsubjectaccessreviews"},
	Scope:    kind.Cluster,
	Validate: validateSelfReview,
	Answer: func(ctx context.Context, env kind.Env, r *authorizationv1.SelfSubjectAccessReview) (*authorizationv1.SelfSubjectAccessReview, error) {
		if err := invalid("SelfSubjectAccessReview", validateSelfReview(r, nil)); err != nil {
			return nil, err
		}
		who := env.User(ctx)
		if who == nil {
			return nil, errNoUser
		}
		out := r.DeepCopy()
		out.Status = answer(ctx, env, who, question{r.Spec.ResourceAttributes, r.Spec.NonResourceAttributes})
		return out, nil
	},
})

func validateSelfReview(r, _ *authorizationv1.SelfSubjectAccessReview) field.ErrorList {
	errs := validateQuestion(question{r.Spec.ResourceAttributes, r.Spec.NonResourceAttributes})
	return append(errs, validateMeta(&r.ObjectMeta, "must be empty")...)
}
