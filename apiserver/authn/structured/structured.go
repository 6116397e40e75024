// Package structured authenticates the tokens of OpenID Connect providers, as Kubernetes' AuthenticationConfiguration describes them: a file of the
// format apiserver.config.k8s.io, or the older --oidc flags, which mean the same with one provider.
//
// Guarantees:
//   - A changed file is in force within seconds, once every provider that it names has answered. One that is wrong, or names a provider that does not
//     answer, changes nothing and is logged.
//   - A token whose issuer is none of the providers' is nobody's here: others may know it.
//   - A good token is remembered for ten seconds, as in Kubernetes; a bad one never.
//
// Keys, algorithms, claims and CEL are the work of Kubernetes' own authenticator (k8s.io/apiserver/plugin/pkg/authenticator/token/oidc), which
// fetches a provider's keys when a token has an unknown one. Everything is safe for concurrent use.
package structured

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	authenticationcel "k8s.io/apiserver/pkg/authentication/cel"
	"k8s.io/apiserver/pkg/authentication/token/cache"
	"k8s.io/apiserver/pkg/authentication/token/union"
	"k8s.io/apiserver/plugin/pkg/authenticator/token/oidc"
	"k8s.io/utils/clock"

	"github.com/yare-project/yare/internal/reread"
)

// Config says which providers are believed. File and Flags exclude each other.
type Config struct {
	// File is the path of an AuthenticationConfiguration.
	File string
	// Flags are kube-apiserver's --oidc flags.
	Flags Flags
	// Audiences are the API server's own.
	Audiences []string
	// Reserved are issuers that no provider may have: those of the cluster's own service-account tokens.
	Reserved []string
	// AnonymousElsewhere says that --anonymous-auth was given: then the field "anonymous" is refused.
	AnonymousElsewhere bool
	Clock              clock.WithTicker
	Log                *slog.Logger
	// Every is the time between two looks at the file, and Patience how long a changed file's providers are waited for. Zero means that of package reread and 1 min.
	Every, Patience time.Duration
}

// Authenticator is an authenticator.Token.
type Authenticator struct {
	cfg      Config
	compiler authenticationcel.Compiler
	content  []byte // of the file, as first read
	life     context.Context
	end      context.CancelFunc
	now      atomic.Pointer[generation]
}

// generation is what one state of the configuration means.
type generation struct {
	token     authenticator.Token
	healthy   func() error
	anonymous *apiserver.AnonymousAuthConfig
	end       context.CancelFunc
}

// success is how long a good token is remembered; Kubernetes' --authentication-token cache has the same.
const success = 10 * time.Second

// New reads and checks the configuration and begins to look for the providers. Close ends that.
func New(c Config) (*Authenticator, error) {
	if c.Patience == 0 {
		c.Patience = time.Minute
	}
	a := &Authenticator{cfg: c, compiler: authenticationcel.NewDefaultCompiler()}
	config, err := a.configured()
	if err != nil {
		return nil, err
	}
	a.life, a.end = context.WithCancel(context.Background())
	g, err := a.build(config)
	if err != nil {
		a.end()
		return nil, a.explain(err)
	}
	a.now.Store(g)
	return a, nil
}

func (a *Authenticator) configured() (*apiserver.AuthenticationConfiguration, error) {
	if a.cfg.File == "" {
		return a.cfg.Flags.configuration()
	}
	if a.cfg.Flags.set() {
		return nil, errors.New("--authentication-config and the --oidc flags exclude each other: give one of them")
	}
	var err error
	if a.content, err = reread.Read(a.cfg.File); err != nil {
		return nil, a.explain(err)
	}
	config, err := decode(a.content)
	return config, a.explain(err)
}

func (a *Authenticator) explain(err error) error {
	switch {
	case err == nil:
		return nil
	case a.cfg.File == "":
		return fmt.Errorf("the --oidc flags: %w", err)
	}
	return fmt.Errorf("--authentication-config %s: %w", a.cfg.File, err)
}

// build checks a configuration and makes its authenticators, which look for their providers by themselves from then on.
func (a *Authenticator) build(config *apiserver.AuthenticationConfiguration) (*generation, error) {
	if err := validate(a.compiler, config, a.cfg.Reserved); err != nil {
		return nil, err
	}
	if config.Anonymous != nil && a.cfg.AnonymousElsewhere {
		return nil, errors.New("--anonymous-auth and the field anonymous exclude each other: give one of them")
	}
	ctx, end := context.WithCancel(a.life)
	g := &generation{anonymous: config.Anonymous, end: end}
	algorithms := oidc.AllValidSigningAlgorithms()
	if a.cfg.File == "" {
		algorithms = a.cfg.Flags.SigningAlgs
	}
	var tokens []authenticator.Token
	var checks []func() error
	for _, provider := range config.JWT {
		options := oidc.Options{JWTAuthenticator: provider, SupportedSigningAlgs: algorithms, DisallowedIssuers: a.cfg.Reserved, Compiler: a.compiler}
		if ca := provider.Issuer.CertificateAuthority; ca != "" {
			options.CAContentProvider = bundle(ca)
		}
		one, err := oidc.New(ctx, options)
		if err != nil {
			end()
			return nil, err
		}
		tokens, checks = append(tokens, one), append(checks, one.HealthCheck)
	}
	g.healthy = func() error {
		var errs []error
		for _, check := range checks {
			errs = append(errs, check())
		}
		return errors.Join(errs...)
	}
	if len(tokens) > 0 {
		all := authenticator.WrapAudienceAgnosticToken(a.cfg.Audiences, named{union.NewFailOnError(tokens...)})
		g.token = cache.New(all, false, success, 0)
	}
	return g, nil
}

// named refuses a token in whose claims there is no name.
type named struct{ authenticator.Token }

func (n named) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	who, ok, err := n.Token.AuthenticateToken(ctx, token)
	if ok && err == nil && who.User.GetName() == "" {
		return nil, false, errors.New("oidc: the token's claims name no user")
	}
	return who, ok, err
}

// bundle is a CA as the library takes it.
type bundle string

func (b bundle) CurrentCABundleContent() []byte { return []byte(b) }

// AuthenticateToken tells whose token it is. It has no opinion on tokens of issuers that it does not know.
func (a *Authenticator) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	if g := a.now.Load(); g.token != nil {
		return g.token.AuthenticateToken(ctx, token)
	}
	return nil, false, nil
}

// Anonymous is what the file says about requests without credentials; nil if it says nothing.
func (a *Authenticator) Anonymous() *apiserver.AnonymousAuthConfig { return a.now.Load().anonymous }

// Healthy returns why a provider cannot be asked, nil if all can.
func (a *Authenticator) Healthy() error { return a.now.Load().healthy() }

// Run takes over changes of the file until ctx ends.
func (a *Authenticator) Run(ctx context.Context) error {
	if a.cfg.File == "" {
		<-ctx.Done()
		return nil
	}
	return reread.Run(ctx, reread.Config{Path: a.cfg.File, Have: a.content, Every: a.cfg.Every, Changed: a.change, Clock: a.cfg.Clock, Log: a.cfg.Log})
}

// Close ends what fetches providers' keys. Tokens are refused afterwards.
func (a *Authenticator) Close() { a.end() }

// change replaces the generation in force, once the new one works.
func (a *Authenticator) change(ctx context.Context, content []byte) error {
	config, err := decode(content)
	if err != nil {
		return err
	}
	g, err := a.build(config)
	if err != nil {
		return err
	}
	if err := a.await(ctx, g); err != nil {
		g.end()
		return err
	}
	old := a.now.Swap(g)
	// Requests that began with the old generation may still be at work with it: it goes a while later.
	timer := a.cfg.Clock.NewTimer(a.cfg.Patience)
	go func() {
		defer timer.Stop()
		select {
		case <-timer.C():
		case <-a.life.Done():
		}
		old.end()
	}()
	return nil
}

// await gives a new generation's providers time to answer.
func (a *Authenticator) await(ctx context.Context, g *generation) error {
	deadline := a.cfg.Clock.Now().Add(a.cfg.Patience)
	ticker := a.cfg.Clock.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := g.healthy()
		if err == nil || a.cfg.Clock.Now().After(deadline) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C():
		}
	}
}
