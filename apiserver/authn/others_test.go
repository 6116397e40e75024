package authn

import (
	"context"
	"errors"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
)

// TestOthersAreAskedLastAndForTheServersOwnAudiences has somebody else who knows every token but one.
func TestOthersAreAskedLastAndForTheServersOwnAudiences(t *testing.T) {
	f := newFixture(t)
	f.config.Others = []authenticator.Token{authenticator.TokenFunc(func(ctx context.Context, token string) (*authenticator.Response, bool, error) {
		if token == "bad" {
			return nil, false, errors.New("no good")
		}
		audiences, _ := authenticator.AudiencesFrom(ctx)
		return &authenticator.Response{Audiences: audiences, User: &user.DefaultInfo{Name: "other"}}, true, nil
	})}
	var err error
	if f.Authenticator, err = New(f.config); err != nil {
		t.Fatal(err)
	}
	ask := func(ctx context.Context, token string) string {
		who, ok, err := f.AuthenticateToken(ctx, token)
		if !ok {
			return "nobody: " + err.Error()
		}
		return who.User.GetName() + " " + cmp.Diff(authenticator.Audiences(f.config.Audiences), who.Audiences)
	}
	plain := context.Background()
	if got := ask(plain, "opaque"); got != "other " {
		t.Error(got)
	}
	if got := ask(plain, f.token(t, request("", "", ""))); got != "system:serviceaccount:ns:web " {
		t.Error(got)
	}
	if who, _, _ := f.AuthenticateToken(authenticator.WithAudiences(plain, []string{"x"}), "opaque"); len(who.Audiences) != 1 || who.Audiences[0] != "x" {
		t.Errorf("asked for x: %v", who.Audiences)
	}
	if got := ask(plain, "bad"); got != "nobody: no good" {
		t.Error(got)
	}
	r := httptest.NewRequest("GET", "/api", nil)
	r.Header.Set("Authorization", "Bearer bad")
	if who, ok, err := f.AuthenticateRequest(r); ok || err == nil {
		t.Errorf("a bad token became %v", who.User)
	}
}

func TestAnonymousMayBeDecidedByPath(t *testing.T) {
	f := newFixture(t)
	open := "/livez"
	f.config.AnonymousOn = func(path string) bool { return path == open }
	a, err := New(f.config)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/livez", "/readyz"} {
		open = path
		for _, asked := range []string{"/livez", "/readyz", "/livez/x", "/api"} {
			if _, ok, _ := a.AuthenticateRequest(httptest.NewRequest("GET", asked, nil)); ok != (asked == path) {
				t.Errorf("%s is open: %s let through=%v", path, asked, ok)
			}
		}
	}
}
