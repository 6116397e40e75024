package authentication

import (
	"context"
	"errors"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/yare-project/yare/kind"
)

var _ = kind.Add(&Group, kind.Def[authenticationv1.SelfSubjectReview]{
	Names: kind.Names{Plural: "selfsubjectreviews"},
	Scope: kind.Cluster,
	Answer: func(ctx context.Context, env kind.Env, review *authenticationv1.SelfSubjectReview) (*authenticationv1.SelfSubjectReview, error) {
		who := env.User(ctx)
		if who == nil {
			return nil, apierrors.NewInternalError(errors.New("the request has no user"))
		}
		out := review.DeepCopy()
		out.Status.UserInfo = userInfo(who)
		return out, nil
	},
})
