package kubeletapi_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/rest"

	"github.com/yare-project/yare/node/kubeletapi"
)

// view holds pods that tests put in.
type view struct {
	mu   sync.Mutex
	pods []*corev1.Pod
}

func (v *view) put(p *corev1.Pod) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.pods = append(v.pods, p)
}

func (v *view) Pods() []*corev1.Pod {
	v.mu.Lock()
	defer v.mu.Unlock()
	return append([]*corev1.Pod(nil), v.pods...)
}

func (v *view) Pod(ns, name string) (*corev1.Pod, bool) {
	for _, p := range v.Pods() {
		if p.Namespace == ns && p.Name == name {
			return p, true
		}
	}
	return nil, false
}

func pod(name string, containers ...corev1.ContainerStatus) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name + "-uid")}}
	for _, c := range containers {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: c.Name})
	}
	p.Status.ContainerStatuses = containers
	return p
}

func runningStatus(name, id string) corev1.ContainerStatus {
	return corev1.ContainerStatus{Name: name, ContainerID: "containerd://" + id, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}}
}

// authority signs the certificates of one test.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test CA"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, key := a.sign(tmpl, nil)
	a.key = key
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	a.cert, a.pool = cert, x509.NewCertPool()
	a.pool.AddCert(cert)
	return a
}

func (a *authority) sign(tmpl, parent *x509.Certificate) ([]byte, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	tmpl.NotBefore, tmpl.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	signer := a.key
	if parent == nil {
		parent, signer = tmpl, key
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, parent, &key.PublicKey, signer)
	if err != nil {
		a.t.Fatal(err)
	}
	return der, key
}

func (a *authority) server() tls.Certificate {
	der, key := a.sign(&x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "node"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}, a.cert)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func (a *authority) client(user string, groups ...string) tls.Certificate {
	der, key := a.sign(&x509.Certificate{SerialNumber: big.NewInt(3), Subject: pkix.Name{CommonName: user, Organization: groups}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, a.cert)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// api is a served API with an all-powerful client.
type api struct {
	t    *testing.T
	url  string
	ca   *authority
	view *view
}

// allowAll lets every authenticated user do everything.
type allowAll struct{}

func (allowAll) Authorize(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
	return authorizer.DecisionAllow, "", nil
}

func serve(t *testing.T, c kubeletapi.Config) *api {
	t.Helper()
	a := &api{t: t, ca: newAuthority(t), view: &view{}}
	c.NodeName, c.View, c.DataDir = "n1", a.view, t.TempDir()
	c.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
	if c.Authenticator == nil {
		c.Authenticator = kubeletapi.Certificates(func() *x509.CertPool { return a.ca.pool })
	}
	if c.Authorizer == nil {
		c.Authorizer = allowAll{}
	}
	s, err := kubeletapi.New(c)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	a.url = "https://" + l.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, l, &tls.Config{Certificates: []tls.Certificate{a.ca.server()}}) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return a
}

func (a *api) http(cert tls.Certificate) *http.Client {
	tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: a.ca.pool, Certificates: []tls.Certificate{cert}}}
	a.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// do sends one request as admin and returns status and body.
func (a *api) do(method, path string) (int, string) {
	a.t.Helper()
	return a.doAs(a.ca.client("admin"), method, path)
}

func (a *api) doAs(cert tls.Certificate, method, path string) (int, string) {
	a.t.Helper()
	req, err := http.NewRequest(method, a.url+path, nil)
	if err != nil {
		a.t.Fatal(err)
	}
	resp, err := a.http(cert).Do(req)
	if err != nil {
		a.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		a.t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

func (a *api) rest() *rest.Config {
	a.t.Helper()
	cert := a.ca.client("admin")
	key, err := x509.MarshalECPrivateKey(cert.PrivateKey.(*ecdsa.PrivateKey))
	if err != nil {
		a.t.Fatal(err)
	}
	encode := func(kind string, der []byte) []byte { return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}) }
	return &rest.Config{Host: a.url, TLSClientConfig: rest.TLSClientConfig{
		CAData: encode("CERTIFICATE", a.ca.cert.Raw), CertData: encode("CERTIFICATE", cert.Certificate[0]), KeyData: encode("EC PRIVATE KEY", key),
	}}
}
