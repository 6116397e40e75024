package authn

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
)

// Tokens that are kept in Secrets of type kubernetes.io/service-account-token have no end of their own. They are good as long as the Secret holds them.

const (
	legacyIssuer = "kubernetes/serviceaccount"
	// LastUsedLabel on a Secret says on which day its token was last used, InvalidSinceLabel that it is no longer to be good (KEP-2799).
	LastUsedLabel     = "kubernetes.io/legacy-token-last-used"
	InvalidSinceLabel = "kubernetes.io/legacy-token-invalid-since"
)

// legacy judges such a token, whose signature is good.
func (v *tokenVerifier) legacy(ctx context.Context, c *Claims, token string) (*authenticator.Response, bool, error) {
	l := &c.legacy
	if l.Namespace == "" || l.Secret == "" || l.Account == "" || l.AccountUID == "" || c.Subject != serviceaccount.MakeUsername(l.Namespace, l.Account) {
		return nil, false, errors.New("token's subject does not match its service account")
	}
	wanted := *c
	wanted.Audience = audience(v.audiences) // it names none, so it is for the API server
	matched, err := v.audience(ctx, &wanted)
	if err != nil {
		return nil, false, err
	}
	obj, err := v.lookup.Get(ctx, secrets, l.Namespace, l.Secret)
	secret, ok := obj.(*corev1.Secret)
	switch {
	case err != nil || !ok || secret.DeletionTimestamp != nil:
		return nil, false, errInvalidated
	case subtle.ConstantTimeCompare(secret.Data[corev1.ServiceAccountTokenKey], []byte(token)) != 1:
		return nil, false, errors.New("token does not match the one in its secret")
	}
	if err := v.same(ctx, serviceAccounts, l.Namespace, bound{l.Account, l.AccountUID}, "service account"); err != nil {
		return nil, false, err
	}
	v.tellUse(ctx, secret)
	if secret.Labels[InvalidSinceLabel] != "" {
		return nil, false, fmt.Errorf("the token in secret %s/%s was marked invalid: use tokens of the TokenRequest API, or remove the label %s from the secret", l.Namespace, l.Secret, InvalidSinceLabel)
	}
	info := &serviceaccount.ServiceAccountInfo{Name: l.Account, Namespace: l.Namespace, UID: l.AccountUID}
	return &authenticator.Response{Audiences: matched, User: info.UserInfo()}, true, nil
}

// tellUse tells of the first use in a day. Another server whose clock is ahead may have told of tomorrow.
func (v *tokenVerifier) tellUse(ctx context.Context, secret *corev1.Secret) {
	now := v.clock.Now().UTC()
	today, tomorrow := now.Format(time.DateOnly), now.AddDate(0, 0, 1).Format(time.DateOnly)
	if last := secret.Labels[LastUsedLabel]; v.used != nil && last != today && last != tomorrow {
		v.used(ctx, secret.Namespace, secret.Name, today)
	}
}
