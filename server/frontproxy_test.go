package server_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/yare-project/yare/server"
)

// proxyFiles makes an authority and a client certificate of it for a front proxy.
func proxyFiles(t *testing.T, name string) (ca, cert, key string) {
	t.Helper()
	dir := t.TempDir()
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	template := func(name string, authority bool) *x509.Certificate {
		return &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
			IsCA: authority, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	}
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	root := template("proxies", true)
	rootDER, err := x509.CreateCertificate(rand.Reader, root, root, &caKey.PublicKey, caKey)
	must(err)
	leafKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	leafDER, err := x509.CreateCertificate(rand.Reader, template(name, false), root, &leafKey.PublicKey, caKey)
	must(err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(leafKey)
	must(err)
	return write("ca.crt", "CERTIFICATE", rootDER), write("proxy.crt", "CERTIFICATE", leafDER), write("proxy.key", "PRIVATE KEY", keyDER)
}

// With kube-apiserver's flags, a front proxy of somebody else's authority speaks for users, in headers of its own, and servers behind this one are shown, and
// told to believe, the given certificate.
func TestFrontProxyOfOnesOwn(t *testing.T) {
	ca, cert, key := proxyFiles(t, "doorman")
	a := startAggregated(t, func(c *server.Config) {
		c.FrontProxy = server.FrontProxy{ProxyClientCertFile: cert, ProxyClientKeyFile: key, RequestheaderClientCAFile: ca, RequestheaderAllowedNames: []string{"doorman"},
			RequestheaderUsernameHeaders: []string{"X-Door-User"}, RequestheaderGroupHeaders: []string{"X-Door-Group"}}
	})
	facts, err := a.api.CoreV1().ConfigMaps("kube-system").Get(t.Context(), "extension-apiserver-authentication", metav1.GetOptions{})
	if err != nil || facts.Data["requestheader-username-headers"] != `["X-Door-User"]` || facts.Data["requestheader-uid-headers"] != `["X-Remote-Uid"]` {
		t.Errorf("published: %v, %v", facts.Data, err)
	}
	if n := strings.Count(facts.Data["requestheader-client-ca-file"], "BEGIN CERTIFICATE"); n != 2 {
		t.Errorf("%d authorities are published, want the cluster's and the given", n)
	}
	a.register()
	a.condition(flunderService, "True", "Passed") // the other server took the certificate
	if common := a.flunders.shown.Load(); common != "doorman" {
		t.Errorf("the other server was shown the certificate of %v", common)
	}

	config := rest.AnonymousClientConfig(a.rest)
	config.CertFile, config.KeyFile = cert, key
	config.Wrap(func(rt http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			r = r.Clone(r.Context())
			r.Header.Set("X-Door-User", "jane")
			r.Header.Set("X-Door-Group", "devs")
			return rt.RoundTrip(r)
		})
	})
	proxied, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	self, err := proxied.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil || self.Status.UserInfo.Username != "jane" || !slices.Contains(self.Status.UserInfo.Groups, "devs") {
		t.Errorf("who am I: %+v, %v", self, err)
	}
}

func TestFrontProxyFlagsThatCannotWork(t *testing.T) {
	_, cert, _ := proxyFiles(t, "doorman")
	for want, f := range map[string]server.FrontProxy{
		"--proxy-client-key-file":        {ProxyClientCertFile: cert},
		"--requestheader-client-ca-file": {RequestheaderAllowedNames: []string{"doorman"}},
	} {
		c := &server.Config{DataDir: t.TempDir(), NodeName: "n", FrontProxy: f}
		if err := c.Complete(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v", f, err)
		}
	}
}
