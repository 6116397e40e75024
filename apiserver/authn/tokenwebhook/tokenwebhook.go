// Package tokenwebhook asks a web service whose a token is, by TokenReview (Kubernetes documentation, "Webhook Token Authentication").
//
// Answers are remembered for the configured time, good ones and bad ones; failures to get one are not. A service that does not answer is asked
// again, five times at most, while the request waits. Everything is safe for concurrent use.
package tokenwebhook

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/token/cache"
	"k8s.io/apiserver/pkg/util/webhook"
	plugin "k8s.io/apiserver/plugin/pkg/authenticator/token/webhook"
)

// Config is kube-apiserver's --authentication-token-webhook flags.
type Config struct {
	// ConfigFile is a kubeconfig that says where the service is and how it is called. Empty: there is no service.
	ConfigFile string
	// CacheTTL is how long an answer is remembered; 0 is not at all.
	CacheTTL time.Duration
	// Version of the TokenReview that is sent: v1 or v1beta1.
	Version string
	// Audiences are the API server's own, which a service that says nothing about audiences vouches for.
	Audiences []string
	// Backoff is between two calls for one token; zero means 500 ms, growing, five calls.
	Backoff wait.Backoff
}

// DefaultConfig has the values of flags that are not given.
func DefaultConfig() Config { return Config{CacheTTL: 2 * time.Minute, Version: "v1beta1"} }

// New reads the kubeconfig. The service is not called yet.
func New(c Config) (authenticator.Token, error) {
	if !slices.Contains([]string{"v1", "v1beta1"}, c.Version) {
		return nil, fmt.Errorf("--authentication-token-webhook-version %q: use v1 or v1beta1", c.Version)
	}
	if c.CacheTTL < 0 {
		return nil, fmt.Errorf("--authentication-token-webhook-cache-ttl %v is negative", c.CacheTTL)
	}
	target, err := webhook.LoadKubeconfig(c.ConfigFile, nil)
	if err != nil {
		return nil, fmt.Errorf("--authentication-token-webhook-config-file: %w", err)
	}
	if c.Backoff == (wait.Backoff{}) {
		c.Backoff = *plugin.DefaultRetryBackoff()
	}
	service, err := plugin.New(target, c.Version, c.Audiences, c.Backoff)
	if err != nil {
		return nil, fmt.Errorf("--authentication-token-webhook-config-file %s: %w", c.ConfigFile, err)
	}
	return cache.New(service, false, c.CacheTTL, c.CacheTTL), nil
}
