package authn

import (
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	stdasn1 "encoding/asn1"
	"math/big"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/asn1"
)

// TestACertificateMayHaveAUID signs certificates whose subjects have Kubernetes' attribute for a uid.
func TestACertificateMayHaveAUID(t *testing.T) {
	key := newKey(t)
	authority := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	signed := func(template *x509.Certificate) *x509.Certificate {
		t.Helper()
		der, err := x509.CreateCertificate(rand.Reader, template, authority, key.Public(), key)
		if err != nil {
			t.Fatal(err)
		}
		c, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	authority = signed(authority)
	pool := x509.NewCertPool()
	pool.AddCert(authority)
	a, err := New(Config{ClientCA: pool, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	uid := func(values ...any) []pkix.AttributeTypeAndValue {
		var out []pkix.AttributeTypeAndValue
		for _, v := range values {
			out = append(out, pkix.AttributeTypeAndValue{Type: asn1.X509UID(), Value: v})
		}
		return out
	}
	for name, test := range map[string]struct {
		names []pkix.AttributeTypeAndValue
		uid   string
		err   string
	}{
		"none":              {nil, "", ""},
		"one":               {uid("7f3a"), "7f3a", ""},
		"another attribute": {[]pkix.AttributeTypeAndValue{{Type: stdasn1.ObjectIdentifier{0, 9, 2342, 19200300, 100, 1, 1}, Value: "7f3a"}}, "", ""},
		"two":               {uid("a", "b"), "", "is not one text"},
		"an empty one":      {uid(""), "", "is not one text"},
	} {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequest("GET", "https://yare/api", nil)
			r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{signed(&x509.Certificate{SerialNumber: big.NewInt(2), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
				Subject:     pkix.Name{CommonName: "jane", Organization: []string{"dev"}, ExtraNames: append(test.names, pkix.AttributeTypeAndValue{Type: stdasn1.ObjectIdentifier{2, 5, 4, 3}, Value: "jane"})},
				ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})}}
			who, ok, err := a.AuthenticateRequest(r)
			if test.err != "" {
				if ok || err == nil || !strings.Contains(err.Error(), test.err) {
					t.Errorf("%v %v", who, err)
				}
				return
			}
			if !ok {
				t.Fatal(err)
			}
			if d := cmp.Diff([]string{"jane", test.uid}, []string{who.User.GetName(), who.User.GetUID()}); d != "" {
				t.Error(d)
			}
			if id := who.User.GetExtra()["authentication.kubernetes.io/credential-id"]; len(id) != 1 || !strings.HasPrefix(id[0], "X509SHA256=") {
				t.Errorf("credential id %q", id)
			}
		})
	}
}
