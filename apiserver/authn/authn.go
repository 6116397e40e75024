// Package authn tells who makes a request: by client certificate, front proxy, service-account token, bootstrap token, static token or one that
// somebody else knows (Config.Others: identity providers, a webhook), and, if nothing was presented, as system:anonymous. It judges who may act as somebody
// else, issues service-account tokens, and serves the documents by which others check them.
//
// Guarantees:
//   - A credential that was presented and is not good never falls back to anonymous: the request is refused.
//   - A service-account token stops working with the account, and with the pod, secret or node that it is bound to, at once:
//     both are looked up (with their uid) on every request. Only the result of signature checks is remembered.
//   - Tokens, their parts and secrets are in no error and no log line.
//   - Whatever a client sends is bounded before it is parsed.
//
// Everything is safe for concurrent use. What a user may do is package authz's matter.
package authn

import (
	"context"
	"crypto"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/request/websocket"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/utils/clock"

	"github.com/yare-project/yare/kind"
)

// Lookup reads newest objects, with the server's own rights. Errors are *apierrors.StatusError. kind.Env satisfies it.
type Lookup interface {
	Get(ctx context.Context, resource schema.GroupResource, namespace, name string) (kind.Object, error)
}

// Config says what is believed.
type Config struct {
	// ClientCA vouches for client certificates; nil switches them off.
	ClientCA *x509.CertPool
	// FrontProxy says who may speak for other users by request headers; nil means nobody.
	FrontProxy *FrontProxy
	// StaticTokens are credentials that the server's operator chose.
	StaticTokens []StaticToken
	// TokenKey signs service-account tokens; TokenKeys are more keys to accept, such as the one before. They are RSA keys, or ECDSA keys on P-256, P-384
	// or P-521.
	TokenKey  crypto.Signer
	TokenKeys []crypto.PublicKey
	// Issuer is the "iss" of new tokens, a URL; AcceptIssuers are more to accept.
	Issuer        string
	AcceptIssuers []string
	// Audiences are what a token must be meant for to be good here; the first ones are what tokens get when they ask for none.
	Audiences []string
	// MaxTokenLife shortens the life that is asked for a token; zero does not.
	MaxTokenLife time.Duration
	// ExtendTokens has tokens that pods are given for the API server live for a year, whatever was asked for, for clients that do not read a token
	// again; with MaxTokenLife, no longer than that.
	ExtendTokens bool
	// SecretUsed, if not nil, hears that a token which is kept in a Secret was used on a day (2006-01-02) that its Secret does not tell of yet.
	SecretUsed func(ctx context.Context, namespace, name, day string)
	// Lookup finds service accounts, pods, secrets and nodes.
	Lookup Lookup
	// Anonymous lets requests without any credential through as system:anonymous. AnonymousPaths, when not empty, only on these paths.
	Anonymous      bool
	AnonymousPaths []string
	// AnonymousOn, when not nil, stands for both: it says for each path whether they are let through now.
	AnonymousOn func(path string) bool
	// Others know tokens that this package does not. They are asked last, in order.
	Others []authenticator.Token
	Clock  clock.PassiveClock
	Log    *slog.Logger
}

// Authenticator is an authenticator.Request and an authenticator.Token.
type Authenticator struct {
	requests  []authenticator.Request
	tokens    []authenticator.Token
	anonymous func(*http.Request) bool
	audiences authenticator.Audiences

	// Tokens issues service-account tokens; nil without a TokenKey.
	Tokens *TokenIssuer
}

var (
	_ authenticator.Request = (*Authenticator)(nil)
	_ authenticator.Token   = (*Authenticator)(nil)
)

// New checks the config and makes the authenticator.
func New(cfg Config) (*Authenticator, error) {
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	a := &Authenticator{audiences: cfg.Audiences, anonymous: anonymousOn(cfg)}
	if err := a.addTokens(cfg); err != nil {
		return nil, err
	}
	if cfg.FrontProxy != nil {
		proxy, err := newFrontProxy(*cfg.FrontProxy, cfg.Clock)
		if err != nil {
			return nil, err
		}
		a.requests = append(a.requests, proxy)
	}
	if cfg.ClientCA != nil {
		a.requests = append(a.requests, newCertificates(cfg.ClientCA, cfg.Clock))
	}
	tokens := authenticator.TokenFunc(a.AuthenticateToken)
	a.requests = append(a.requests, bearertoken.New(tokens), websocket.NewProtocolAuthenticator(tokens))
	return a, nil
}

func (a *Authenticator) addTokens(cfg Config) error {
	if len(cfg.StaticTokens) > 0 {
		static, err := newStaticTokens(cfg.StaticTokens)
		if err != nil {
			return err
		}
		a.tokens = append(a.tokens, static)
	}
	if cfg.TokenKey != nil {
		if _, err := keyID(cfg.TokenKey.Public()); err != nil {
			return err
		}
		if cfg.Issuer == "" || cfg.Lookup == nil || len(cfg.Audiences) == 0 {
			return errors.New("authn: service-account tokens need Issuer, Audiences and Lookup")
		}
		a.Tokens = newTokenIssuer(cfg)
		a.tokens = append(a.tokens, newTokenVerifier(cfg))
	}
	if cfg.Lookup != nil {
		a.tokens = append(a.tokens, &bootstrapTokens{lookup: cfg.Lookup, clock: cfg.Clock, log: cfg.Log})
	}
	for _, other := range cfg.Others {
		a.tokens = append(a.tokens, forAudiences{other, cfg.Audiences})
	}
	return nil
}

// AuthenticateRequest tells who makes the request. The error says why a credential was refused; no credential at all is anonymous, or
// not authenticated.
func (a *Authenticator) AuthenticateRequest(req *http.Request) (*authenticator.Response, bool, error) {
	var errs []error
	for _, r := range a.requests {
		response, ok, err := r.AuthenticateRequest(req)
		if err != nil {
			errs = append(errs, err)
		}
		if ok {
			return withGroup(response), true, nil
		}
	}
	if len(errs) > 0 {
		return nil, false, utilerrors.NewAggregate(errs)
	}
	if req.Header.Get("Authorization") == "" && a.anonymous(req) {
		return &authenticator.Response{
			Audiences: a.audiences,
			User:      &user.DefaultInfo{Name: user.Anonymous, Groups: []string{user.AllUnauthenticated}},
		}, true, nil
	}
	return nil, false, nil
}

// forAudiences asks for the server's own audiences when the caller wants none in particular.
type forAudiences struct {
	authenticator.Token
	own authenticator.Audiences
}

func (f forAudiences) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	if _, ok := authenticator.AudiencesFrom(ctx); !ok && len(f.own) > 0 {
		ctx = authenticator.WithAudiences(ctx, f.own)
	}
	return f.Token.AuthenticateToken(ctx, token)
}

// maxToken bounds a bearer token, in bytes.
const maxToken = 16 << 10

// AuthenticateToken tells whose a bearer token is. The audiences wanted are taken from ctx (authenticator.WithAudiences); without, the
// server's own.
func (a *Authenticator) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	if len(token) > maxToken {
		return nil, false, fmt.Errorf("bearer token has %d bytes, more than the %d allowed", len(token), maxToken)
	}
	var errs []error
	for _, t := range a.tokens {
		response, ok, err := t.AuthenticateToken(ctx, token)
		if ok {
			return withGroup(response), true, nil
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	return nil, false, utilerrors.NewAggregate(errs)
}

// withGroup adds system:authenticated to a known user's groups.
func withGroup(r *authenticator.Response) *authenticator.Response {
	groups := r.User.GetGroups()
	if r.User.GetName() == user.Anonymous || slices.Contains(groups, user.AllAuthenticated) || slices.Contains(groups, user.AllUnauthenticated) {
		return r
	}
	out := *r
	out.User = &user.DefaultInfo{
		Name:   r.User.GetName(),
		UID:    r.User.GetUID(),
		Groups: append(slices.Clone(groups), user.AllAuthenticated),
		Extra:  r.User.GetExtra(),
	}
	return &out
}

func anonymousOn(cfg Config) func(*http.Request) bool {
	if cfg.AnonymousOn != nil {
		return func(req *http.Request) bool { return cfg.AnonymousOn(req.URL.Path) }
	}
	return func(req *http.Request) bool {
		return cfg.Anonymous && (len(cfg.AnonymousPaths) == 0 || slices.Contains(cfg.AnonymousPaths, req.URL.Path))
	}
}
