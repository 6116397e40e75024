package authn

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"math/big"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/kind"
)

// objects is a Lookup by "resource/namespace/name".
type objects map[string]kind.Object

func (o objects) Get(_ context.Context, r schema.GroupResource, namespace, name string) (kind.Object, error) {
	if obj, ok := o[r.Resource+"/"+namespace+"/"+name]; ok {
		return obj, nil
	}
	return nil, apierrors.NewNotFound(r, name)
}

func meta(namespace, name, uid string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(uid)}
}

const issuer = "https://kubernetes.default.svc.cluster.local"

type fixture struct {
	objects objects
	clock   *clocktesting.FakeClock
	config  Config
	*Authenticator
}

func newFixture(t testing.TB) *fixture {
	t.Helper()
	// Always the same: the processes of a fuzz run must understand each other's tokens.
	key, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), append(make([]byte, 31), 7))
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{clock: clocktesting.NewFakeClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)), objects: objects{
		"serviceaccounts/ns/web": &corev1.ServiceAccount{ObjectMeta: meta("ns", "web", "sa-1")},
		"pods/ns/web-0":          &corev1.Pod{ObjectMeta: meta("ns", "web-0", "pod-1"), Spec: corev1.PodSpec{ServiceAccountName: "web", NodeName: "n1"}},
		"pods/ns/other":          &corev1.Pod{ObjectMeta: meta("ns", "other", "pod-2"), Spec: corev1.PodSpec{ServiceAccountName: "default"}},
		"secrets/ns/s":           &corev1.Secret{ObjectMeta: meta("ns", "s", "secret-1")},
		"nodes//n1":              &corev1.Node{ObjectMeta: meta("", "n1", "node-1")},
	}}
	f.config = Config{TokenKey: key, Issuer: issuer, Audiences: []string{issuer, "k3s"}, Lookup: f.objects, Clock: f.clock, Anonymous: true}
	if f.Authenticator, err = New(f.config); err != nil {
		t.Fatal(err)
	}
	return f
}

func request(kindName, name, uid string, audiences ...string) *authenticationv1.TokenRequest {
	r := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences, ExpirationSeconds: ptr.To[int64](3600)}}
	if kindName != "" {
		r.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: kindName, Name: name, UID: types.UID(uid)}
	}
	return r
}

func (f *fixture) token(t testing.TB, r *authenticationv1.TokenRequest) string {
	t.Helper()
	out, err := f.Tokens.IssueToken(context.Background(), "ns", "web", r)
	if err != nil {
		t.Fatal(err)
	}
	return out.Status.Token
}

func TestAPodsTokenSaysWhoAndWhere(t *testing.T) {
	f := newFixture(t)
	out, err := f.Tokens.IssueToken(context.Background(), "ns", "web", request("Pod", "web-0", "pod-1"))
	if err != nil {
		t.Fatal(err)
	}
	if want := f.clock.Now().Add(time.Hour); !out.Status.ExpirationTimestamp.Time.Equal(want) {
		t.Errorf("expires %s, want %s", out.Status.ExpirationTimestamp, want)
	}
	who, ok, err := f.AuthenticateToken(context.Background(), out.Status.Token)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	extra := who.User.GetExtra()
	if id := extra["authentication.kubernetes.io/credential-id"]; len(id) != 1 || !strings.HasPrefix(id[0], "JTI=") {
		t.Errorf("credential id %q", id)
	}
	delete(extra, "authentication.kubernetes.io/credential-id")
	want := []any{"system:serviceaccount:ns:web", "sa-1",
		[]string{"system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated"},
		map[string][]string{
			"authentication.kubernetes.io/pod-name": {"web-0"}, "authentication.kubernetes.io/pod-uid": {"pod-1"},
			"authentication.kubernetes.io/node-name": {"n1"}, "authentication.kubernetes.io/node-uid": {"node-1"},
		}, authenticator.Audiences{issuer, "k3s"}}
	got := []any{who.User.GetName(), who.User.GetUID(), who.User.GetGroups(), extra, who.Audiences}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestATokenEndsWithWhatItIsBoundTo(t *testing.T) {
	recreated := func(f *fixture, key string, obj kind.Object) { f.objects[key] = obj }
	for name, test := range map[string]struct {
		request *authenticationv1.TokenRequest
		end     func(f *fixture)
		want    string
	}{
		"account deleted": {request("", "", ""), func(f *fixture) { delete(f.objects, "serviceaccounts/ns/web") }, "not found"},
		"account recreated": {request("", "", ""), func(f *fixture) {
			recreated(f, "serviceaccounts/ns/web", &corev1.ServiceAccount{ObjectMeta: meta("ns", "web", "sa-2")})
		}, "does not match claim"},
		"pod deleted":   {request("Pod", "web-0", ""), func(f *fixture) { delete(f.objects, "pods/ns/web-0") }, "invalidated"},
		"pod recreated": {request("Pod", "web-0", "pod-1"), func(f *fixture) { recreated(f, "pods/ns/web-0", &corev1.Pod{ObjectMeta: meta("ns", "web-0", "pod-9")}) }, "does not match claim"},
		"pod long dying": {request("Pod", "web-0", "pod-1"), func(f *fixture) {
			p := &corev1.Pod{ObjectMeta: meta("ns", "web-0", "pod-1")}
			p.DeletionTimestamp = ptr.To(metav1.NewTime(f.clock.Now().Add(-2 * time.Minute)))
			recreated(f, "pods/ns/web-0", p)
		}, "invalidated"},
		"secret deleted": {request("Secret", "s", "secret-1"), func(f *fixture) { delete(f.objects, "secrets/ns/s") }, "invalidated"},
		"node deleted":   {request("Node", "n1", ""), func(f *fixture) { delete(f.objects, "nodes//n1") }, "invalidated"},
		"time is up":     {request("", "", ""), func(f *fixture) { f.clock.Step(time.Hour + 2*time.Minute) }, "has expired"},
		"clock set back": {request("", "", ""), func(f *fixture) { f.clock.SetTime(f.clock.Now().Add(-time.Hour)) }, "not valid yet"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			token := f.token(t, test.request)
			if _, ok, err := f.AuthenticateToken(context.Background(), token); !ok {
				t.Fatal("a good token was refused:", err)
			}
			test.end(f)
			_, ok, err := f.AuthenticateToken(context.Background(), token)
			if ok || err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("ok=%v, error %v, want %q", ok, err, test.want)
			}
			if err != nil && strings.Contains(err.Error(), token) {
				t.Error("the token is in the error")
			}
		})
	}
}

func TestAPodsTokenOutlivesItsNodeObject(t *testing.T) {
	f := newFixture(t)
	token := f.token(t, request("Pod", "web-0", "pod-1"))
	delete(f.objects, "nodes//n1")
	if _, ok, err := f.AuthenticateToken(context.Background(), token); !ok {
		t.Error(err)
	}
}

func TestAudiences(t *testing.T) {
	f := newFixture(t)
	vault := f.token(t, request("", "", "", "vault"))
	if _, ok, err := f.AuthenticateToken(context.Background(), vault); ok || err == nil || !strings.Contains(err.Error(), "audiences") {
		t.Errorf("a token for somebody else was taken: %v", err)
	}
	ctx := authenticator.WithAudiences(context.Background(), authenticator.Audiences{"vault", "consul"})
	who, ok, err := f.AuthenticateToken(ctx, vault)
	if !ok {
		t.Fatal(err)
	}
	if d := cmp.Diff(authenticator.Audiences{"vault"}, who.Audiences); d != "" {
		t.Error(d)
	}
}

func TestTokensThatAreNotIssued(t *testing.T) {
	f := newFixture(t)
	short := request("", "", "")
	short.Spec.ExpirationSeconds = ptr.To[int64](599)
	long := request("", "", "")
	long.Spec.ExpirationSeconds = ptr.To[int64](1<<32 + 1)
	named := request("", "", "")
	named.Name = "other"
	wrongUID := request("", "", "")
	wrongUID.UID = "sa-9"
	for name, test := range map[string]struct {
		account string
		request *authenticationv1.TokenRequest
		is      func(error) bool
		want    string
	}{
		"no account":      {"nobody", request("", "", ""), apierrors.IsNotFound, `serviceaccounts "nobody" not found`},
		"no pod":          {"web", request("Pod", "gone", ""), apierrors.IsNotFound, `pods "gone" not found`},
		"another's pod":   {"web", request("Pod", "other", ""), apierrors.IsBadRequest, "cannot bind token for serviceaccount"},
		"pod uid differs": {"web", request("Pod", "web-0", "pod-0"), apierrors.IsConflict, "does not match the UID in record"},
		"to a deployment": {"web", request("Deployment", "d", ""), apierrors.IsBadRequest, "cannot bind token to object of type"},
		"too short":       {"web", short, apierrors.IsInvalid, "may not specify a duration less than 10 minutes"},
		"too long":        {"web", long, apierrors.IsInvalid, "may not specify a duration larger than 2^32 seconds"},
		"another name":    {"web", named, apierrors.IsInvalid, "must match the service account name"},
		"another uid":     {"web", wrongUID, apierrors.IsConflict, "does not match the UID of the service account"},
	} {
		out, err := f.Tokens.IssueToken(context.Background(), "ns", test.account, test.request)
		if err == nil || !test.is(err) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, %v", name, out, err)
		}
	}
	if d := cmp.Diff(request("Pod", "web-0", ""), func() *authenticationv1.TokenRequest {
		r := request("Pod", "web-0", "")
		f.token(t, r)
		return r
	}()); d != "" {
		t.Errorf("the request was changed: %s", d)
	}
}

func TestALongLifeIsShortened(t *testing.T) {
	f := newFixture(t)
	cfg := f.config
	cfg.MaxTokenLife = 20 * time.Minute
	a, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	out, err := a.Tokens.IssueToken(context.Background(), "ns", "web", request("", "", ""))
	if err != nil || *out.Spec.ExpirationSeconds != 1200 || !out.Status.ExpirationTimestamp.Time.Equal(f.clock.Now().Add(20*time.Minute)) {
		t.Errorf("%+v %v", out, err)
	}
}

func TestForgedTokens(t *testing.T) {
	f := newFixture(t)
	good := f.token(t, request("", "", ""))
	parts := strings.Split(good, ".")
	stranger, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	claims := Claims{Issuer: issuer, Subject: "system:serviceaccount:ns:web", Audience: audience{issuer}, Expires: timestamp(f.clock.Now().Unix() + 3600),
		Kubernetes: private{Namespace: "ns", ServiceAccount: bound{"web", "sa-1"}}}
	signed := func(key crypto.Signer, change func(*Claims)) string {
		c := claims
		change(&c)
		out, err := sign(rand.Reader, key, c)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	ours := f.config.TokenKey
	head := func(h string) string { return b64.EncodeToString([]byte(h)) }
	kid, _ := keyID(ours.Public())
	signature, _ := b64.DecodeString(parts[2])
	// (r, n-s) is as valid as (r, s): it says the same, and must not be mistaken for another token's.
	other := append([]byte{}, signature...)
	other[40] ^= 1
	for name, token := range map[string]string{
		"signed by a stranger":      signed(stranger, func(*Claims) {}),
		"signature of none":         head(`{"alg":"none"}`) + "." + parts[1] + ".",
		"algorithm none":            head(`{"alg":"none","kid":"`+kid+`"}`) + "." + parts[1] + "." + parts[2],
		"symmetric key":             head(`{"alg":"HS256","kid":"`+kid+`"}`) + "." + parts[1] + "." + parts[2],
		"critical extension":        head(`{"alg":"ES256","kid":"`+kid+`","crit":["b64"]}`) + "." + parts[1] + "." + parts[2],
		"no key id":                 head(`{"alg":"ES256"}`) + "." + parts[1] + "." + parts[2],
		"body of another":           parts[0] + "." + strings.Split(signed(ours, func(c *Claims) { c.Subject = "x" }), ".")[1] + "." + parts[2],
		"signature changed":         parts[0] + "." + parts[1] + "." + b64.EncodeToString(other),
		"signature short":           parts[0] + "." + parts[1] + "." + b64.EncodeToString(signature[:63]),
		"signature of zeros":        parts[0] + "." + parts[1] + "." + b64.EncodeToString(make([]byte, 64)),
		"another issuer":            signed(ours, func(c *Claims) { c.Issuer = "https://evil.example" }),
		"without end":               signed(ours, func(c *Claims) { c.Expires = 0 }),
		"subject is another":        signed(ours, func(c *Claims) { c.Subject = "system:serviceaccount:kube-system:web" }),
		"account in another's name": signed(ours, func(c *Claims) { c.Kubernetes.ServiceAccount.Name = "admin" }),
		"no audience":               signed(ours, func(c *Claims) { c.Audience = nil }),
		"too many parts":            good + ".x",
		"trailing bits":             good[:len(good)-1] + string(good[len(good)-1]+1),
		"huge":                      strings.Repeat("a", 1<<20),
		"dots":                      "..", "empty": "",
	} {
		if who, ok, _ := f.AuthenticateToken(context.Background(), token); ok {
			t.Errorf("%s: taken for %v", name, who.User)
		}
	}
	if _, ok, err := f.AuthenticateToken(context.Background(), signed(ours, func(*Claims) {})); !ok {
		t.Errorf("the unforged one was refused, so this test shows nothing: %v", err)
	}
}

func TestTheKeyBeforeIsStillAccepted(t *testing.T) {
	f := newFixture(t)
	old := f.token(t, request("", "", ""))
	next, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	cfg := f.config
	cfg.TokenKeys, cfg.TokenKey = []crypto.PublicKey{f.config.TokenKey.Public()}, next
	rotated, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok, err := rotated.AuthenticateToken(context.Background(), old); !ok {
		t.Error(err)
	}
}

func TestDiscoveryDocumentsAreEnoughToCheckAToken(t *testing.T) {
	f := newFixture(t)
	handler, err := Discovery(f.config, "")
	if err != nil {
		t.Fatal(err)
	}
	get := func(path string, into any) {
		t.Helper()
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		if w.Code != 200 || json.Unmarshal(w.Body.Bytes(), into) != nil {
			t.Fatalf("%s: %d %s", path, w.Code, w.Body)
		}
	}
	var metadata struct {
		Issuer string `json:"issuer"`
		Keys   string `json:"jwks_uri"`
	}
	get(OIDCConfigurationPath, &metadata)
	if metadata.Issuer != issuer || metadata.Keys != issuer+"/openid/v1/jwks" {
		t.Errorf("%+v", metadata)
	}
	var set struct{ Keys []map[string]string }
	get(OIDCKeysPath, &set)
	token := f.token(t, request("", "", ""))
	p, err := parse(token)
	if err != nil || len(set.Keys) != 1 {
		t.Fatal(err, set)
	}
	k := set.Keys[0]
	x, _ := b64.DecodeString(k["x"])
	y, _ := b64.DecodeString(k["y"])
	public := &ecdsa.PublicKey{Curve: elliptic.P256(), X: new(big.Int).SetBytes(x), Y: new(big.Int).SetBytes(y)}
	if err := p.verify(map[string]crypto.PublicKey{k["kid"]: public}); err != nil {
		t.Error(err)
	}
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequest("POST", OIDCKeysPath, nil))
	if w.Code != 405 {
		t.Errorf("POST: %d", w.Code)
	}
}

func FuzzToken(f *testing.F) {
	fix := newFixture(f)
	f.Add(fix.token(f, request("Pod", "web-0", "pod-1")))
	f.Add(`eyJhbGciOiJFUzI1NiJ9.eyJleHAiOjFlMzA4fQ.AA`)
	f.Add("abcdef.0123456789abcdef")
	f.Fuzz(func(t *testing.T, token string) {
		p, err := parse(token)
		if err == nil && p.signed == token {
			t.Error("a token without a signature")
		}
		if who, ok, _ := fix.AuthenticateToken(context.Background(), token); ok {
			if q, err := parse(token); err != nil || q.verify(keysOf(fix.config)) != nil {
				t.Errorf("%q became %v", token, who.User)
			}
		}
	})
}
