package modes

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/apis/apiserver/load"
	"k8s.io/apiserver/pkg/apis/apiserver/validation"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/cel"
	"k8s.io/apiserver/pkg/util/webhook"
	plugin "k8s.io/apiserver/plugin/pkg/authorizer/webhook"
	"k8s.io/apiserver/plugin/pkg/authorizer/webhook/metrics"

	"github.com/yare-project/yare/apiserver/authz"
)

var known = []string{Node, RBAC, Webhook, AlwaysAllow, AlwaysDeny}

var errABAC = errors.New("ABAC is not to be had: write its policy as roles and use RBAC, or ask a webhook")

// configuration is what the flags mean as a file.
func (o *Options) configuration() (*apiserver.AuthorizationConfiguration, error) {
	names := o.Modes
	if len(names) == 0 {
		names = []string{Node, RBAC}
	}
	out := &apiserver.AuthorizationConfiguration{}
	for i, name := range names {
		switch {
		case name == abac:
			return nil, errABAC
		case !slices.Contains(known, name):
			return nil, fmt.Errorf("--authorization-mode %q is none of %s", name, strings.Join(known, ", "))
		case slices.Contains(names[:i], name):
			return nil, fmt.Errorf("--authorization-mode has %s twice", name)
		case (name == AlwaysAllow || name == AlwaysDeny) && i < len(names)-1:
			return nil, fmt.Errorf("--authorization-mode: nobody after %s is ever asked", name)
		}
		one := apiserver.AuthorizerConfiguration{Type: apiserver.AuthorizerType(name), Name: strings.ToLower(name)}
		if name == Webhook {
			if err := o.webhook(&one); err != nil {
				return nil, err
			}
		}
		out.Authorizers = append(out.Authorizers, one)
	}
	if o.WebhookConfigFile != "" && !slices.Contains(names, Webhook) {
		return nil, errors.New("--authorization-webhook-config-file is for --authorization-mode Webhook: name it there")
	}
	return out, nil
}

// webhook has the meaning of the older flags: a service that does not answer has no opinion, and calls have half a minute.
func (o *Options) webhook(one *apiserver.AuthorizerConfiguration) error {
	if o.WebhookConfigFile == "" {
		return errors.New("--authorization-mode Webhook needs --authorization-webhook-config-file")
	}
	if !slices.Contains([]string{"v1", "v1beta1"}, o.WebhookVersion) {
		return fmt.Errorf("--authorization-webhook-version %q: use v1 or v1beta1", o.WebhookVersion)
	}
	one.Name = "default"
	one.Webhook = &apiserver.WebhookConfiguration{
		AuthorizedTTL: metav1.Duration{Duration: o.WebhookAuthorizedTTL}, CacheAuthorizedRequests: o.WebhookAuthorizedTTL > 0,
		UnauthorizedTTL: metav1.Duration{Duration: o.WebhookUnauthorizedTTL}, CacheUnauthorizedRequests: o.WebhookUnauthorizedTTL > 0,
		SubjectAccessReviewVersion: o.WebhookVersion, FailurePolicy: apiserver.FailurePolicyNoOpinion,
		ConnectionInfo: apiserver.WebhookConnectionInfo{Type: apiserver.AuthorizationWebhookConnectionInfoTypeKubeConfigFile, KubeConfigFile: &o.WebhookConfigFile},
	}
	return nil
}

// load reads and checks a file of any version that Kubernetes 1.36 knows.
func (a *Authorizer) load(content []byte) (*apiserver.AuthorizationConfiguration, error) {
	if len(content) == 0 {
		return nil, errors.New("the file is empty")
	}
	config, err := load.LoadFromData(content)
	if err != nil {
		return nil, err
	}
	for _, one := range config.Authorizers {
		if one.Type == abac {
			return nil, errABAC
		}
	}
	return config, validation.ValidateAuthorizationConfiguration(a.compiler, nil, config, sets.New(known...), sets.New(Webhook)).ToAggregate()
}

// build makes the chain of a checked configuration.
func (a *Authorizer) build(config *apiserver.AuthorizationConfiguration) (*authz.Union, error) {
	var chain []authorizer.Authorizer
	for i := range config.Authorizers {
		one := &config.Authorizers[i]
		member, err := a.member(one)
		if err != nil {
			return nil, fmt.Errorf("authorizer %q: %w", one.Name, err)
		}
		chain = append(chain, member)
	}
	return authz.New(chain...), nil
}

func (a *Authorizer) member(one *apiserver.AuthorizerConfiguration) (authorizer.Authorizer, error) {
	switch one.Type {
	case AlwaysAllow:
		return always{authorizer.DecisionAllow}, nil
	case AlwaysDeny:
		return always{authorizer.DecisionDeny}, nil
	case apiserver.TypeWebhook:
		return a.service(one)
	}
	built, ok := a.cfg.BuiltIn[string(one.Type)]
	if !ok {
		return nil, fmt.Errorf("there is no authorizer %s in this server", one.Type)
	}
	return built, nil
}

func (a *Authorizer) service(one *apiserver.AuthorizerConfiguration) (authorizer.Authorizer, error) {
	w := one.Webhook
	if w.ConnectionInfo.Type != apiserver.AuthorizationWebhookConnectionInfoTypeKubeConfigFile {
		return nil, fmt.Errorf("connectionInfo.type %s would have the API server ask itself: use %s", w.ConnectionInfo.Type, apiserver.AuthorizationWebhookConnectionInfoTypeKubeConfigFile)
	}
	target, err := webhook.LoadKubeconfig(*w.ConnectionInfo.KubeConfigFile, nil)
	if err != nil {
		return nil, err
	}
	if w.Timeout.Duration > 0 {
		target.Timeout = w.Timeout.Duration
	}
	onError := authorizer.DecisionNoOpinion
	if w.FailurePolicy == apiserver.FailurePolicyDeny {
		onError = authorizer.DecisionDeny
	}
	allowed, refused := w.AuthorizedTTL.Duration, w.UnauthorizedTTL.Duration
	if !w.CacheAuthorizedRequests {
		allowed = 0
	}
	if !w.CacheUnauthorizedRequests {
		refused = 0
	}
	backoff := a.cfg.Backoff
	if backoff == (wait.Backoff{}) {
		backoff = *plugin.DefaultRetryBackoff()
	}
	return plugin.New(target, w.SubjectAccessReviewVersion, allowed, refused, backoff, onError, w.MatchConditions, one.Name, measured{WebhookMetrics: metrics.NewWebhookMetrics()}, a.compiler)
}

// measured counts what webhooks answer, under Kubernetes' names.
type measured struct {
	metrics.NoopRequestMetrics
	metrics.WebhookMetrics
	cel.NoopMatcherMetrics
}
