package kubeletapi

import (
	"crypto/x509"
	"fmt"
	"net/http"
	"strings"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	x509request "k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
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

// Certificates authenticates by client certificate alone: the subject's common
// name is the user, its organizations are the groups.
func Certificates(cas func() *x509.CertPool) authenticator.Request {
	return x509request.NewDynamic(func() (x509.VerifyOptions, bool) {
		pool := cas()
		return x509.VerifyOptions{Roots: pool, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, pool != nil
	}, x509request.CommonNameUserConversion)
}
