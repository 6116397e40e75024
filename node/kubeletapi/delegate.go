package kubeletapi

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
)

// DelegatedConfig lets the API server decide who a caller is and what it may do.
type DelegatedConfig struct {
	// ClientCAs are those whose certificates name users (CN) and groups (O). It is
	// asked for each request, so that a renewed CA takes effect. Nil turns client
	// certificates off.
	ClientCAs func() *x509.CertPool
	// ReviewToken and ReviewAccess create the review and return it answered. Both
	// are required.
	ReviewToken  func(context.Context, *authenticationv1.TokenReview) (*authenticationv1.TokenReview, error)
	ReviewAccess func(context.Context, *authorizationv1.SubjectAccessReview) (*authorizationv1.SubjectAccessReview, error)
	Clock        clock.PassiveClock // optional
}

// Answers are remembered for as long as the kubelet remembers them by default,
// and no more than remembered of each kind.
const (
	tokenTTL   = 2 * time.Minute
	allowedTTL = 5 * time.Minute
	deniedTTL  = 30 * time.Second
	askTimeout = 10 * time.Second
	remembered = 4096
)

// Delegated returns an authenticator for client certificates and bearer tokens
// (TokenReview), and an authorizer (SubjectAccessReview).
func Delegated(c DelegatedConfig) (authenticator.Request, authorizer.Authorizer, error) {
	if c.ReviewToken == nil || c.ReviewAccess == nil {
		return nil, nil, errors.New("node API: delegated authorization needs ReviewToken and ReviewAccess")
	}
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	tokens := &tokenReviewer{ask: c.ReviewToken, clock: c.Clock, known: lru.New(remembered)}
	ways := []authenticator.Request{bearertoken.New(tokens)}
	if c.ClientCAs != nil {
		ways = append([]authenticator.Request{Certificates(c.ClientCAs)}, ways...)
	}
	return union.New(ways...), &accessReviewer{ask: c.ReviewAccess, clock: c.Clock, known: lru.New(remembered)}, nil
}

type tokenReviewer struct {
	ask   func(context.Context, *authenticationv1.TokenReview) (*authenticationv1.TokenReview, error)
	clock clock.PassiveClock
	known *lru.Cache // of knownToken, by the token's hash: the token itself is not kept
}

type knownToken struct {
	until time.Time
	user  user.Info // nil: not authenticated
}

func (t *tokenReviewer) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	key := sha256.Sum256([]byte(token))
	if v, ok := t.known.Get(key); ok && t.clock.Now().Before(v.(knownToken).until) {
		return answerToken(v.(knownToken))
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	got, err := t.ask(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}})
	if err != nil {
		return nil, false, fmt.Errorf("review of the bearer token: %w", err)
	}
	known := knownToken{until: t.clock.Now().Add(tokenTTL)}
	if got.Status.Authenticated {
		u := got.Status.User
		extra := map[string][]string{}
		for k, v := range u.Extra {
			extra[k] = v
		}
		known.user = &user.DefaultInfo{Name: u.Username, UID: u.UID, Groups: u.Groups, Extra: extra}
	}
	t.known.Add(key, known)
	return answerToken(known)
}

func answerToken(k knownToken) (*authenticator.Response, bool, error) {
	if k.user == nil {
		return nil, false, nil
	}
	return &authenticator.Response{User: k.user}, true, nil
}

type accessReviewer struct {
	ask   func(context.Context, *authorizationv1.SubjectAccessReview) (*authorizationv1.SubjectAccessReview, error)
	clock clock.PassiveClock
	known *lru.Cache // of knownAccess, by the review's request
}

type knownAccess struct {
	until   time.Time
	allowed bool
	reason  string
}

func (a *accessReviewer) Authorize(ctx context.Context, attrs authorizer.Attributes) (authorizer.Decision, string, error) {
	spec := accessSpec(attrs)
	key := spec.String()
	if v, ok := a.known.Get(key); ok && a.clock.Now().Before(v.(knownAccess).until) {
		return answerAccess(v.(knownAccess))
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	got, err := a.ask(ctx, &authorizationv1.SubjectAccessReview{Spec: spec})
	if err != nil {
		return authorizer.DecisionNoOpinion, "", fmt.Errorf("review of access: %w", err)
	}
	known := knownAccess{until: a.clock.Now().Add(deniedTTL), allowed: got.Status.Allowed, reason: got.Status.Reason}
	if known.allowed {
		known.until = a.clock.Now().Add(allowedTTL)
	}
	a.known.Add(key, known)
	return answerAccess(known)
}

func answerAccess(k knownAccess) (authorizer.Decision, string, error) {
	if k.allowed {
		return authorizer.DecisionAllow, k.reason, nil
	}
	return authorizer.DecisionNoOpinion, k.reason, nil
}

func accessSpec(attrs authorizer.Attributes) authorizationv1.SubjectAccessReviewSpec {
	u := attrs.GetUser()
	extra := map[string]authorizationv1.ExtraValue{}
	for k, v := range u.GetExtra() {
		extra[k] = v
	}
	return authorizationv1.SubjectAccessReviewSpec{
		User: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups(), Extra: extra,
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: attrs.GetVerb(), Group: attrs.GetAPIGroup(), Version: attrs.GetAPIVersion(), Namespace: attrs.GetNamespace(),
			Resource: attrs.GetResource(), Subresource: attrs.GetSubresource(), Name: attrs.GetName(),
		},
	}
}
