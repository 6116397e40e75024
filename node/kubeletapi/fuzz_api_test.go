package kubeletapi_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/yare-project/yare/node/cri/fake"
	"github.com/yare-project/yare/node/kubeletapi"
)

// FuzzRequest sends a node what its network lets anybody send: no request but that for its health is answered without permission, and none is a fault.
func FuzzRequest(f *testing.F) {
	v := &view{}
	v.put(pod("p", corev1.ContainerStatus{Name: "c"}))
	allowed := false
	rt := fake.New(fake.Config{})
	s, err := kubeletapi.New(kubeletapi.Config{NodeName: "n1", View: v, Runtime: rt, Images: rt, DataDir: f.TempDir(), Log: slog.New(slog.DiscardHandler),
		Authenticator: authenticator.RequestFunc(func(r *http.Request) (*authenticator.Response, bool, error) {
			return &authenticator.Response{User: &user.DefaultInfo{Name: "x"}}, r.Header.Get("X-Nobody") == "", nil
		}),
		Authorizer: authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
			if allowed && a.GetResource() == "nodes" && a.GetName() == "n1" {
				return authorizer.DecisionAllow, "", nil
			}
			return authorizer.DecisionNoOpinion, "", nil
		})})
	if err != nil {
		f.Fatal(err)
	}
	for _, r := range [][3]string{{"GET", "/pods", ""}, {"GET", "/healthz", ""}, {"GET", "/containerLogs/default/p/c", "tailLines=-1&previous=x"}, {"GET", "/containerLogs/default/p/c", "sinceTime=0000&stream=All"}, {"POST", "/run/default/p/c", "cmd=a"},
		{"GET", "/containerLogs/../../x", ""}, {"GET", "/logs/../../etc/passwd", ""}, {"GET", "/exec/default/p/c", "command=a&output=1"}, {"POST", "/portForward/default/p", "port=x"}, {"GET", "/stats/summary", "only_cpu_and_memory=x"}, {"GET", "/configz", ""}, {"GET", "//pods", ""}, {"DELETE", "/pods", ""}, {"GET", "/metrics/", ""}, {"GET", "/runningpods/", ""}} {
		f.Add(r[0], r[1], r[2], true)
		f.Add(r[0], r[1], r[2], false)
	}
	f.Fuzz(func(t *testing.T, method, path, query string, may bool) {
		if !strings.HasPrefix(path, "/") || strings.Contains(query, "follow") { // would last
			return
		}
		req := httptest.NewRequest("GET", "/", nil)
		req.Method, req.URL = method, &url.URL{Path: path, RawQuery: query}
		allowed = may
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, req)
		if !may && w.Code < 300 && path != "/healthz" {
			t.Errorf("%q %q %q: %d without permission", method, path, query, w.Code)
		}
	})
}
