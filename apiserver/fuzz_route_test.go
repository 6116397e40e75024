package apiserver_test

import (
	"context"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	requestinfo "k8s.io/apiserver/pkg/endpoints/request"
)

// asked is what permission is asked for.
type asked struct{ Verb, Group, Version, Resource, Subresource, Namespace, Name, Path string }

// FuzzRoute holds what a request is authorized as against Kubernetes' own reading of the same URL: a path that the two read differently would be allowed
// as one thing and carried out as another.
func FuzzRoute(f *testing.F) {
	var last atomic.Pointer[asked]
	h := start(f, func(c *apiserverConfig) {
		c.Authorizer = authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
			last.Store(&asked{a.GetVerb(), a.GetAPIGroup(), a.GetAPIVersion(), a.GetResource(), a.GetSubresource(), a.GetNamespace(), a.GetName(), a.GetPath()})
			return authorizer.DecisionDeny, "", nil
		})
	})
	handler := h.server.Handler()
	theirs := &requestinfo.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}
	for _, s := range [][3]string{
		{"GET", "/api/v1/namespaces/ns/pods/p", ""}, {"GET", "/api/v1/namespaces/ns/pods/p/log/x", ""}, {"PUT", "/api/v1/namespaces/ns/status", ""}, {"GET", "/api/v1/namespaces/ns", ""},
		{"DELETE", "/api/v1/namespaces", ""}, {"PUT", "/api/v1/namespaces/ns/finalize", ""}, {"GET", "/api/v1/watch/namespaces/ns/pods/p", ""}, {"GET", "/api/v1/watch/pods", ""}, {"GET", "/api/v1/watch", ""},
		{"GET", "/api/v1/pods", "watch=true"}, {"GET", "/api/v1/pods", "watch=0&fieldSelector=metadata.name%3Dx"}, {"DELETE", "/api/v1/namespaces/ns/pods", "fieldSelector=metadata.name%3Dx"},
		{"GET", "/api/v1/pods", "fieldSelector=metadata.name%3Da%2Fb"}, {"GET", "/api/v1/pods", "fieldSelector=metadata.name%3D..&watch"}, {"GET", "/apis/apps/v1/deployments/", ""}, {"GET", "//api/v1/pods", ""}, {"GET", "/api//v1/pods", ""},
		{"GET", "/api/v1/namespaces//pods", ""}, {"GET", "/api/v1/namespaces/../pods", ""}, {"GET", "/apis/apps/v1/namespaces/ns/deployments/d/scale", ""}, {"POST", "/api/v1/namespaces/ns/pods/p/binding", ""},
		{"PATCH", "/api/v1/nodes/n/proxy/a/../b", ""}, {"HEAD", "/api/v1/pods", ""}, {"OPTIONS", "/api/v1/pods", ""}, {"LIST", "/api/v1/pods", ""}, {"WATCH", "/api/v1/pods/x", ""}, {"GET", "/api", ""}, {"GET", "/apis/apps/v1", ""}, {"GET", "/healthz", ""}, {"GET", "/api/v1/namespaces/ns/pods/p/", ""},
		{"GET", "/api/v1/namespaces/ns/configmaps/c", "watch=true&resourceVersion=x"}, {"GET", "/api/v1/pods", "watch=true&limit=x"}, {"GET", "/api/v1/namespaces/ns/services/https:s:1/proxy", ""},
	} {
		f.Add(s[0], s[1], s[2])
	}
	f.Fuzz(func(t *testing.T, method, path, query string) {
		if !strings.HasPrefix(path, "/") || method == "CONNECT" || method == "" {
			return
		}
		req := httptest.NewRequest("GET", "/", nil)
		req.Method, req.URL = method, &url.URL{Path: path, RawQuery: query}
		info, err := theirs.NewRequestInfo(req)
		if err != nil || info.Verb == "proxy" || info.Verb == "watch" && method != "GET" { // the old ways to a proxy and a watch, where nothing is served
			return
		}
		want := asked{Verb: info.Verb, Path: info.Path}
		if info.IsResourceRequest {
			want = asked{info.Verb, info.APIGroup, info.APIVersion, info.Resource, info.Subresource, info.Namespace, info.Name, info.Path}
		}
		last.Store(nil)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, req)
		got := last.Load()
		if got == nil {
			if w.Code < 300 {
				t.Errorf("%q %q %q: answered with %d, and nobody was asked", method, path, query, w.Code)
			}
			return
		}
		if d := cmp.Diff(want, *got); d != "" {
			t.Errorf("%q %q %q: %s", method, path, query, d)
		}
	})
}
