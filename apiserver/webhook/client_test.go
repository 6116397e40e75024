package webhook

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	regv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
)

type caller struct {
	token        string
	certificates int
}

// TestAWebhookIsToldWhoCalls: by a token or a certificate, chosen by where it is.
func TestAWebhookIsToldWhoCalls(t *testing.T) {
	heard := make(chan caller, 1)
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		heard <- caller{r.Header.Get("Authorization"), len(r.TLS.PeerCertificates)}
	}))
	srv.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	srv.StartTLS()
	t.Cleanup(srv.Close)
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})
	secret, err := x509.MarshalPKCS8PrivateKey(srv.TLS.Certificates[0].PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	key := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})
	host := strings.TrimPrefix(srv.URL, "https://")
	for name, c := range map[string]struct {
		config *rest.Config // nil: no credentials at all
		err    error
		want   caller
		fails  string
	}{
		"nobody":             {},
		"by token":           {config: &rest.Config{BearerToken: "sesame"}, want: caller{token: "Bearer sesame"}},
		"by certificate":     {config: &rest.Config{TLSClientConfig: rest.TLSClientConfig{CertData: cert, KeyData: key}}, want: caller{certificates: 1}},
		"nothing known":      {config: &rest.Config{}},
		"a missing file":     {config: &rest.Config{TLSClientConfig: rest.TLSClientConfig{CertFile: "/does/not/exist", KeyFile: "/does/not/exist"}}, fails: "credentials for " + host},
		"a bad kubeconfig":   {config: &rest.Config{}, err: errors.New("no such user"), fails: "credentials for " + host + ": no such user"},
		"two ways in a file": {config: &rest.Config{BearerToken: "a", Username: "b"}, fails: "username/password or bearer token may be set, but not both"},
	} {
		t.Run(name, func(t *testing.T) {
			var credentials func(string) (*rest.Config, error)
			if c.config != nil {
				credentials = func(at string) (*rest.Config, error) {
					if at != host {
						t.Errorf("asked for %s", at)
					}
					return c.config, c.err
				}
			}
			client, err := newClient(regv1.WebhookClientConfig{URL: ptr.To(srv.URL + "/x"), CABundle: cert}, nil, credentials)
			if c.fails != "" {
				if err == nil || !strings.Contains(err.Error(), c.fails) {
					t.Errorf("got %v, want %q", err, c.fails)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer client.close()
			if _, err := client.post(context.Background(), time.Second, []byte("{}")); err != nil {
				t.Fatal(err)
			}
			if got := <-heard; got != c.want {
				t.Errorf("heard %+v, want %+v", got, c.want)
			}
		})
	}
	service := regv1.WebhookClientConfig{Service: &regv1.ServiceReference{Namespace: "ns", Name: "s", Port: ptr.To[int32](8443), Path: ptr.To("p")}}
	asked := ""
	c, err := newClient(service, nil, func(host string) (*rest.Config, error) { asked = host; return &rest.Config{}, nil })
	if err != nil || asked != "s.ns.svc:8443" || c.url.String() != "https://s.ns.svc:8443/p" {
		t.Errorf("a Service: asked for %s, %v", asked, err)
	}
}
