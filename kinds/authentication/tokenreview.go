package authentication

import (
	"context"
	"errors"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/yare-project/yare/kind"
)

var _ = kind.Add(&Group, kind.Def[authenticationv1.TokenReview]{
	Names:  kind.Names{Plural: "tokenreviews"},
	Scope:  kind.Cluster,
	Answer: reviewToken,
})

var errInvalidToken = errors.New("invalid bearer token")

// reviewToken tells whose a token is. A token that is no good is an answer, not an error.
func reviewToken(ctx context.Context, env kind.Env, review *authenticationv1.TokenReview) (*authenticationv1.TokenReview, error) {
	if review.Spec.Token == "" {
		return nil, apierrors.NewBadRequest("token is required for TokenReview in authentication")
	}
	out := review.DeepCopy()
	out.Status = authenticationv1.TokenReviewStatus{}
	who, audiences, ok, err := env.Authenticate(ctx, review.Spec.Token, review.Spec.Audiences)
	if err == nil && !ok {
		err = errInvalidToken
	}
	if err != nil {
		out.Status.Error = err.Error()
	}
	if ok && who != nil {
		out.Status.Authenticated = true
		out.Status.User = userInfo(who)
		out.Status.Audiences = audiences
	}
	return out, nil
}
