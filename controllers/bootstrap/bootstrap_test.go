package bootstrap

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	ct "github.com/yare-project/yare/controllers/controllertest"
)

func token(id string, change func(*corev1.Secret)) *corev1.Secret {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "bootstrap-token-" + id}, Type: corev1.SecretTypeBootstrapToken,
		Data: map[string][]byte{"token-id": []byte(id), "token-secret": []byte("0123456789abcdef"), "usage-bootstrap-signing": []byte("true")}}
	if change != nil {
		change(s)
	}
	return s
}

func expires(after time.Duration) func(*corev1.Secret) {
	return func(s *corev1.Secret) { s.Data["expiration"] = []byte(ct.Start.Add(after).Format(time.RFC3339)) }
}

func names(s *ct.Stage) []string {
	var out []string
	for _, secret := range ct.AllIn[*corev1.Secret](s, "kube-system") {
		out = append(out, strings.TrimPrefix(secret.Name, "bootstrap-token-"))
	}
	slices.Sort(out)
	return out
}

func TestExpiredTokensAreDeleted(t *testing.T) {
	s := ct.New(t, CleanerDescriptor())
	opaque := token("opaque", expires(-time.Hour))
	opaque.Type = corev1.SecretTypeOpaque
	s.Put(token("past00", expires(-time.Second)), token("hour00", expires(time.Hour)), token("always", nil), opaque,
		token("broken", func(s *corev1.Secret) { s.Data["expiration"] = []byte("tomorrow") }))
	s.Go()
	left := func() []string { return names(s) }
	ct.UntilEqual(s, "the expired and the broken one go", []string{"always", "hour00", "opaque"}, left)
	s.Settled()
	s.Clock.Step(time.Hour - time.Second)
	s.Settled()
	if d := cmp.Diff([]string{"always", "hour00", "opaque"}, left()); d != "" {
		t.Errorf("a second before it expires: %s", d)
	}
	s.Clock.Step(time.Second)
	ct.UntilEqual(s, "an hour later", []string{"always", "opaque"}, left)
}

func TestTheClustersKubeconfigIsSigned(t *testing.T) {
	s := ct.New(t, SignerDescriptor())
	s.Put(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-public", Name: "cluster-info"}, Data: map[string]string{"kubeconfig": "K", "jws-kubeconfig-gone00": "x", "else": "y"}},
		token("aaaaaa", nil), token("soon00", expires(time.Minute)), token("past00", expires(-time.Minute)),
		token("other0", func(s *corev1.Secret) { s.Data["token-id"] = []byte("zzzzzz") }),
		token("notfor", func(s *corev1.Secret) { delete(s.Data, "usage-bootstrap-signing") }),
		token("empty0", func(s *corev1.Secret) { delete(s.Data, "token-secret") }))
	s.Go()
	info := func() *corev1.ConfigMap { return ct.AllIn[*corev1.ConfigMap](s, "kube-public")[0] }
	keys := func() []string { return slices.Sorted(maps.Keys(info().Data)) }
	ct.UntilEqual(s, "signatures", []string{"else", "jws-kubeconfig-aaaaaa", "jws-kubeconfig-soon00", "kubeconfig"}, keys)
	header, rest, _ := strings.Cut(info().Data["jws-kubeconfig-aaaaaa"], "..")
	mac := hmac.New(sha256.New, []byte("0123456789abcdef"))
	mac.Write([]byte(header + "." + base64.RawURLEncoding.EncodeToString([]byte("K"))))
	plain, _ := base64.RawURLEncoding.DecodeString(header)
	if d := cmp.Diff([]string{`{"alg":"HS256","kid":"aaaaaa"}`, base64.RawURLEncoding.EncodeToString(mac.Sum(nil))}, []string{string(plain), rest}); d != "" {
		t.Error(d)
	}
	before := info().Data["jws-kubeconfig-aaaaaa"]
	ct.Change(s, info(), func(m *corev1.ConfigMap) { m.Data["kubeconfig"] = "L" })
	s.Until("another kubeconfig is signed anew", func() bool { return info().Data["jws-kubeconfig-aaaaaa"] != before }, func() any { return info().Data })
	s.Settled()
	s.Clock.Step(time.Minute)
	ct.UntilEqual(s, "a token expires", []string{"else", "jws-kubeconfig-aaaaaa", "kubeconfig"}, keys)
	s.Settled()
	ct.Delete(s, token("aaaaaa", nil), metav1.DeleteOptions{})
	ct.UntilEqual(s, "a token is deleted", []string{"else", "kubeconfig"}, keys)
}
