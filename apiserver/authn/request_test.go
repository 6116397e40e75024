package authn

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/yare-project/yare/internal/pki"
)

type certFixture struct {
	ours, theirs *pki.PKI
	clock        *clocktesting.FakeClock
	*Authenticator
}

func newCertFixture(t *testing.T, change func(*Config)) *certFixture {
	t.Helper()
	f := &certFixture{clock: clocktesting.NewFakeClock(time.Now())}
	open := func() *pki.PKI {
		p, err := pki.Open(pki.Config{Dir: t.TempDir(), Clock: f.clock, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	f.ours, f.theirs = open(), open()
	cfg := Config{ClientCA: f.ours.Cluster.Pool(), FrontProxy: &FrontProxy{CA: f.ours.FrontProxy.Pool(), Names: []string{"front-proxy-client"}},
		StaticTokens: []StaticToken{{"secret", &user.DefaultInfo{Name: "joiner", Groups: []string{"system:bootstrappers"}}}},
		Clock:        f.clock, Anonymous: true}
	change(&cfg)
	a, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	f.Authenticator = a
	return f
}

func with(t *testing.T, p *pki.PKI, spec pki.LeafSpec, headers ...string) *http.Request {
	t.Helper()
	r := httptest.NewRequest("GET", "https://yare/api", nil)
	r.TLS = &tls.ConnectionState{}
	if p != nil {
		l, err := p.Leaf(spec)
		if err != nil {
			t.Fatal(err)
		}
		c, err := l.Certificate()
		if err != nil {
			t.Fatal(err)
		}
		r.TLS.PeerCertificates = []*x509.Certificate{c.Leaf}
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	return r
}

// TestAFrontProxyMayHaveNoName: only a user's certificate must name somebody.
func TestAFrontProxyMayHaveNoName(t *testing.T) {
	f := newCertFixture(t, func(c *Config) { c.FrontProxy.Names = nil })
	nameless := pki.LeafSpec{Name: "nameless", Client: true}
	if _, ok, err := f.AuthenticateRequest(with(t, f.ours, nameless)); ok || err == nil {
		t.Errorf("a user's certificate without a name: %v %v", ok, err)
	}
	nameless.FrontProxy = true
	for range 2 { // the second time it is known
		if who, ok, err := f.AuthenticateRequest(with(t, f.ours, nameless, "X-Remote-User", "ann")); !ok || err != nil || who.User.GetName() != "ann" {
			t.Fatalf("a front proxy's certificate without a name: %v %v", ok, err)
		}
	}
}

func TestWhoMakesARequest(t *testing.T) {
	f := newCertFixture(t, func(*Config) {})
	proxy := pki.FrontProxyClient()
	for name, test := range map[string]struct {
		request *http.Request
		who     string
		groups  []string
	}{
		"admin certificate":       {with(t, f.ours, pki.Admin()), "system:admin", []string{"system:masters", "system:authenticated"}},
		"node certificate":        {with(t, f.ours, pki.NodeClient("n1")), "system:node:n1", []string{"system:nodes", "system:authenticated"}},
		"nothing":                 {with(t, nil, pki.LeafSpec{}), "system:anonymous", []string{"system:unauthenticated"}},
		"token":                   {with(t, nil, pki.LeafSpec{}, "Authorization", "Bearer secret"), "joiner", []string{"system:bootstrappers", "system:authenticated"}},
		"front proxy":             {with(t, f.ours, proxy, "X-Remote-User", "ann", "X-Remote-Group", "dev", "X-Remote-Group", "ops"), "ann", []string{"dev", "ops", "system:authenticated"}},
		"foreign certificate":     {with(t, f.theirs, pki.Admin()), "", nil},
		"serving certificate":     {with(t, f.ours, pki.NodeServing("n1", nil, nil)), "", nil},
		"certificate of nobody":   {with(t, f.ours, pki.LeafSpec{Name: "nobody", Client: true}), "", nil},
		"wrong token":             {with(t, nil, pki.LeafSpec{}, "Authorization", "Bearer guess"), "", nil},
		"password":                {with(t, nil, pki.LeafSpec{}, "Authorization", "Basic YWRtaW46YWRtaW4="), "", nil},
		"front proxy with no one": {with(t, f.ours, proxy), "", nil},
		// What only the front proxy may say means nothing from others: they are who their own certificate says.
		"user who says he is root": {with(t, f.ours, pki.NodeClient("n1"), "X-Remote-User", "root", "X-Remote-Group", "system:masters"), "system:node:n1", []string{"system:nodes", "system:authenticated"}},
		"nobody who says so":       {with(t, nil, pki.LeafSpec{}, "X-Remote-User", "root", "X-Remote-Group", "system:masters"), "system:anonymous", []string{"system:unauthenticated"}},
		"proxy of another name":    {with(t, f.ours, pki.LeafSpec{Name: "p2", User: "p2", Client: true, FrontProxy: true}, "X-Remote-User", "root"), "", nil},
		"front proxy as a user":    {with(t, f.ours, pki.LeafSpec{Name: "m", User: "m", Groups: []string{"system:masters"}, Client: true, FrontProxy: true}), "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok, err := f.AuthenticateRequest(test.request)
			if test.who == "" {
				if ok {
					t.Fatalf("taken for %v", got.User)
				}
				return
			}
			if !ok {
				t.Fatal(err)
			}
			if d := cmp.Diff([]any{test.who, test.groups}, []any{got.User.GetName(), got.User.GetGroups()}); d != "" {
				t.Error(d)
			}
			if test.request.Header.Get("X-Remote-User") != "" || test.request.Header.Get("Authorization") != "" {
				t.Error("credentials were left in the request")
			}
		})
	}
}

func TestAnExpiredCertificateIsRefusedThoughItWasGoodBefore(t *testing.T) {
	f := newCertFixture(t, func(*Config) {})
	r := with(t, f.ours, pki.Admin())
	if _, ok, err := f.AuthenticateRequest(r); !ok {
		t.Fatal(err)
	}
	f.clock.Step(366 * 24 * time.Hour)
	_, ok, err := f.AuthenticateRequest(r)
	if ok || err == nil || !strings.Contains(err.Error(), "system:admin") {
		t.Errorf("ok=%v %v", ok, err)
	}
}

func TestAnonymousMayBeLimited(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Config)
		path   string
		ok     bool
	}{
		"on":         {func(*Config) {}, "/api", true},
		"off":        {func(c *Config) { c.Anonymous = false }, "/healthz", false},
		"path":       {func(c *Config) { c.AnonymousPaths = []string{"/healthz"} }, "/healthz", true},
		"other path": {func(c *Config) { c.AnonymousPaths = []string{"/healthz"} }, "/api", false},
	} {
		f := newCertFixture(t, test.change)
		if _, ok, _ := f.AuthenticateRequest(httptest.NewRequest("GET", test.path, nil)); ok != test.ok {
			t.Errorf("%s: got %v", name, ok)
		}
	}
}

func TestExtraHeaders(t *testing.T) {
	f := newCertFixture(t, func(*Config) {})
	r := with(t, f.ours, pki.FrontProxyClient(), "X-Remote-User", "ann", "X-Remote-Uid", "7", "X-Remote-Extra-Acme.com%2fproject", "a", "x-remote-extra-scopes", "b")
	got, ok, err := f.AuthenticateRequest(r)
	if !ok {
		t.Fatal(err)
	}
	if d := cmp.Diff(map[string][]string{"acme.com/project": {"a"}, "scopes": {"b"}}, got.User.GetExtra()); d != "" || got.User.GetUID() != "7" {
		t.Error(d, got.User)
	}
}

func TestWebSocketToken(t *testing.T) {
	f := newCertFixture(t, func(*Config) {})
	r := with(t, nil, pki.LeafSpec{}, "Connection", "Upgrade", "Upgrade", "websocket",
		"Sec-WebSocket-Protocol", "base64url.bearer.authorization.k8s.io."+base64.RawURLEncoding.EncodeToString([]byte("secret"))+", v5.channel.k8s.io")
	got, ok, err := f.AuthenticateRequest(r)
	if !ok || got.User.GetName() != "joiner" {
		t.Fatal(got, err)
	}
	if p := r.Header.Get("Sec-WebSocket-Protocol"); p != "v5.channel.k8s.io" {
		t.Errorf("protocols left: %q", p)
	}
}

func TestBootstrapTokens(t *testing.T) {
	secret := func(change func(*corev1.Secret)) *corev1.Secret {
		s := &corev1.Secret{ObjectMeta: meta("kube-system", "bootstrap-token-abcdef", "1"), Type: bootstrapSecretType, Data: map[string][]byte{
			"token-id": []byte("abcdef"), "token-secret": []byte("0123456789abcdef"), "usage-bootstrap-authentication": []byte("true"),
			"auth-extra-groups": []byte("system:bootstrappers:workers"),
		}}
		change(s)
		return s
	}
	set := func(key, value string) func(*corev1.Secret) {
		return func(s *corev1.Secret) { s.Data[key] = []byte(value) }
	}
	const good = "abcdef.0123456789abcdef"
	for name, test := range map[string]struct {
		token  string
		change func(*corev1.Secret)
		ok     bool
	}{
		"good":            {good, func(*corev1.Secret) {}, true},
		"not yet expired": {good, set("expiration", "2026-01-02T03:05:00Z"), true},
		"expired":         {good, set("expiration", "2026-01-02T03:04:05Z"), false},
		"bad expiration":  {good, set("expiration", "tomorrow"), false},
		"wrong secret":    {"abcdef.0123456789abcdee", func(*corev1.Secret) {}, false},
		"wrong id":        {good, set("token-id", "abcdeg"), false},
		"unknown":         {"zzzzzz.0123456789abcdef", func(*corev1.Secret) {}, false},
		"not for this":    {good, set("usage-bootstrap-authentication", "false"), false},
		"group of others": {good, set("auth-extra-groups", "system:masters"), false},
		"another type":    {good, func(s *corev1.Secret) { s.Type = corev1.SecretTypeOpaque }, false},
		"capitals":        {"ABCDEF.0123456789abcdef", func(*corev1.Secret) {}, false},
	} {
		f := newFixture(t)
		f.objects["secrets/kube-system/bootstrap-token-abcdef"] = secret(test.change)
		got, ok, err := f.AuthenticateToken(context.Background(), test.token)
		if ok != test.ok || err != nil {
			t.Errorf("%s: ok=%v, %v", name, ok, err)
			continue
		}
		if ok {
			want := []string{"system:bootstrappers", "system:bootstrappers:workers", "system:authenticated"}
			if d := cmp.Diff(want, got.User.GetGroups()); d != "" || got.User.GetName() != "system:bootstrap:abcdef" {
				t.Errorf("%s: %s %s", name, got.User.GetName(), d)
			}
		}
	}
}

func TestImpersonation(t *testing.T) {
	allow := func(what ...string) authorizer.AuthorizerFunc {
		return func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
			key := a.GetResource() + "/" + a.GetSubresource() + "/" + a.GetNamespace() + "/" + a.GetName()
			if a.GetVerb() == "impersonate" && slices.Contains(what, key) {
				return authorizer.DecisionAllow, "", nil
			}
			return authorizer.DecisionNoOpinion, "", nil
		}
	}
	me := &user.DefaultInfo{Name: "me"}
	for name, test := range map[string]struct {
		headers []string
		allowed []string
		who     string
		groups  []string
		refusal string
	}{
		"nobody":             {nil, nil, "me", nil, ""},
		"user":               {[]string{"Impersonate-User", "bob"}, []string{"users///bob"}, "bob", []string{"system:authenticated"}, ""},
		"user not allowed":   {[]string{"Impersonate-User", "bob"}, nil, "", nil, `users "bob" is forbidden: User "me" cannot impersonate resource "users" in API group "" at the cluster scope`},
		"account":            {[]string{"Impersonate-User", "system:serviceaccount:ns:web"}, []string{"serviceaccounts//ns/web"}, "system:serviceaccount:ns:web", []string{"system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated"}, ""},
		"account as user":    {[]string{"Impersonate-User", "system:serviceaccount:ns:web"}, []string{"users///system:serviceaccount:ns:web"}, "", nil, "serviceaccounts"},
		"groups":             {[]string{"Impersonate-User", "bob", "Impersonate-Group", "dev"}, []string{"users///bob", "groups///dev"}, "bob", []string{"dev", "system:authenticated"}, ""},
		"group not allowed":  {[]string{"Impersonate-User", "bob", "Impersonate-Group", "system:masters"}, []string{"users///bob"}, "", nil, `resource "groups"`},
		"extra not allowed":  {[]string{"Impersonate-User", "bob", "Impersonate-Extra-Scopes", "all"}, []string{"users///bob"}, "", nil, `resource "userextras/scopes" in API group "authentication.k8s.io"`},
		"uid not allowed":    {[]string{"Impersonate-User", "bob", "Impersonate-Uid", "7"}, []string{"users///bob"}, "", nil, `resource "uids"`},
		"group without user": {[]string{"Impersonate-Group", "dev"}, []string{"groups///dev"}, "", nil, "without impersonating a user"},
		"extra":              {[]string{"Impersonate-User", "bob", "Impersonate-Extra-Acme.com%2fscope", "all"}, []string{"users///bob", "userextras/acme.com/scope//all"}, "bob", []string{"system:authenticated"}, ""},
		"uid":                {[]string{"Impersonate-User", "bob", "Impersonate-Uid", "7"}, []string{"users///bob", "uids///7"}, "bob", []string{"system:authenticated"}, ""},
		"another uid":        {[]string{"Impersonate-User", "bob", "Impersonate-Uid", "7"}, []string{"users///bob", "uids///8"}, "", nil, `resource "uids"`},
		"another extra":      {[]string{"Impersonate-User", "bob", "Impersonate-Extra-Scopes", "all"}, []string{"users///bob", "userextras/scopes//some"}, "", nil, `resource "userextras/scopes"`},
		"one of two extras":  {[]string{"Impersonate-User", "bob", "Impersonate-Extra-Scopes", "a", "Impersonate-Extra-Scopes", "b"}, []string{"users///bob", "userextras/scopes//a"}, "", nil, `resource "userextras/scopes"`},
		"one of two groups":  {[]string{"Impersonate-User", "bob", "Impersonate-Group", "a", "Impersonate-Group", "b"}, []string{"users///bob", "groups///a"}, "", nil, `resource "groups"`},
		"account elsewhere":  {[]string{"Impersonate-User", "system:serviceaccount:ns:web"}, []string{"serviceaccounts//other/web"}, "", nil, "serviceaccounts"},
		"uid without user":   {[]string{"Impersonate-Uid", "7"}, []string{"uids///7"}, "", nil, "without impersonating a user"},
		"extra without user": {[]string{"Impersonate-Extra-Scopes", "a"}, []string{"userextras/scopes//a"}, "", nil, "without impersonating a user"},
		"groups only":        {[]string{"Impersonate-User", "bob", "Impersonate-Group", "dev"}, []string{"groups///dev"}, "", nil, `resource "users"`},
		"anonymous":          {[]string{"Impersonate-User", "system:anonymous"}, []string{"users///system:anonymous"}, "system:anonymous", []string{"system:unauthenticated"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			h := http.Header{}
			for i := 0; i < len(test.headers); i += 2 {
				h.Add(test.headers[i], test.headers[i+1])
			}
			i := NewImpersonator()
			// Somebody who has used the old right is told of that one.
			if _, _, err := i.Impersonate(context.Background(), http.Header{"Impersonate-User": {"known"}}, me, allow("users///known"), question{Verb: "get", Path: "/"}); err != nil {
				t.Fatal(err)
			}
			got, did, err := i.Impersonate(context.Background(), h, me, allow(test.allowed...), question{Verb: "list", Resource: "pods", Namespace: "ns", ResourceRequest: true})
			if test.refusal != "" {
				if err == nil || !strings.Contains(err.Error(), test.refusal) || !apierrors.IsForbidden(err) && !apierrors.IsBadRequest(err) {
					t.Errorf("got %v, %v", got, err)
				}
				return
			}
			if err != nil || did != (test.headers != nil) {
				t.Fatal(did, err)
			}
			if d := cmp.Diff([]any{test.who, test.groups}, []any{got.GetName(), got.GetGroups()}); d != "" {
				t.Error(d)
			}
			if len(h) != 0 {
				t.Errorf("headers left: %v", h)
			}
		})
	}
}
