package tokenwebhook_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/yare-project/yare/apiserver/authn/tokenwebhook"
)

const own = "https://yare.example"

// service answers TokenReviews: "good" is jane's, "elsewhere" jane's for another audience; "down" answers with an error.
type service struct {
	mu    sync.Mutex
	asked []authenticationv1.TokenReview
}

func (s *service) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	var review authenticationv1.TokenReview
	if err := json.NewDecoder(req.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	s.asked = append(s.asked, review)
	s.mu.Unlock()
	jane := authenticationv1.UserInfo{Username: "jane", UID: "1", Groups: []string{"g"}, Extra: map[string]authenticationv1.ExtraValue{"k": {"v"}}}
	switch review.Spec.Token {
	case "good":
		review.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: jane}
	case "elsewhere":
		review.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: jane, Audiences: []string{"elsewhere"}}
	case "down":
		http.Error(w, "broken", http.StatusInternalServerError)
		return
	default:
		review.Status.Error = "never heard of it"
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(review)
}

func (s *service) count() int { s.mu.Lock(); defer s.mu.Unlock(); return len(s.asked) }

func start(t *testing.T, change func(*tokenwebhook.Config)) (*service, authenticator.Token) {
	t.Helper()
	s := &service{}
	server := httptest.NewTLSServer(s)
	t.Cleanup(server.Close)
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: server.URL, CertificateAuthorityData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})}
	config.Contexts["c"] = &clientcmdapi.Context{Cluster: "c"}
	config.CurrentContext = "c"
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	c := tokenwebhook.DefaultConfig()
	c.ConfigFile, c.Version, c.Audiences = path, "v1", []string{own}
	c.Backoff = wait.Backoff{Duration: time.Millisecond, Factor: 1, Steps: 3}
	change(&c)
	token, err := tokenwebhook.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return s, token
}

func TestTheServiceSaysWhoItIs(t *testing.T) {
	for _, version := range []string{"v1", "v1beta1"} {
		s, tokens := start(t, func(c *tokenwebhook.Config) { c.Version = version })
		ctx := authenticator.WithAudiences(context.Background(), []string{own})
		for range 2 { // the second is remembered
			who, ok, err := tokens.AuthenticateToken(ctx, "good")
			if err != nil || !ok {
				t.Fatal(ok, err)
			}
			got := []any{who.User.GetName(), who.User.GetUID(), who.User.GetGroups(), who.User.GetExtra(), []string(who.Audiences)}
			if d := cmp.Diff([]any{"jane", "1", []string{"g"}, map[string][]string{"k": {"v"}}, []string{own}}, got); d != "" {
				t.Error(d)
			}
		}
		if s.count() != 1 || s.asked[0].APIVersion != "authentication.k8s.io/"+version {
			t.Errorf("asked %d times, as %s", s.count(), s.asked[0].APIVersion)
		}
	}
}

func TestTheServiceRefuses(t *testing.T) {
	s, tokens := start(t, func(*tokenwebhook.Config) {})
	ctx := authenticator.WithAudiences(context.Background(), []string{own})
	for token, want := range map[string]string{"bad": "never heard of it", "elsewhere": "", "down": "broken"} {
		who, ok, err := tokens.AuthenticateToken(ctx, token)
		if ok || want != "" && (err == nil || !strings.Contains(err.Error(), want) && token != "down") {
			t.Errorf("%s: %v %v %v", token, who, ok, err)
		}
		if token == "down" && err == nil {
			t.Error("a service that fails is no refusal: there must be an error")
		}
	}
	if _, ok, _ := tokens.AuthenticateToken(authenticator.WithAudiences(context.Background(), []string{"other"}), "good"); ok {
		t.Error("a token was good for an audience that is not the API server's")
	}
	before := s.count()
	if _, ok, _ := tokens.AuthenticateToken(ctx, "down"); ok || s.count() == before {
		t.Error("a failure was remembered")
	}
}

func TestWrongFlagsAreRefused(t *testing.T) {
	for want, c := range map[string]tokenwebhook.Config{
		"use v1 or v1beta1":                          {ConfigFile: "/none", Version: "v2"},
		"--authentication-token-webhook-config-file": {ConfigFile: "/none", Version: "v1"},
		"is negative":                                {ConfigFile: "/none", Version: "v1", CacheTTL: -1},
	} {
		if _, err := tokenwebhook.New(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := tokenwebhook.New(tokenwebhook.Config{ConfigFile: empty, Version: "v1"}); err == nil {
		t.Error("a kubeconfig that names no server was taken")
	}
}
