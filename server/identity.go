package server

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/yare-project/yare/apiserver/authn"
	"github.com/yare-project/yare/apiserver/authn/structured"
	"github.com/yare-project/yare/apiserver/authn/tokenwebhook"
	"github.com/yare-project/yare/apiserver/authz"
	"github.com/yare-project/yare/apiserver/authz/modes"
	"github.com/yare-project/yare/kind"
)

// Identity is who is believed besides the holders of the cluster's own certificates and tokens, and who decides what they may do. The fields are
// kube-apiserver's flags; zero values leave it at the cluster's own, RBAC and Node.
type Identity struct {
	// AuthenticationConfig is the path of an AuthenticationConfiguration; OIDC are the flags for one provider.
	AuthenticationConfig string
	OIDC                 structured.Flags
	// TokenAuthFile has tokens of the operator's choice, as CSV: token, user, uid and, quoted, groups. It is read once.
	TokenAuthFile string
	// TokenWebhook is a service that knows tokens.
	TokenWebhook tokenwebhook.Config
	// Anonymous lets requests without credentials through everywhere (true) or nowhere (false). Nil: for health, version and the authority's certificate.
	Anonymous *bool
	// Authorization says who decides, in which order.
	Authorization modes.Options
}

// publicPaths are what a request without credentials reaches unless it is said otherwise.
var publicPaths = []string{"/healthz", "/livez", "/readyz", "/version", "/cacerts"}

// authority is a whole decision about what somebody may do.
type authority interface {
	authorizer.Authorizer
	authorizer.RuleResolver
}

// believe adds to the authenticator's config what the identity says.
func (p *plane) believe(auth *authn.Config) error {
	id := &p.config.Identity
	auth.Anonymous, auth.AnonymousPaths = true, publicPaths
	if id.Anonymous != nil {
		auth.Anonymous, auth.AnonymousPaths = *id.Anonymous, nil
	}
	static, err := tokensIn(id.TokenAuthFile)
	if err != nil {
		return fmt.Errorf("--token-auth-file: %w", err)
	}
	auth.StaticTokens = append(auth.StaticTokens, static...)
	if err := p.believeProviders(auth); err != nil {
		return err
	}
	if id.TokenWebhook.ConfigFile == "" {
		return nil
	}
	id.TokenWebhook.Audiences = auth.Audiences
	service, err := tokenwebhook.New(id.TokenWebhook)
	if err == nil {
		auth.Others = append(auth.Others, service)
	}
	return err
}

func (p *plane) believeProviders(auth *authn.Config) error {
	id := &p.config.Identity
	c := structured.Config{File: id.AuthenticationConfig, Flags: id.OIDC, Audiences: auth.Audiences, Clock: p.config.Clock, Log: p.config.Log,
		Reserved: append([]string{auth.Issuer}, auth.AcceptIssuers...), AnonymousElsewhere: id.Anonymous != nil}
	if !c.Wanted() {
		return nil
	}
	providers, err := structured.New(c)
	if err != nil {
		return err
	}
	p.cluster.stack.onStop(func(context.Context) error { providers.Close(); return nil })
	p.cluster.stack.run("identity providers", providers.Run)
	auth.Others = append(auth.Others, providers)
	if id.Anonymous == nil && id.AuthenticationConfig != "" {
		auth.AnonymousOn = func(path string) bool { return anonymousBy(providers.Anonymous(), path) }
	}
	return nil
}

// anonymousBy reads the field "anonymous" of an AuthenticationConfiguration; without it, the public paths are open.
func anonymousBy(rule *apiserver.AnonymousAuthConfig, path string) bool {
	switch {
	case rule == nil:
		return slices.Contains(publicPaths, path)
	case !rule.Enabled:
		return false
	}
	return len(rule.Conditions) == 0 || slices.ContainsFunc(rule.Conditions, func(c apiserver.AnonymousAuthCondition) bool { return c.Path == path })
}

// authorizer is who decides: Node and RBAC unless told otherwise.
func (p *plane) authorizer() (authority, error) {
	o := p.config.Identity.Authorization
	if !o.Wanted() {
		return authz.New(p.nodes, p.rbac), nil
	}
	chosen, err := modes.New(modes.Config{Options: o, Clock: p.config.Clock, Log: p.config.Log,
		BuiltIn: map[string]authorizer.Authorizer{modes.Node: p.nodes, modes.RBAC: p.rbac}})
	if err != nil {
		return nil, err
	}
	p.cluster.stack.run("authorization", chosen.Run)
	return chosen, nil
}

// secretUsed notes on a Secret the day on which the token in it was used.
func secretUsed(env kind.Env, log *slog.Logger) func(ctx context.Context, namespace, name, day string) {
	return func(ctx context.Context, namespace, name, day string) {
		_, err := env.Change(ctx, schema.GroupResource{Resource: "secrets"}, namespace, name, func(secret kind.Object) error {
			labels := maps.Clone(secret.GetLabels())
			if labels == nil {
				labels = map[string]string{}
			}
			labels[authn.LastUsedLabel] = day
			secret.SetLabels(labels)
			return nil
		})
		if err != nil {
			log.Warn("that a token was used could not be noted on its secret", "namespace", namespace, "secret", name, "error", err)
		}
	}
}
