package authn

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"fmt"
	"math/big"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
)

// TestTokensMayBeSignedByAnyOfKubernetesKeys signs by one kind of key and accepts it by what discovery publishes.
func TestTokensMayBeSignedByAnyOfKubernetesKeys(t *testing.T) {
	curve := func(c elliptic.Curve) crypto.Signer {
		k, err := ecdsa.GenerateKey(c, rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	keys := map[string]crypto.Signer{"RS256": rsaKey, "ES256": curve(elliptic.P256()), "ES384": curve(elliptic.P384()), "ES512": curve(elliptic.P521())}
	for name, key := range keys {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			cfg := f.config
			cfg.TokenKey = key
			if f.Authenticator, err = New(cfg); err != nil {
				t.Fatal(err)
			}
			token := f.token(t, request("", "", ""))
			if _, ok, err := f.AuthenticateToken(context.Background(), token); !ok {
				t.Fatal(err)
			}
			p, err := parse(token)
			if err != nil || p.header.Algorithm != name {
				t.Fatalf("%v %v", p.header, err)
			}
			if err := p.verify(map[string]crypto.PublicKey{p.header.KeyID: publishedKey(t, cfg)}); err != nil {
				t.Error(err)
			}
			for other, wrong := range keys {
				if other != name && p.verify(map[string]crypto.PublicKey{p.header.KeyID: wrong.Public()}) == nil {
					t.Errorf("accepted by a key for %s", other)
				}
			}
			forged := *p
			forged.signature = append([]byte{}, p.signature...)
			forged.signature[7] ^= 1
			if forged.verify(keysOf(cfg)) == nil {
				t.Error("a changed signature was accepted")
			}
		})
	}
	_, edwards, _ := ed25519.GenerateKey(rand.Reader)
	for name, key := range map[string]crypto.Signer{"Ed25519": edwards, "P-224": curve(elliptic.P224())} {
		cfg := newFixture(t).config
		cfg.TokenKey = key
		if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), "cannot sign tokens") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// publishedKey makes a key of what discovery says about the only one.
func publishedKey(t *testing.T, cfg Config) crypto.PublicKey {
	t.Helper()
	handler, err := Discovery(cfg, "https://keys.example/jwks")
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequest("GET", OIDCConfigurationPath, nil))
	if !strings.Contains(w.Body.String(), `"jwks_uri":"https://keys.example/jwks"`) {
		t.Errorf("configuration: %s", w.Body)
	}
	w = httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequest("GET", OIDCKeysPath, nil))
	var set struct{ Keys []map[string]string }
	if err := json.Unmarshal(w.Body.Bytes(), &set); err != nil || len(set.Keys) != 1 {
		t.Fatal(err, w.Body)
	}
	number := func(key string) *big.Int {
		data, err := b64.DecodeString(set.Keys[0][key])
		if err != nil {
			t.Fatal(err)
		}
		return new(big.Int).SetBytes(data)
	}
	if set.Keys[0]["kty"] == "RSA" {
		return &rsa.PublicKey{N: number("n"), E: int(number("e").Int64())}
	}
	curves := map[string]elliptic.Curve{"P-256": elliptic.P256(), "P-384": elliptic.P384(), "P-521": elliptic.P521()}
	return &ecdsa.PublicKey{Curve: curves[set.Keys[0]["crv"]], X: number("x"), Y: number("y")}
}

// TestATokenInASecretIsGoodAsLongAsTheSecretHoldsIt keeps a token in a Secret, and then changes one thing.
func TestATokenInASecretIsGoodAsLongAsTheSecretHoldsIt(t *testing.T) {
	for name, test := range map[string]struct {
		change func(f *fixture, s *corev1.Secret)
		want   string // in the error; empty: good
	}{
		"good":              {func(*fixture, *corev1.Secret) {}, ""},
		"years later":       {func(f *fixture, _ *corev1.Secret) { f.clock.Step(3 * 365 * 24 * time.Hour) }, ""},
		"secret deleted":    {func(f *fixture, _ *corev1.Secret) { delete(f.objects, "secrets/ns/kept") }, "invalidated"},
		"secret on its way": {func(f *fixture, s *corev1.Secret) { s.DeletionTimestamp = &metav1.Time{Time: f.clock.Now()} }, "invalidated"},
		"another token":     {func(_ *fixture, s *corev1.Secret) { s.Data["token"] = []byte("other") }, "does not match the one in its secret"},
		"no token":          {func(_ *fixture, s *corev1.Secret) { s.Data = nil }, "does not match the one in its secret"},
		"account deleted":   {func(f *fixture, _ *corev1.Secret) { delete(f.objects, "serviceaccounts/ns/web") }, "not found"},
		"another account":   {func(f *fixture, _ *corev1.Secret) { f.objects["serviceaccounts/ns/web"].SetUID("sa-2") }, "does not match claim"},
		"marked invalid":    {func(_ *fixture, s *corev1.Secret) { s.Labels = map[string]string{InvalidSinceLabel: "2026-01-01"} }, "was marked invalid"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			var used []string
			f.config.SecretUsed = func(_ context.Context, namespace, name, day string) { used = append(used, namespace+"/"+name+" "+day) }
			var err error
			if f.Authenticator, err = New(f.config); err != nil {
				t.Fatal(err)
			}
			token, err := f.Tokens.IssueForSecret("ns", "web", "sa-1", "kept")
			if err != nil {
				t.Fatal(err)
			}
			secret := &corev1.Secret{ObjectMeta: meta("ns", "kept", "secret-9"), Type: corev1.SecretTypeServiceAccountToken, Data: map[string][]byte{"token": []byte(token)}}
			f.objects["secrets/ns/kept"] = secret
			test.change(f, secret)
			who, ok, err := f.AuthenticateToken(context.Background(), token)
			if test.want != "" {
				if ok || err == nil || !strings.Contains(err.Error(), test.want) {
					t.Errorf("%v %v, want %q", who, err, test.want)
				}
				return
			}
			if !ok {
				t.Fatal(err)
			}
			got := fmt.Sprint(who.User.GetName(), " ", who.User.GetUID(), " ", []string(who.Audiences), used)
			if d := cmp.Diff("system:serviceaccount:ns:web sa-1 ["+issuer+" k3s] [ns/kept "+f.clock.Now().Format(time.DateOnly)+"]", got); d != "" {
				t.Error(d)
			}
			secret.Labels = map[string]string{LastUsedLabel: f.clock.Now().Format(time.DateOnly)}
			if _, ok, err := f.AuthenticateToken(authenticator.WithAudiences(context.Background(), []string{"elsewhere"}), token); ok || err == nil {
				t.Error("it was good for another audience")
			}
			if _, ok, _ := f.AuthenticateToken(context.Background(), token); !ok || len(used) != 1 {
				t.Errorf("its use was told of again in one day: %v", used)
			}
		})
	}
}

// TestAProjectedTokenOutlivesWhatItsHolderIsTold asks for tokens with the option on.
func TestAProjectedTokenOutlivesWhatItsHolderIsTold(t *testing.T) {
	for name, test := range map[string]struct {
		change   func(*Config)
		kind     string
		seconds  int64
		audience []string
		life     time.Duration
	}{
		"projected":        {func(*Config) {}, "Pod", 3607, nil, 365 * 24 * time.Hour},
		"bounded":          {func(c *Config) { c.MaxTokenLife = 2 * time.Hour }, "Pod", 3607, nil, 2 * time.Hour},
		"switched off":     {func(c *Config) { c.ExtendTokens = false }, "Pod", 3607, nil, 3607 * time.Second},
		"another life":     {func(*Config) {}, "Pod", 3600, nil, time.Hour},
		"another audience": {func(*Config) {}, "Pod", 3607, []string{"vault"}, 3607 * time.Second},
		"not a pod's":      {func(*Config) {}, "", 3607, nil, 3607 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.config.ExtendTokens = true
			test.change(&f.config)
			var err error
			if f.Authenticator, err = New(f.config); err != nil {
				t.Fatal(err)
			}
			r := request("", "", "", test.audience...)
			if test.kind != "" {
				r = request(test.kind, "web-0", "pod-1", test.audience...)
			}
			*r.Spec.ExpirationSeconds = test.seconds
			out, err := f.Tokens.IssueToken(context.Background(), "ns", "web", r)
			if err != nil {
				t.Fatal(err)
			}
			p, err := parse(out.Status.Token)
			if err != nil {
				t.Fatal(err)
			}
			told := out.Status.ExpirationTimestamp.Sub(f.clock.Now())
			got := []time.Duration{p.claims.Expires.time().Sub(f.clock.Now()), told}
			if d := cmp.Diff([]time.Duration{test.life, min(test.life, time.Duration(test.seconds)*time.Second)}, got); d != "" {
				t.Error(d)
			}
			if long := test.life > time.Duration(test.seconds)*time.Second; long != (p.claims.Kubernetes.WarnAfter != 0) {
				t.Errorf("warnafter %v", p.claims.Kubernetes.WarnAfter)
			}
		})
	}
}
