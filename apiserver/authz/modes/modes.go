// Package modes arranges the authorizers that an operator asks for, in their order: the built-in ones and web services that are asked by
// SubjectAccessReview. It takes kube-apiserver's --authorization-mode and its companions, or a file of Kubernetes' AuthorizationConfiguration.
//
// Guarantees:
//   - Members of system:masters may do anything, whatever is configured; then the first authorizer that allows or denies wins.
//   - A changed file is in force within seconds. One that is wrong, or leaves out a built-in authorizer that the first one had, changes nothing and is
//     logged.
//
// ABAC is not to be had. Everything is safe for concurrent use.
package modes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	authorizationcel "k8s.io/apiserver/pkg/authorization/cel"
	"k8s.io/utils/clock"

	"github.com/yare-project/yare/apiserver/authz"
	"github.com/yare-project/yare/internal/reread"
)

// Names of the authorizers, as Kubernetes has them.
const (
	Node        = "Node"
	RBAC        = "RBAC"
	Webhook     = "Webhook"
	AlwaysAllow = "AlwaysAllow"
	AlwaysDeny  = "AlwaysDeny"
	abac        = "ABAC"
)

// Options are kube-apiserver's --authorization flags.
type Options struct {
	// Modes are the authorizers in order; empty means Node,RBAC.
	Modes []string
	// WebhookConfigFile is a kubeconfig of the service for the mode Webhook.
	WebhookConfigFile string
	// WebhookVersion of the SubjectAccessReview that is sent: v1 or v1beta1.
	WebhookVersion string
	// WebhookAuthorizedTTL and WebhookUnauthorizedTTL are how long its answers are remembered.
	WebhookAuthorizedTTL, WebhookUnauthorizedTTL time.Duration
	// ConfigFile is the path of an AuthorizationConfiguration; it stands instead of all others.
	ConfigFile string
}

// DefaultOptions has the values of flags that are not given.
func DefaultOptions() Options {
	return Options{WebhookVersion: "v1beta1", WebhookAuthorizedTTL: 5 * time.Minute, WebhookUnauthorizedTTL: 30 * time.Second}
}

// Wanted tells whether anything but Node,RBAC is asked for.
func (o *Options) Wanted() bool {
	return o.ConfigFile != "" || len(o.Modes) > 0 || o.WebhookConfigFile != ""
}

// Config is what the authorizers are made of.
type Config struct {
	Options
	// BuiltIn are the authorizers Node and RBAC. Each is an authorizer.RuleResolver too.
	BuiltIn map[string]authorizer.Authorizer
	// Backoff is between two calls for one question; zero means 500 ms, growing, five calls.
	Backoff wait.Backoff
	Clock   clock.WithTicker
	Log     *slog.Logger
	// Every is the time between two looks at the file; zero means that of package reread.
	Every time.Duration
}

// Authorizer decides by the configuration that is in force.
type Authorizer struct {
	cfg      Config
	compiler authorizationcel.Compiler
	content  []byte   // of the file, as first read
	required []string // built-in authorizers that a changed file must still have
	now      atomic.Pointer[authz.Union]
}

var (
	_ authorizer.Authorizer   = (*Authorizer)(nil)
	_ authorizer.RuleResolver = (*Authorizer)(nil)
)

// New reads and checks the configuration.
func New(c Config) (*Authorizer, error) {
	a := &Authorizer{cfg: c, compiler: authorizationcel.NewDefaultCompiler()}
	config, err := a.configured()
	if err != nil {
		return nil, err
	}
	chain, err := a.build(config)
	if err != nil {
		return nil, a.explain(err)
	}
	for _, one := range config.Authorizers {
		if one.Type != apiserver.TypeWebhook {
			a.required = append(a.required, string(one.Type))
		}
	}
	a.now.Store(chain)
	return a, nil
}

func (a *Authorizer) configured() (*apiserver.AuthorizationConfiguration, error) {
	if a.cfg.ConfigFile == "" {
		return a.cfg.configuration()
	}
	if len(a.cfg.Modes) > 0 || a.cfg.WebhookConfigFile != "" {
		return nil, errors.New("--authorization-config says everything: leave out --authorization-mode and the --authorization-webhook flags")
	}
	var err error
	if a.content, err = reread.Read(a.cfg.ConfigFile); err != nil {
		return nil, a.explain(err)
	}
	config, err := a.load(a.content)
	return config, a.explain(err)
}

func (a *Authorizer) explain(err error) error {
	switch {
	case err == nil:
		return nil
	case a.cfg.ConfigFile == "":
		return fmt.Errorf("--authorization-mode: %w", err)
	}
	return fmt.Errorf("--authorization-config %s: %w", a.cfg.ConfigFile, err)
}

// Authorize decides.
func (a *Authorizer) Authorize(ctx context.Context, attributes authorizer.Attributes) (authorizer.Decision, string, error) {
	return a.now.Load().Authorize(ctx, attributes)
}

// RulesFor lists what a user may do, as far as the authorizers can.
func (a *Authorizer) RulesFor(ctx context.Context, who user.Info, namespace string) ([]authorizer.ResourceRuleInfo, []authorizer.NonResourceRuleInfo, bool, error) {
	return a.now.Load().RulesFor(ctx, who, namespace)
}

// Run takes over changes of the file until ctx ends.
func (a *Authorizer) Run(ctx context.Context) error {
	if a.cfg.ConfigFile == "" {
		<-ctx.Done()
		return nil
	}
	return reread.Run(ctx, reread.Config{Path: a.cfg.ConfigFile, Have: a.content, Every: a.cfg.Every, Clock: a.cfg.Clock, Log: a.cfg.Log,
		Changed: func(_ context.Context, content []byte) error {
			config, err := a.load(content)
			if err != nil {
				return err
			}
			if err := a.keepsRequired(config); err != nil {
				return err
			}
			chain, err := a.build(config)
			if err == nil {
				a.now.Store(chain)
			}
			return err
		}})
}

func (a *Authorizer) keepsRequired(config *apiserver.AuthorizationConfiguration) error {
	var missing []string
	for _, name := range a.required {
		if !slices.ContainsFunc(config.Authorizers, func(c apiserver.AuthorizerConfiguration) bool { return string(c.Type) == name }) {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("it leaves out %s: only webhooks may come and go without a restart", strings.Join(missing, ", "))
	}
	return nil
}
