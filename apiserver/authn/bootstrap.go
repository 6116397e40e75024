package authn

import (
	"context"
	"crypto/subtle"
	"log/slog"
	"regexp"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/utils/clock"
)

// Names of the bootstrap token format (Kubernetes documentation, "Authenticating with Bootstrap Tokens").
const (
	bootstrapSecretType   = "bootstrap.kubernetes.io/token"
	bootstrapSecretPrefix = "bootstrap-token-"
	bootstrapUserPrefix   = "system:bootstrap:"
	bootstrapGroup        = "system:bootstrappers"
)

var (
	bootstrapToken = regexp.MustCompile(`^([a-z0-9]{6})\.([a-z0-9]{16})$`)
	extraGroup     = regexp.MustCompile(`^system:bootstrappers:[a-z0-9:-]{0,255}[a-z0-9]$`)
)

// bootstrapTokens authenticates "<id>.<secret>" by Secret kube-system/bootstrap-token-<id>.
type bootstrapTokens struct {
	lookup Lookup
	clock  clock.PassiveClock
	log    *slog.Logger
}

func (b *bootstrapTokens) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	parts := bootstrapToken.FindStringSubmatch(token)
	if parts == nil {
		return nil, false, nil
	}
	id, secret := parts[1], parts[2]
	obj, err := b.lookup.Get(ctx, schema.GroupResource{Resource: "secrets"}, metav1.NamespaceSystem, bootstrapSecretPrefix+id)
	if apierrors.IsNotFound(err) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	s, ok := obj.(*corev1.Secret)
	if !ok {
		return nil, false, nil
	}
	groups, why := judgeBootstrap(s, id, secret, b.clock.Now())
	if why != "" {
		b.log.Info("bootstrap token refused", "token-id", id, "because", why)
		return nil, false, nil
	}
	return &authenticator.Response{User: &user.DefaultInfo{Name: bootstrapUserPrefix + id, Groups: groups}}, true, nil
}

// judgeBootstrap returns the groups of a good token, or why it is not good.
func judgeBootstrap(s *corev1.Secret, id, secret string, now time.Time) (groups []string, why string) {
	switch {
	case s.DeletionTimestamp != nil:
		return nil, "its secret is being deleted"
	case s.Type != bootstrapSecretType:
		return nil, "its secret is not of type " + bootstrapSecretType
	case subtle.ConstantTimeCompare(s.Data["token-secret"], []byte(secret)) != 1:
		return nil, "the secret part is wrong"
	case string(s.Data["token-id"]) != id:
		return nil, "token-id in its secret differs"
	case string(s.Data["usage-bootstrap-authentication"]) != "true":
		return nil, "usage-bootstrap-authentication is not true"
	}
	if expiration := string(s.Data["expiration"]); expiration != "" {
		at, err := time.Parse(time.RFC3339, expiration)
		if err != nil {
			return nil, "expiration is not an RFC 3339 time"
		}
		if !now.Before(at) {
			return nil, "it expired"
		}
	}
	groups = []string{bootstrapGroup}
	for _, g := range strings.Split(string(s.Data["auth-extra-groups"]), ",") {
		if g == "" {
			continue
		}
		if !extraGroup.MatchString(g) {
			return nil, "auth-extra-groups has a group that does not start with " + bootstrapGroup + ":"
		}
		groups = append(groups, g)
	}
	return groups, ""
}
