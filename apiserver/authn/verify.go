package authn

import (
	"context"
	"crypto"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/utils/clock"
)

var (
	serviceAccounts = schema.GroupResource{Resource: "serviceaccounts"}
	pods            = schema.GroupResource{Resource: "pods"}
	secrets         = schema.GroupResource{Resource: "secrets"}
	nodes           = schema.GroupResource{Resource: "nodes"}
)

// tokenVerifier authenticates service-account tokens.
type tokenVerifier struct {
	keys      map[string]crypto.PublicKey
	issuers   []string
	audiences authenticator.Audiences
	lookup    Lookup
	clock     clock.PassiveClock
	used      func(ctx context.Context, namespace, name, day string)
	// verified remembers tokens whose signature is good, by digest. Everything else is checked each time.
	verified *bounded[[sha256.Size]byte, *Claims]
}

func newTokenVerifier(cfg Config) *tokenVerifier {
	v := &tokenVerifier{
		keys:      keysOf(cfg),
		issuers:   append([]string{legacyIssuer, cfg.Issuer}, cfg.AcceptIssuers...),
		used:      cfg.SecretUsed,
		audiences: cfg.Audiences,
		lookup:    cfg.Lookup,
		clock:     cfg.Clock,
		verified:  newBounded[[sha256.Size]byte, *Claims](4096),
	}
	return v
}

// keysOf is every key that tokens may be signed with, by key id. A key that has no id cannot be encoded and cannot have signed anything.
func keysOf(cfg Config) map[string]crypto.PublicKey {
	out := map[string]crypto.PublicKey{}
	for _, k := range append([]crypto.PublicKey{cfg.TokenKey.Public()}, cfg.TokenKeys...) {
		if id, err := keyID(k); err == nil {
			out[id] = k
		}
	}
	return out
}

// AuthenticateToken has no opinion on tokens of other issuers; one of its own that is not good is an error.
func (v *tokenVerifier) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	claims, err := v.signed(token)
	if err != nil || claims == nil {
		return nil, false, err
	}
	if claims.Issuer == legacyIssuer {
		return v.legacy(ctx, claims, token)
	}
	if err := claims.current(v.clock.Now()); err != nil {
		return nil, false, err
	}
	matched, err := v.audience(ctx, claims)
	if err != nil {
		return nil, false, err
	}
	info, err := v.exists(ctx, claims)
	if err != nil {
		return nil, false, err
	}
	return &authenticator.Response{Audiences: matched, User: info.UserInfo()}, true, nil
}

// signed returns the claims of a token of ours with a good signature, nil for what is not ours.
func (v *tokenVerifier) signed(token string) (*Claims, error) {
	digest := sha256.Sum256([]byte(token))
	if c, ok := v.verified.get(digest); ok {
		return c, nil
	}
	p, err := parse(token)
	if err != nil || !slices.Contains(v.issuers, p.claims.Issuer) {
		return nil, nil
	}
	if err := p.verify(v.keys); err != nil {
		return nil, err
	}
	v.verified.put(digest, &p.claims)
	return &p.claims, nil
}

// audience returns which of the wanted audiences the token is meant for.
func (v *tokenVerifier) audience(ctx context.Context, c *Claims) (authenticator.Audiences, error) {
	wanted, ok := authenticator.AudiencesFrom(ctx)
	if !ok {
		wanted = v.audiences
	}
	matched := authenticator.Audiences(c.Audience).Intersect(wanted)
	if len(matched) == 0 {
		return nil, fmt.Errorf("token audiences %q is invalid for the target audiences %q", []string(c.Audience), []string(wanted))
	}
	return matched, nil
}

var errInvalidated = errors.New("service account token has been invalidated")

// exists checks that the account and what the token is bound to are still the same objects.
func (v *tokenVerifier) exists(ctx context.Context, c *Claims) (*serviceaccount.ServiceAccountInfo, error) {
	k := &c.Kubernetes
	if c.Subject != serviceaccount.MakeUsername(k.Namespace, k.ServiceAccount.Name) {
		return nil, errors.New("token's subject does not match its service account")
	}
	if err := v.same(ctx, serviceAccounts, k.Namespace, k.ServiceAccount, "service account"); err != nil {
		return nil, err
	}
	info := &serviceaccount.ServiceAccountInfo{Name: k.ServiceAccount.Name, Namespace: k.Namespace, UID: k.ServiceAccount.UID}
	if c.ID != "" {
		info.CredentialID = "JTI=" + c.ID
	}
	if k.Secret != nil {
		if err := v.same(ctx, secrets, k.Namespace, *k.Secret, "secret"); err != nil {
			return nil, err
		}
	}
	if k.Pod != nil {
		if err := v.same(ctx, pods, k.Namespace, *k.Pod, "pod"); err != nil {
			return nil, err
		}
		info.PodName, info.PodUID = k.Pod.Name, k.Pod.UID
	}
	if k.Node != nil {
		// Beside a pod the node only informs: the pod's existence is what the token hangs on.
		if k.Pod == nil {
			if err := v.same(ctx, nodes, "", *k.Node, "node"); err != nil {
				return nil, err
			}
		}
		info.NodeName, info.NodeUID = k.Node.Name, k.Node.UID
	}
	return info, nil
}

func (v *tokenVerifier) same(ctx context.Context, resource schema.GroupResource, namespace string, ref bound, what string) error {
	obj, err := v.lookup.Get(ctx, resource, namespace, ref.Name)
	switch {
	case apierrors.IsNotFound(err) && resource != serviceAccounts:
		return errInvalidated
	case err != nil:
		return err
	case string(obj.GetUID()) != ref.UID:
		return fmt.Errorf("%s UID (%s) does not match claim (%s)", what, obj.GetUID(), ref.UID)
	}
	if d := obj.GetDeletionTimestamp(); d != nil && d.Time.Before(v.clock.Now().Add(-time.Minute)) {
		return errInvalidated
	}
	return nil
}
