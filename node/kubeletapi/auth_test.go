package kubeletapi_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/yare-project/yare/node/cri/fake"
	"github.com/yare-project/yare/node/kubeletapi"
)

// asked records what the authorizer was asked, and allows one subresource.
type asked struct {
	allow string
	got   []string
}

func (a *asked) Authorize(_ context.Context, at authorizer.Attributes) (authorizer.Decision, string, error) {
	a.got = append(a.got, strings.Join([]string{at.GetUser().GetName(), at.GetVerb(), at.GetResource(), at.GetName(), at.GetSubresource()}, " "))
	if at.GetSubresource() == a.allow {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

func TestWhatTheAuthorizerIsAsked(t *testing.T) {
	z := &asked{}
	rt := fakeRuntime(t)
	a := serve(t, kubeletapi.Config{Runtime: rt, Images: rt, Authorizer: z})
	admin := a.ca.client("admin")
	for _, c := range []struct {
		method, path, allow string
		status              int
		want                []string
	}{
		{"GET", "/pods", "proxy", 200, []string{"admin get nodes n1 pods", "admin get nodes n1 proxy"}},
		{"GET", "/pods", "pods", 200, []string{"admin get nodes n1 pods"}},
		{"GET", "/runningpods/", "pods", 200, []string{"admin get nodes n1 pods"}},
		{"GET", "/configz", "configz", 200, []string{"admin get nodes n1 configz"}},
		{"GET", "/healthz/ping", "healthz", 200, []string{"admin get nodes n1 healthz"}},
		{"GET", "/stats/summary", "stats", 200, []string{"admin get nodes n1 stats"}},
		{"GET", "/metrics/resource", "metrics", 200, []string{"admin get nodes n1 metrics"}},
		{"GET", "/logs/", "log", 404, []string{"admin get nodes n1 log"}},
		{"POST", "/exec/default/p/c?command=x&output=1", "proxy", 404, []string{"admin create nodes n1 proxy"}},
		{"GET", "/exec/default/p/c?command=x&output=1", "stats", 403, []string{"admin get nodes n1 proxy"}},
		{"GET", "/containerLogs/default/p/c", "log", 403, []string{"admin get nodes n1 proxy"}},
		{"GET", "/podsecret", "pods", 403, []string{"admin get nodes n1 proxy"}},
	} {
		*z = asked{allow: c.allow}
		status, body := a.doAs(admin, c.method, c.path)
		if status != c.status {
			t.Errorf("%s %s: status %d (%s), want %d", c.method, c.path, status, body, c.status)
		}
		if diff := cmp.Diff(c.want, z.got); diff != "" {
			t.Errorf("%s %s asked (-want +got):\n%s", c.method, c.path, diff)
		}
	}
}

func TestStrangersReachHealthOnly(t *testing.T) {
	rt := fakeRuntime(t)
	a := serve(t, kubeletapi.Config{Runtime: rt, Images: rt})
	stranger := newAuthority(t).client("admin")
	for path, want := range map[string]int{"/healthz": 200, "/pods": 401, "/metrics/resource": 401, "/nothing": 401} {
		if got, _ := a.doAs(tls.Certificate{}, "GET", path); got != want {
			t.Errorf("anonymous GET %s: %d, want %d", path, got, want)
		}
		if path == "/healthz" {
			continue
		}
		if got, _ := a.doAs(stranger, "GET", path); got != want {
			t.Errorf("GET %s with another CA's certificate: %d, want %d", path, got, want)
		}
	}
}

func TestDelegatedAsksOnceAndForgets(t *testing.T) {
	var tokens, accesses atomic.Int32
	clock := testingclock.NewFakePassiveClock(time.Now())
	authn, authz, err := kubeletapi.Delegated(kubeletapi.DelegatedConfig{
		Clock: clock,
		ReviewToken: func(_ context.Context, r *authenticationv1.TokenReview) (*authenticationv1.TokenReview, error) {
			tokens.Add(1)
			switch r.Spec.Token {
			case "good":
				r.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{Username: "alice", Groups: []string{"dev"}}}
			case "down":
				return nil, errors.New("server unreachable")
			}
			return r, nil
		},
		ReviewAccess: func(_ context.Context, r *authorizationv1.SubjectAccessReview) (*authorizationv1.SubjectAccessReview, error) {
			accesses.Add(1)
			r.Status.Allowed = r.Spec.User == "alice" && r.Spec.ResourceAttributes.Subresource == "pods"
			return r, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	rt := fakeRuntime(t)
	a := serve(t, kubeletapi.Config{Runtime: rt, Images: rt, Authenticator: authn, Authorizer: authz})
	get := func(path, token string) int {
		req, _ := http.NewRequest("GET", a.url+path, nil)
		req.Header.Set("Authorization", "Bearer "+token)
		resp, err := a.http(tls.Certificate{}).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	for range 3 {
		if got := get("/pods", "good"); got != 200 {
			t.Errorf("allowed: %d", got)
		}
		if got := get("/stats/summary", "good"); got != 403 {
			t.Errorf("denied: %d", got)
		}
	}
	if tokens.Load() != 1 || accesses.Load() != 2 {
		t.Errorf("asked %d times about the token, %d about access, want 1 and 2", tokens.Load(), accesses.Load())
	}
	if got := get("/pods", "bad"); got != 401 {
		t.Errorf("bad token: %d", got)
	}
	if got := get("/pods", "down"); got != 401 {
		t.Errorf("while the server is down: %d", got)
	}
	clock.SetTime(clock.Now().Add(10 * time.Minute))
	before := tokens.Load()
	if got := get("/pods", "good"); got != 200 || tokens.Load() != before+1 {
		t.Errorf("after a while: %d, asked %d times more", got, tokens.Load()-before)
	}
}

func fakeRuntime(t *testing.T) *fake.Runtime {
	t.Helper()
	return fake.New(fake.Config{})
}
