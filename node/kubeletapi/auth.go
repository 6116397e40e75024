package kubeletapi

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/request/union"
	x509request "k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/authentication/token/cache"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	authorizationcel "k8s.io/apiserver/pkg/authorization/cel"
	tokenwebhook "k8s.io/apiserver/plugin/pkg/authenticator/token/webhook"
	accesswebhook "k8s.io/apiserver/plugin/pkg/authorizer/webhook"
	"k8s.io/apiserver/plugin/pkg/authorizer/webhook/metrics"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
)

// guard authenticates and authorizes.
func (s *Server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/healthz" && r.Method == http.MethodGet {
			next.ServeHTTP(w, r)
			return
		}
		resp, ok, err := s.cfg.Authenticator.AuthenticateRequest(r)
		if err != nil || !ok {
			s.cfg.Log.Warn("node API: request refused: not authenticated", "path", r.URL.Path, "from", r.RemoteAddr, "err", err)
			http.Error(w, "Unauthorized", http.StatusUnauthorized)
			return
		}
		if allowed, why := s.authorize(r, resp.User); !allowed {
			s.cfg.Log.Warn("node API: request refused: not allowed", "user", resp.User.GetName(), "method", r.Method, "path", r.URL.Path, "err", why)
			http.Error(w, why.Error(), http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// authorize asks for each subresource that would do; one allowed is enough.
func (s *Server) authorize(r *http.Request, u user.Info) (bool, error) {
	verb, subresources := attributes(r.Method, r.URL.Path)
	for _, sub := range subresources {
		decision, _, err := s.cfg.Authorizer.Authorize(r.Context(), authorizer.AttributesRecord{
			User: u, Verb: verb, APIVersion: "v1", Resource: "nodes", Subresource: sub, Name: s.cfg.NodeName,
			ResourceRequest: true, Path: r.URL.Path,
		})
		if err != nil {
			return false, fmt.Errorf("Authorization error (user=%s, verb=%s, resource=nodes, subresource=%s): %w", u.GetName(), verb, sub, err)
		}
		if decision == authorizer.DecisionAllow {
			return true, nil
		}
	}
	return false, fmt.Errorf("Forbidden (user=%s, verb=%s, resource=nodes, subresource(s)=[%s])", u.GetName(), verb, strings.Join(subresources, " "))
}

// attributes maps a request to what it is called in RBAC rules, finest first. The
// table is the Kubernetes documentation's "Kubelet authorization", with the
// fine-grained subresources of KEP-2862.
func attributes(method, path string) (verb string, subresources []string) {
	verb = map[string]string{
		http.MethodPost: "create", http.MethodGet: "get", http.MethodPut: "update", http.MethodPatch: "patch", http.MethodDelete: "delete",
	}[method]
	for _, m := range []struct {
		prefix string
		subs   []string
	}{
		{"/stats", []string{"stats"}},
		{"/metrics", []string{"metrics"}},
		{"/logs", []string{"log"}},
		{"/checkpoint", []string{"checkpoint"}},
		{"/pods", []string{"pods", "proxy"}},
		{"/runningpods", []string{"pods", "proxy"}},
		{"/healthz", []string{"healthz", "proxy"}},
		{"/configz", []string{"configz", "proxy"}},
	} {
		if path == m.prefix || strings.HasPrefix(path, m.prefix+"/") {
			return verb, m.subs
		}
	}
	return verb, []string{"proxy"}
}

// DelegatedConfig lets the API server decide who a caller is and what it may do.
type DelegatedConfig struct {
	// ClientCAs are those whose certificates name users (CN) and groups (O). It is
	// asked for each connection, so that a renewed CA takes effect. Nil turns client certificates off.
	ClientCAs func() *x509.CertPool
	Tokens    authenticationclient.AuthenticationV1Interface
	Access    authorizationclient.AuthorizationV1Interface
}

// Answers are remembered for as long as the kubelet remembers them by default.
const (
	tokenTTL   = 2 * time.Minute
	allowedTTL = 5 * time.Minute
	deniedTTL  = 30 * time.Second
	askTimeout = 10 * time.Second
)

// Delegated returns an authenticator for client certificates and bearer tokens
// (TokenReview), and an authorizer (SubjectAccessReview).
func Delegated(c DelegatedConfig) (authenticator.Request, authorizer.Authorizer, error) {
	if c.Tokens == nil || c.Access == nil {
		return nil, nil, errors.New("node API: delegated authorization needs clients for TokenReview and SubjectAccessReview")
	}
	retry := wait.Backoff{Duration: 200 * time.Millisecond, Factor: 1.5, Jitter: 0.2, Steps: 5}
	review, err := tokenwebhook.NewFromInterface(c.Tokens, nil, retry, askTimeout, tokenwebhook.AuthenticatorMetrics{
		RecordRequestTotal:   func(context.Context, string) {},
		RecordRequestLatency: func(context.Context, string, float64) {},
	})
	if err != nil {
		return nil, nil, fmt.Errorf("node API: %w", err)
	}
	ways := []authenticator.Request{bearertoken.New(cache.New(review, false, tokenTTL, tokenTTL))}
	if c.ClientCAs != nil {
		ways = append([]authenticator.Request{Certificates(c.ClientCAs)}, ways...)
	}
	access, err := accesswebhook.NewFromInterface(c.Access, allowedTTL, deniedTTL, retry, authorizer.DecisionNoOpinion,
		metrics.NoopAuthorizerMetrics{}, authorizationcel.NewDefaultCompiler())
	if err != nil {
		return nil, nil, fmt.Errorf("node API: %w", err)
	}
	return union.New(ways...), access, nil
}

// Certificates authenticates by client certificate alone: the subject's common
// name is the user, its organizations are the groups.
func Certificates(cas func() *x509.CertPool) authenticator.Request {
	return x509request.NewDynamic(func() (x509.VerifyOptions, bool) {
		pool := cas()
		return x509.VerifyOptions{Roots: pool, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, pool != nil
	}, x509request.CommonNameUserConversion)
}
