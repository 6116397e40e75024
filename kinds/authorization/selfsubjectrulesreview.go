package authorization

import (
	"context"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/yare-project/yare/kind"
)

var _ = kind.Add(&Group, kind.Def[authorizationv1.SelfSubjectRulesReview]{
	Names:  kind.Names{Plural: "selfsubjectrulesreviews"},
	Scope:  kind.Cluster,
	Answer: reviewRules,
})

// reviewRules lists what the asking user may do in a namespace.
func reviewRules(ctx context.Context, env kind.Env, r *authorizationv1.SelfSubjectRulesReview) (*authorizationv1.SelfSubjectRulesReview, error) {
	who := env.User(ctx)
	if who == nil {
		return nil, errNoUser
	}
	if r.Spec.Namespace == "" {
		return nil, apierrors.NewBadRequest("no namespace on request")
	}
	out := r.DeepCopy()
	resources, others, incomplete := env.Rules(ctx, who, r.Spec.Namespace)
	out.Status = authorizationv1.SubjectRulesReviewStatus{ResourceRules: []authorizationv1.ResourceRule{}, NonResourceRules: []authorizationv1.NonResourceRule{}}
	for _, rule := range resources {
		out.Status.ResourceRules = append(out.Status.ResourceRules, authorizationv1.ResourceRule{
			Verbs: rule.GetVerbs(), APIGroups: rule.GetAPIGroups(), Resources: rule.GetResources(), ResourceNames: rule.GetResourceNames()})
	}
	for _, rule := range others {
		out.Status.NonResourceRules = append(out.Status.NonResourceRules, authorizationv1.NonResourceRule{Verbs: rule.GetVerbs(), NonResourceURLs: rule.GetNonResourceURLs()})
	}
	if incomplete != nil {
		out.Status.Incomplete, out.Status.EvaluationError = true, incomplete.Error()
	}
	return out, nil
}
