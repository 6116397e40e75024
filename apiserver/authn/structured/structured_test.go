package structured_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/utils/clock"

	"github.com/yare-project/yare/apiserver/authn/structured"
)

const own = "https://yare.example"

// patience bounds what usually takes milliseconds.
const patience = 20 * time.Second

type site struct {
	*testing.T
	*provider
	tokens *structured.Authenticator
	path   string
}

// open starts an authenticator on a file. %URL and %CA in the text stand for the provider's.
func open(t *testing.T, text string) *site {
	t.Helper()
	s := &site{T: t, provider: newProvider(t), path: filepath.Join(t.TempDir(), "authentication.yaml")}
	s.write(text)
	s.start(structured.Config{File: s.path})
	return s
}

func (s *site) write(text string) {
	s.Helper()
	ca := strings.ReplaceAll(strings.TrimSpace(s.ca()), "\n", "\n      ")
	text = strings.NewReplacer("%URL", s.URL, "%CA", ca).Replace(text)
	if err := os.WriteFile(s.path, []byte(text), 0o600); err != nil {
		s.Fatal(err)
	}
}

func (s *site) start(c structured.Config) {
	s.Helper()
	c.Audiences, c.Reserved, c.Clock, c.Log, c.Every = []string{own}, []string{own}, clock.RealClock{}, slog.New(slog.DiscardHandler), time.Millisecond
	c.Patience = time.Second
	var err error
	if s.tokens, err = structured.New(c); err != nil {
		s.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.tokens.Run(ctx) }()
	s.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			s.Error(err)
		}
		s.tokens.Close()
	})
	s.until("the provider answers", func() error { return s.tokens.Healthy() })
}

func (s *site) until(what string, f func() error) {
	s.Helper()
	deadline := time.After(patience)
	for {
		err := f()
		if err == nil {
			return
		}
		select {
		case <-deadline:
			s.Fatalf("%s: %v", what, err)
		case <-time.After(time.Millisecond):
		}
	}
}

func (s *site) claims(more map[string]any) map[string]any {
	now := time.Now().Unix()
	out := map[string]any{"iss": s.URL, "aud": "yare", "sub": "jane", "exp": now + 600, "iat": now, "jti": "id-1"}
	maps.Copy(out, more)
	return out
}

func (s *site) authenticate(token string) (*authenticator.Response, bool, error) {
	return s.tokens.AuthenticateToken(authenticator.WithAudiences(context.Background(), []string{own}), token)
}

const simple = `
apiVersion: apiserver.config.k8s.io/v1
kind: AuthenticationConfiguration
jwt:
- issuer:
    url: %URL
    audiences: [yare]
    certificateAuthority: |
      %CA
  claimMappings:
    username:
      claim: sub
      prefix: "oidc:"
    groups:
      claim: groups
      prefix: "oidc:"
`

// TestWhoIsBelieved has one provider with two keys, and tokens that are good and bad in one way each.
func TestWhoIsBelieved(t *testing.T) {
	s := open(t, simple)
	now := time.Now().Unix()
	nameless := s.claims(nil)
	delete(nameless, "sub")
	foreign, good := newRSA(t), s.token("rsa", s.claims(nil))
	for name, test := range map[string]struct {
		token string
		name  string // of the user; empty: refused or unknown
		err   string // empty: nobody has an opinion
	}{
		"RS256":                   {good, "oidc:jane", ""},
		"ES256":                   {s.token("ec", s.claims(map[string]any{"sub": "joe"})), "oidc:joe", ""},
		"one audience of several": {s.token("rsa", s.claims(map[string]any{"aud": []string{"x", "yare"}})), "oidc:jane", ""},
		"wrong audience":          {s.token("rsa", s.claims(map[string]any{"aud": "other"})), "", `expected audience "yare" got ["other"]`},
		"no audience":             {s.token("rsa", s.claims(map[string]any{"aud": nil})), "", "expected audience"},
		"expired":                 {s.token("rsa", s.claims(map[string]any{"exp": now - 60})), "", "token is expired"},
		"not yet valid":           {s.token("rsa", s.claims(map[string]any{"nbf": now + 3600})), "", "before the nbf"},
		"wrong issuer":            {s.token("rsa", s.claims(map[string]any{"iss": "https://other.example"})), "", ""},
		"our own issuer":          {s.token("rsa", s.claims(map[string]any{"iss": own})), "", ""},
		"unsigned":                {unsigned(s.claims(nil)), "", `unsupported algorithm`},
		"unknown key id":          {s.signed("stranger", foreign, s.claims(nil)), "", "failed to verify id token signature"},
		"another key's id":        {s.signed("rsa", foreign, s.claims(nil)), "", "failed to verify id token signature"},
		"altered claims":          {altered(good, s.claims(map[string]any{"sub": "root"})), "", "failed to verify id token signature"},
		"no name":                 {s.token("rsa", nameless), "", "claim not present"},
		"no token at all":         {"abc", "", ""},
		"dots":                    {"..", "", ""},
		"empty":                   {"", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			who, ok, err := s.authenticate(test.token)
			switch {
			case test.name != "" && (err != nil || !ok || who.User.GetName() != test.name):
				t.Errorf("got %v, %v, %v, want %s", who, ok, err, test.name)
			case test.name == "" && ok:
				t.Errorf("believed to be %s", who.User.GetName())
			case test.name == "" && (err != nil) != (test.err != ""), test.err != "" && !strings.Contains(err.Error(), test.err):
				t.Errorf("error %v, want %q", err, test.err)
			}
			if err != nil && len(test.token) > 20 && strings.Contains(err.Error(), test.token[len(test.token)-20:]) {
				t.Errorf("the error shows the token: %v", err)
			}
		})
	}
	who, _, err := s.authenticate(s.token("rsa", s.claims(map[string]any{"groups": []string{"a", "b"}})))
	if err != nil {
		t.Fatal(err)
	}
	got := []any{who.User.GetGroups(), who.User.GetExtra(), []string(who.Audiences)}
	want := []any{[]string{"oidc:a", "oidc:b"}, map[string][]string{"authentication.kubernetes.io/credential-id": {"JTI=id-1"}}, []string{own}}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if _, ok, _ := s.tokens.AuthenticateToken(authenticator.WithAudiences(context.Background(), []string{"elsewhere"}), good); ok {
		t.Error("a token was good for an audience that is not the API server's")
	}
}

// TestKeysAreFetchedAgainWhenTheyAreExchanged signs by a key that was not there at the start.
func TestKeysAreFetchedAgainWhenTheyAreExchanged(t *testing.T) {
	s := open(t, simple)
	old := s.token("rsa", s.claims(nil))
	if _, ok, err := s.authenticate(old); !ok {
		t.Fatal(err)
	}
	before := s.asked
	next := newEC(t)
	s.replace("next", next)
	if _, ok, err := s.authenticate(s.signed("next", next, s.claims(nil))); !ok {
		t.Errorf("a token by the new key: %v", err)
	}
	if s.asked == before {
		t.Error("the keys were not fetched again")
	}
}

const expressive = `
apiVersion: apiserver.config.k8s.io/v1
kind: AuthenticationConfiguration
jwt:
- issuer:
    url: https://issuer.example
    discoveryURL: %URL/.well-known/openid-configuration
    audiences: [yare, other]
    audienceMatchPolicy: MatchAny
    certificateAuthority: |
      %CA
  claimValidationRules:
  - claim: hd
    requiredValue: example.com
  - expression: "claims.exp - claims.iat <= 3600"
    message: tokens may last an hour
  claimMappings:
    username:
      expression: "'x:' + claims.sub"
    groups:
      expression: "claims.roles.split(',').map(r, 'role:' + r)"
    uid:
      expression: "claims.sub + '-uid'"
    extra:
    - key: example.com/tenant
      valueExpression: "claims.tenant"
  userValidationRules:
  - expression: "!user.username.startsWith('x:system:')"
    message: names may not begin with system
`

func TestClaimsAndUsersAreJudgedByExpressions(t *testing.T) {
	s := &site{T: t, provider: newProvider(t), path: filepath.Join(t.TempDir(), "authentication.yaml")}
	s.issuer = "https://issuer.example"
	s.write(expressive)
	s.start(structured.Config{File: s.path})
	claims := func(more map[string]any) map[string]any {
		out := s.claims(map[string]any{"iss": "https://issuer.example", "aud": "other", "hd": "example.com", "roles": "a,b", "tenant": "t1"})
		maps.Copy(out, more)
		return out
	}
	who, ok, err := s.authenticate(s.token("ec", claims(nil)))
	if !ok {
		t.Fatal(err)
	}
	got := []any{who.User.GetName(), who.User.GetUID(), who.User.GetGroups(), who.User.GetExtra()["example.com/tenant"]}
	if d := cmp.Diff([]any{"x:jane", "jane-uid", []string{"role:a", "role:b"}, []string{"t1"}}, got); d != "" {
		t.Error(d)
	}
	for want, more := range map[string]map[string]any{
		"tokens may last an hour":                 {"exp": time.Now().Unix() + 7200},
		"required claim hd value does not match":  {"hd": "example.org"},
		"required claim hd not present":           {"hd": nil},
		"names may not begin with system":         {"sub": "system:masters"},
		"error evaluating group claim expression": {"roles": nil},
		"expected audience in":                    {"aud": "third"},
	} {
		m := claims(more)
		if more["hd"] == nil && strings.Contains(want, "hd not") {
			delete(m, "hd")
		}
		if _, ok, err := s.authenticate(s.token("ec", m)); ok || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: believed=%v, %v, want %q", more, ok, err, want)
		}
	}
}

// TestAChangedFileIsInForceUnlessItIsWrong changes the prefix, then breaks the file in several ways.
func TestAChangedFileIsInForceUnlessItIsWrong(t *testing.T) {
	s := open(t, simple)
	named := func(want string) func() error {
		return func() error {
			who, ok, err := s.authenticate(s.token("rsa", s.claims(nil)))
			if !ok || who.User.GetName() != want {
				return fmt.Errorf("%v %v, want %s", who, err, want)
			}
			return nil
		}
	}
	s.until("the first prefix", named("oidc:jane"))
	s.write(strings.ReplaceAll(simple, "oidc:", "new:"))
	s.until("the new prefix", named("new:jane"))
	for name, text := range map[string]string{
		"no YAML":        "{",
		"unknown field":  simple + "    colour: red\n",
		"bad expression": strings.Replace(strings.ReplaceAll(simple, "oidc:", "bad:"), "claim: sub\n      prefix: \"bad:\"", "expression: 'claims.'", 1),
		"dead provider":  strings.Replace(strings.ReplaceAll(simple, "oidc:", "bad:"), "%URL", "https://127.0.0.1:1", 1),
	} {
		s.write(text)
		select {
		case <-time.After(50 * time.Millisecond): // several looks
		}
		if err := named("new:jane")(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	s.write(strings.ReplaceAll(simple, "oidc:", "last:"))
	s.until("the last prefix, after wrong files", named("last:jane"))
	s.write("apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\nanonymous: {enabled: true, conditions: [{path: /livez}]}\n")
	s.until("no provider any more", func() error {
		if _, ok, err := s.authenticate(s.token("rsa", s.claims(nil))); ok || err != nil {
			return fmt.Errorf("believed=%v %v", ok, err)
		}
		return nil
	})
	if rule := s.tokens.Anonymous(); rule == nil || !rule.Enabled || len(rule.Conditions) != 1 || rule.Conditions[0].Path != "/livez" {
		t.Errorf("anonymous: %+v", rule)
	}
}

func TestWrongConfigurationsAreRefused(t *testing.T) {
	valid := strings.NewReplacer("%URL", "https://issuer.example", "    certificateAuthority: |\n      %CA\n", "").Replace(simple)
	for want, text := range map[string]string{
		"is a *apiserver.AuthorizationConfiguration":  "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\n",
		`unknown field "jwt[0].colour"`:               valid + "  colour: red\n",
		"no kind \"AuthenticationConfiguration\"":     strings.Replace(valid, "config.k8s.io/v1", "config.k8s.io/v7", 1),
		"URL scheme must be https":                    strings.Replace(valid, "https://", "http://", 1),
		"leave it out":                                strings.Replace(valid, "    audiences", "    egressSelectorType: cluster\n    audiences", 1),
		"must not overlap with disallowed issuers":    strings.Replace(valid, "https://issuer.example", own, 1),
		"audienceMatchPolicy must be MatchAny":        strings.Replace(valid, "[yare]", "[yare, b]", 1),
		"jwt[0].issuer.audiences: Required value":     strings.Replace(valid, "[yare]", "[]", 1),
		"claim or expression is required":             strings.Replace(valid, "      claim: sub\n      prefix: \"oidc:\"\n", "      claim: \"\"\n", 1),
		"jwt[0].issuer.certificateAuthority: Invalid": strings.Replace(valid, "    audiences", "    certificateAuthority: nonsense\n    audiences", 1),
		"no such file or directory":                   "",
		"anonymous.conditions: Invalid value":         "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\nanonymous: {enabled: false, conditions: [{path: /x}]}\n",
	} {
		path := filepath.Join(t.TempDir(), "file")
		if text != "" {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		a, err := structured.New(structured.Config{File: path, Audiences: []string{own}, Reserved: []string{own}, Clock: clock.RealClock{}, Log: slog.Default()})
		if err == nil {
			a.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("got %v, want %q and the path", err, want)
		}
	}
}

func TestFlagsMeanOneProvider(t *testing.T) {
	p := newProvider(t)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, []byte(p.ca()), 0o600); err != nil {
		t.Fatal(err)
	}
	flags := func(change func(*structured.Flags)) structured.Flags {
		f := structured.DefaultFlags()
		f.IssuerURL, f.ClientID, f.CAFile = p.URL, "yare", ca
		change(&f)
		return f
	}
	for name, test := range map[string]struct {
		change func(*structured.Flags)
		claims map[string]any
		key    string
		want   string // name and groups; empty: refused
	}{
		"prefix of the issuer":   {func(*structured.Flags) {}, nil, "rsa", "URL#jane []"},
		"an empty name":          {func(f *structured.Flags) { f.UsernamePrefix = "-" }, map[string]any{"sub": ""}, "rsa", ""},
		"no prefix":              {func(f *structured.Flags) { f.UsernamePrefix = "-" }, nil, "rsa", "jane []"},
		"e-mail":                 {func(f *structured.Flags) { f.UsernameClaim = "email" }, map[string]any{"email": "j@example.com", "email_verified": true}, "rsa", "j@example.com []"},
		"e-mail, not verified":   {func(f *structured.Flags) { f.UsernameClaim = "email" }, map[string]any{"email": "j@example.com", "email_verified": false}, "rsa", ""},
		"groups":                 {func(f *structured.Flags) { f.UsernamePrefix, f.GroupsClaim, f.GroupsPrefix = "p:", "g", "q:" }, map[string]any{"g": []string{"a"}}, "rsa", "p:jane [q:a]"},
		"only RS256 unless told": {func(*structured.Flags) {}, nil, "ec", ""},
		"ES256":                  {func(f *structured.Flags) { f.UsernamePrefix, f.SigningAlgs = "-", []string{"ES256"} }, nil, "ec", "jane []"},
		"a claim with its value": {func(f *structured.Flags) { f.UsernamePrefix, f.RequiredClaims = "-", map[string]string{"hd": "x"} }, map[string]any{"hd": "x"}, "rsa", "jane []"},
		"a claim without it":     {func(f *structured.Flags) { f.RequiredClaims = map[string]string{"hd": "x"} }, map[string]any{"hd": "y"}, "rsa", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := &site{T: t, provider: p}
			s.start(structured.Config{Flags: flags(test.change)})
			who, ok, err := s.authenticate(s.token(test.key, s.claims(test.claims)))
			if test.want == "" {
				if ok || err == nil {
					t.Errorf("believed: %v %v", who, err)
				}
				return
			}
			if !ok {
				t.Fatal(err)
			}
			if got := fmt.Sprint(who.User.GetName(), " ", who.User.GetGroups()); got != strings.Replace(test.want, "URL", p.URL, 1) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
	for want, f := range map[string]structured.Flags{
		"go together":             {ClientID: "x"},
		"unsupported signing alg": flags(func(f *structured.Flags) { f.SigningAlgs = []string{"HS256"} }),
		"--oidc-ca-file":          flags(func(f *structured.Flags) { f.CAFile = "/none" }),
		"exclude each other":      flags(func(*structured.Flags) {}),
	} {
		c := structured.Config{Flags: f, Audiences: []string{own}, Clock: clock.RealClock{}, Log: slog.Default()}
		if want == "exclude each other" {
			c.File = "/some/file"
		}
		if _, err := structured.New(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func TestAnonymousIsSaidInOnePlace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte("apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\nanonymous: {enabled: true}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, elsewhere := range []bool{false, true} {
		a, err := structured.New(structured.Config{File: path, AnonymousElsewhere: elsewhere, Clock: clock.RealClock{}, Log: slog.New(slog.DiscardHandler)})
		if err == nil {
			a.Close()
		}
		if (err != nil) != elsewhere || err != nil && !strings.Contains(err.Error(), "exclude each other") {
			t.Errorf("with --anonymous-auth=%v: %v", elsewhere, err)
		}
	}
}

// TestTheDocumentedExampleIsTaken reads it out of the document.
func TestTheDocumentedExampleIsTaken(t *testing.T) {
	document, err := os.ReadFile("../../../docs/access.md")
	if err != nil {
		t.Fatal(err)
	}
	var example []string
	for line := range strings.Lines(string(document)) {
		if text, ok := strings.CutPrefix(line, "    "); ok && (len(example) > 0 || strings.HasPrefix(text, "apiVersion")) {
			example = append(example, text)
		} else if len(example) > 0 {
			break
		}
	}
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(strings.Join(example, "")), 0o600); err != nil {
		t.Fatal(err)
	}
	a, err := structured.New(structured.Config{File: path, Audiences: []string{own}, Clock: clock.RealClock{}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatalf("%v\n%s", err, strings.Join(example, ""))
	}
	a.Close()
}
