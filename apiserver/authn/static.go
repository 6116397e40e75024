package authn

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
)

// StaticToken is a token that stands for a user until the server restarts without it: a join token (user system:bootstrap:static in
// group system:bootstrappers) or an admin token.
type StaticToken struct {
	Token string
	User  user.Info
}

type staticToken struct {
	sum  [sha256.Size]byte
	user user.Info
}

type staticTokens []staticToken

func newStaticTokens(in []StaticToken) (staticTokens, error) {
	var out staticTokens
	for _, t := range in {
		if t.Token == "" || t.User == nil || t.User.GetName() == "" {
			return nil, errors.New("authn: a static token needs a token and a user with a name")
		}
		out = append(out, staticToken{sha256.Sum256([]byte(t.Token)), t.User})
	}
	return out, nil
}

// AuthenticateToken compares digests, all of them, in constant time: how long it takes says nothing about any token.
func (s staticTokens) AuthenticateToken(_ context.Context, token string) (*authenticator.Response, bool, error) {
	sum := sha256.Sum256([]byte(token))
	var found user.Info
	for i := range s {
		if subtle.ConstantTimeCompare(sum[:], s[i].sum[:]) == 1 {
			found = s[i].user
		}
	}
	if found == nil {
		return nil, false, nil
	}
	return &authenticator.Response{User: found}, true, nil
}
