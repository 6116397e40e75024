package apiserver_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"golang.org/x/net/websocket"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/yare-project/yare/kind"
)

// TestProxyRootGetsItsSlash: a page's relative links would lead out of the proxied site.
func TestProxyRootGetsItsSlash(t *testing.T) {
	back := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Method+" "+r.URL.Path) }))
	defer back.Close()
	h := connecting(t, must(url.Parse(back.URL)), "", nil)
	const at = "/api/v1/namespaces/ns/pods/p/proxy"
	h.http.Client().CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	if a := h.do("GET", at+"?a=b", ""); a.code != http.StatusMovedPermanently || a.header.Get("Location") != at+"/?a=b" {
		t.Errorf("GET: %d to %q", a.code, a.header.Get("Location"))
	}
	if a := h.do("GET", at+"/", ""); a.code != http.StatusOK {
		t.Errorf("with its slash: %d %s", a.code, a.body)
	}
	if a := h.do("PUT", at, ""); a.code != http.StatusOK {
		t.Errorf("PUT is passed on as it is: %d %s", a.code, a.body)
	}
}

func TestLogsOverAWebSocket(t *testing.T) {
	back := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "" {
			http.Error(w, "a log is no upgrade", http.StatusBadRequest)
			return
		}
		fmt.Fprint(w, "one\ntwo\n")
	}))
	defer back.Close()
	h := connecting(t, must(url.Parse(back.URL)), "", nil)
	config := must(websocket.NewConfig(strings.Replace(h.http.URL, "http", "ws", 1)+"/api/v1/namespaces/ns/pods/p/log", "http://localhost/"))
	config.Protocol = []string{"binary.k8s.io"}
	ws := must(websocket.DialConfig(config))
	defer ws.Close()
	var got []byte
	for len(got) < len("one\ntwo\n") {
		var message []byte
		if err := websocket.Message.Receive(ws, &message); err != nil {
			t.Fatalf("after %q: %v", got, err)
		}
		got = append(got, message...)
	}
	if string(got) != "one\ntwo\n" {
		t.Errorf("got %q", got)
	}
}

// TestAReviewHasNoTable: nothing of it is stored, so there is no table of it.
func TestAReviewHasNoTable(t *testing.T) {
	group := &kind.Group{Name: "authorization.k8s.io", Versions: []string{"v1"}, AddToScheme: []func(*runtime.Scheme) error{authorizationv1.AddToScheme}}
	kind.Add(group, kind.Def[authorizationv1.SelfSubjectAccessReview]{
		Names: kind.Names{Plural: "selfsubjectaccessreviews"}, Scope: kind.Cluster,
		Answer: func(_ context.Context, _ kind.Env, r *authorizationv1.SelfSubjectAccessReview) (*authorizationv1.SelfSubjectAccessReview, error) {
			return r, nil
		},
	})
	h := start(t, func(c *apiserverConfig) { c.Groups = append(c.Groups, group) })
	const at, review = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", `{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview"}`
	if a := h.do("POST", at, review); a.code != http.StatusCreated {
		t.Errorf("plainly: %d %s", a.code, a.body)
	}
	a := h.do("POST", at, review, "Accept", "application/json;as=Table;g=meta.k8s.io;v=v1")
	if a.code != http.StatusNotAcceptable || !strings.Contains(a.body, `"reason":"NotAcceptable"`) {
		t.Errorf("as a table: %d %s", a.code, a.body)
	}
}
