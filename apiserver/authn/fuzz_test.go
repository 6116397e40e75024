package authn

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/yare-project/yare/internal/pki"
)

var quiet = slog.New(slog.DiscardHandler)

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// What a stranger can send, to everything that reads it. Nothing may panic, and nobody may become somebody without a credential.

func FuzzAuthorizationHeader(f *testing.F) {
	fix := newFixture(f)
	good := fix.token(f, request("", "", ""))
	for _, seed := range []string{"Bearer " + good, "bearer  " + good, "Bearer " + good + " ", "Bearer", "Basic YTpi", "Bearer a b", "Bearer abcdef.0123456789abcdef", "\tBearer x", "Bearer \x00", "Bearer e30.e30.AA"} {
		f.Add(seed, "")
		f.Add("", "base64url.bearer.authorization.k8s.io."+base64.RawURLEncoding.EncodeToString([]byte(seed))+", v5.channel.k8s.io")
	}
	f.Fuzz(func(t *testing.T, header, protocol string) {
		r := httptest.NewRequest("GET", "https://yare/api", nil)
		if header != "" {
			r.Header["Authorization"] = []string{header}
		}
		if protocol != "" {
			r.Header["Connection"], r.Header["Upgrade"], r.Header["Sec-Websocket-Protocol"] = []string{"Upgrade"}, []string{"websocket"}, []string{protocol}
		}
		who, ok, err := fix.AuthenticateRequest(r)
		switch {
		case !ok:
		case who.User.GetName() == user.Anonymous:
			if header != "" {
				t.Errorf("%q was taken for no credential at all: %v", header, err)
			}
		case !slices.ContainsFunc(tokensIn(header, protocol), func(token string) bool {
			p, err := parse(token)
			return err == nil && p.verify(keysOf(fix.config)) == nil
		}):
			t.Errorf("%q, %q became %v", header, protocol, who.User)
		}
	})
}

// tokensIn is everything in the headers that could be a token.
func tokensIn(header, protocol string) []string {
	out := strings.Fields(header)
	for _, p := range strings.Split(protocol, ",") {
		encoded, _ := strings.CutPrefix(strings.TrimSpace(p), "base64url.bearer.authorization.k8s.io.")
		if token, err := base64.RawURLEncoding.DecodeString(encoded); err == nil {
			out = append(out, string(token))
		}
	}
	return out
}

func FuzzBootstrapToken(f *testing.F) {
	const good = "abcdef.0123456789abcdef"
	fix := newFixture(f)
	for _, seed := range []string{good, "abcdef.", ".0123456789abcdef", "abcdef.0123456789abcdeg", "ABCDEF.0123456789ABCDEF", good + "\n", "abcde/.0123456789abcdef", "../../.0123456789abcdef"} {
		f.Add(seed, "0123456789abcdef", "2026-01-02T03:05:00Z", "system:bootstrappers:a")
	}
	f.Add(good, "0123456789abcdef", "x", "system:masters")
	f.Add(good, "", "", ",,")
	f.Fuzz(func(t *testing.T, token, secret, expiration, groups string) {
		fix.objects["secrets/kube-system/bootstrap-token-abcdef"] = &corev1.Secret{ObjectMeta: meta("kube-system", "bootstrap-token-abcdef", "1"), Type: bootstrapSecretType, Data: map[string][]byte{
			"token-id": []byte("abcdef"), "token-secret": []byte(secret), "usage-bootstrap-authentication": []byte("true"), "expiration": []byte(expiration), "auth-extra-groups": []byte(groups)}}
		b := &bootstrapTokens{lookup: fix.objects, clock: fix.clock, log: quiet}
		who, ok, err := b.AuthenticateToken(context.Background(), token)
		if err != nil {
			t.Error(err)
		}
		if !ok {
			return
		}
		if token != "abcdef."+secret || who.User.GetName() != "system:bootstrap:abcdef" {
			t.Errorf("%q became %v by the secret %q", token, who.User, secret)
		}
		for _, g := range who.User.GetGroups() {
			if g != "system:bootstrappers" && !strings.HasPrefix(g, "system:bootstrappers:") {
				t.Errorf("a token gave the group %q", g)
			}
		}
	})
}

// FuzzImpersonation has somebody who may impersonate bob only.
func FuzzImpersonation(f *testing.F) {
	for _, seed := range [][4]string{{"bob", "", "", ""}, {"bob", "system:masters", "", ""}, {"system:serviceaccount:ns:web", "", "", ""}, {"system:node:n1", "", "", ""}, {"", "g", "", ""},
		{"bob", "", "Scopes", "a"}, {"bob", "", "Acme.com%2fa%zz", "a"}, {"system:serviceaccount::", "", "", ""}, {"bob", "\x00", "%", ""}} {
		f.Add(seed[0], seed[1], seed[2], seed[3], "")
	}
	f.Add("bob", "", "", "", "7")
	allow := authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		if a.GetResource() == "users" && a.GetName() == "bob" || strings.HasPrefix(a.GetVerb(), "impersonate-on:") {
			return authorizer.DecisionAllow, "", nil
		}
		return authorizer.DecisionNoOpinion, "", nil
	})
	me := &user.DefaultInfo{Name: "me"}
	f.Fuzz(func(t *testing.T, name, group, key, value, uid string) {
		h := http.Header{}
		set := func(header, value string) {
			if value != "" {
				h[header] = []string{value}
			}
		}
		set("Impersonate-User", name)
		set("Impersonate-Group", group)
		set("Impersonate-Uid", uid)
		if key != "" {
			h["Impersonate-Extra-"+key] = []string{value}
		}
		as, did, err := NewImpersonator().Impersonate(context.Background(), h, me, allow, question{Verb: "get", Path: "/"})
		if err != nil || !did {
			if err == nil && as.GetName() != "me" {
				t.Errorf("nobody was impersonated, and it became %v", as)
			}
			return
		}
		if as.GetName() != "bob" || as.GetUID() != "" || len(as.GetExtra()) > 0 || !slices.Equal(as.GetGroups(), []string{user.AllAuthenticated}) {
			t.Errorf("%v became %v", h, as)
		}
		if len(h) > 0 {
			t.Errorf("headers left: %v", h)
		}
	})
}

func FuzzFrontProxyHeaders(f *testing.F) {
	ours, err := pki.Open(pki.Config{Log: quiet})
	if err != nil {
		f.Fatal(err)
	}
	a, err := New(Config{ClientCA: ours.Cluster.Pool(), FrontProxy: &FrontProxy{CA: ours.FrontProxy.Pool()}, Anonymous: true, Log: quiet})
	if err != nil {
		f.Fatal(err)
	}
	f.Add("X-Remote-User", "root", "X-Remote-Group", "system:masters")
	f.Add("X-Remote-Extra-A%2fb", "c", "x-remote-user", "root")
	f.Add("X-Remote-Uid", "0", "X-Remote-Extra-", "")
	f.Fuzz(func(t *testing.T, key1, value1, key2, value2 string) {
		r := httptest.NewRequest("GET", "https://yare/api", nil)
		r.Header[key1], r.Header[key2] = []string{value1}, []string{value2}
		if who, ok, _ := a.AuthenticateRequest(r); ok && who.User.GetName() != user.Anonymous {
			t.Errorf("%v became %v", r.Header, who.User)
		}
	})
}

// FuzzClientCertificates makes a chain of what a stranger sends: nothing that the authority has not signed may pass.
func FuzzClientCertificates(f *testing.F) {
	ours, err := pki.Open(pki.Config{Log: quiet})
	if err != nil {
		f.Fatal(err)
	}
	a, err := New(Config{ClientCA: ours.Cluster.Pool(), Log: quiet})
	if err != nil {
		f.Fatal(err)
	}
	leaf, err := ours.Leaf(pki.Admin())
	if err != nil {
		f.Fatal(err)
	}
	good, err := leaf.Certificate()
	if err != nil {
		f.Fatal(err)
	}
	key := newKey(f)
	own := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "root", Organization: []string{"system:masters"}}, NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	self, err := x509.CreateCertificate(rand.Reader, own, own, key.Public(), key)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good.Leaf.Raw, self)
	f.Add(self, good.Leaf.Raw)
	f.Add(self, []byte{})
	f.Add([]byte{0x30, 0x80}, []byte{0x30})
	f.Fuzz(func(t *testing.T, first, second []byte) {
		r := httptest.NewRequest("GET", "https://yare/api", nil)
		r.TLS = &tls.ConnectionState{}
		for _, der := range [][]byte{first, second} {
			if c, err := x509.ParseCertificate(der); err == nil {
				r.TLS.PeerCertificates = append(r.TLS.PeerCertificates, c)
			}
		}
		who, ok, _ := a.AuthenticateRequest(r)
		if ok && !slices.Equal(r.TLS.PeerCertificates[0].Raw, good.Leaf.Raw) {
			t.Errorf("became %v", who.User)
		}
	})
}
