package pki

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/tools/clientcmd"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/yare-project/yare/internal/kubeconfig"
)

var quiet = slog.New(slog.DiscardHandler)

func open(t *testing.T, dir string, clk *clocktesting.FakeClock) *PKI {
	t.Helper()
	p, err := Open(Config{Dir: dir, Clock: clk, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func leaf(t *testing.T, p *PKI, spec LeafSpec) *Leaf {
	t.Helper()
	l, err := p.Leaf(spec)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func certificate(t *testing.T, l *Leaf) *x509.Certificate {
	t.Helper()
	c, err := l.Certificate()
	if err != nil {
		t.Fatal(err)
	}
	return c.Leaf
}

func TestEverythingSurvivesARestart(t *testing.T) {
	dir, clk := t.TempDir(), clocktesting.NewFakeClock(time.Now())
	first := open(t, dir, clk)
	serial := certificate(t, leaf(t, first, Admin())).SerialNumber
	second := open(t, dir, clk)
	if !bytes.Equal(first.Cluster.CertPEM(), second.Cluster.CertPEM()) || !bytes.Equal(first.FrontProxy.CertPEM(), second.FrontProxy.CertPEM()) {
		t.Error("an authority changed")
	}
	if bytes.Equal(first.Cluster.CertPEM(), first.FrontProxy.CertPEM()) {
		t.Error("the front proxy's authority must be apart from the cluster's")
	}
	if !first.TokenKey.Equal(second.TokenKey) {
		t.Error("the token key changed")
	}
	if got := certificate(t, leaf(t, second, Admin())).SerialNumber; got.Cmp(serial) != 0 {
		t.Error("the admin certificate was issued anew without need")
	}
}

func TestNobodyElseCanReadKeys(t *testing.T) {
	dir, clk := t.TempDir(), clocktesting.NewFakeClock(time.Now())
	leaf(t, open(t, dir, clk), Admin())
	if err := os.Chmod(filepath.Join(dir, "ca.pem"), 0o644); err != nil {
		t.Fatal(err)
	}
	open(t, dir, clk)
	files, _ := filepath.Glob(filepath.Join(dir, "*"))
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		info, _ := os.Stat(f)
		if strings.Contains(string(data), "PRIVATE KEY") && info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %o", f, info.Mode().Perm())
		}
		if strings.HasPrefix(filepath.Base(f), ".") {
			t.Errorf("%s was left behind", f)
		}
	}
}

func TestACertificateIsRenewedBeforeItEnds(t *testing.T) {
	clk := clocktesting.NewFakeClock(time.Now())
	p := open(t, t.TempDir(), clk)
	l := leaf(t, p, KubeletClient())
	renewed := 0
	l.OnRenew(func(*Leaf) { renewed++ })
	first := certificate(t, l)
	clk.Step(240 * 24 * time.Hour)
	if c := certificate(t, l); c.SerialNumber.Cmp(first.SerialNumber) != 0 {
		t.Error("renewed although more than a third of its life is left")
	}
	clk.Step(10 * 24 * time.Hour)
	second := certificate(t, l)
	if second.SerialNumber.Cmp(first.SerialNumber) == 0 || !second.NotAfter.After(first.NotAfter) {
		t.Errorf("not renewed: ends %s, was %s", second.NotAfter, first.NotAfter)
	}
	if renewed != 1 {
		t.Errorf("OnRenew was called %d times", renewed)
	}
	onDisk, err := os.ReadFile(l.Path())
	if err != nil {
		t.Fatal(err)
	}
	certs, err := decodeCerts(onDisk)
	if err != nil || certs[0].SerialNumber.Cmp(second.SerialNumber) != 0 {
		t.Errorf("the file has another certificate: %v", err)
	}
}

func TestRunRenewsWithoutAnyHandshake(t *testing.T) {
	clk := clocktesting.NewFakeClock(time.Now())
	p := open(t, t.TempDir(), clk)
	renewed := make(chan struct{}, 1)
	leaf(t, p, Admin()).OnRenew(func(*Leaf) { renewed <- struct{}{} })
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- p.Run(ctx) }()
	for {
		select {
		case <-renewed:
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
			return
		default:
			if clk.HasWaiters() { // Run waits: a day goes by
				clk.Step(24 * time.Hour)
			}
			runtime.Gosched()
		}
	}
}

func TestACertificateFollowsWhatItMustSay(t *testing.T) {
	dir, clk := t.TempDir(), clocktesting.NewFakeClock(time.Now())
	p := open(t, dir, clk)
	ip := net.ParseIP("10.43.0.1")
	before := certificate(t, leaf(t, p, APIServer("cluster.local", nil, nil)))
	after := certificate(t, leaf(t, p, APIServer("cluster.local", []string{"yare.example"}, []net.IP{ip})))
	if before.SerialNumber.Cmp(after.SerialNumber) == 0 {
		t.Fatal("a new address did not lead to a new certificate")
	}
	for _, name := range []string{"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local", "localhost", "127.0.0.1", "10.43.0.1", "yare.example"} {
		if err := after.VerifyHostname(name); err != nil {
			t.Error(err)
		}
	}
	if err := after.VerifyHostname("evil.example"); err == nil {
		t.Error("valid for a foreign name")
	}
	if _, err := after.Verify(x509.VerifyOptions{Roots: p.FrontProxy.Pool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); err == nil {
		t.Error("the front proxy's authority vouches for it")
	}
}

func TestWhoACertificateIs(t *testing.T) {
	p := open(t, t.TempDir(), clocktesting.NewFakeClock(time.Now()))
	for _, test := range []struct {
		spec  LeafSpec
		user  string
		group []string
		usage []x509.ExtKeyUsage
	}{
		{Admin(), "system:admin", []string{"system:masters"}, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}},
		{NodeClient("n1"), "system:node:n1", []string{"system:nodes"}, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}},
		{NodeServing("n1", nil, nil), "system:node:n1", []string{"system:nodes"}, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}},
	} {
		c := certificate(t, leaf(t, p, test.spec))
		if d := cmp.Diff([]any{test.user, test.group, test.usage}, []any{c.Subject.CommonName, c.Subject.Organization, c.ExtKeyUsage}); d != "" {
			t.Errorf("%s: %s", test.spec.Name, d)
		}
		if c.IsCA {
			t.Errorf("%s is an authority", test.spec.Name)
		}
	}
	if _, err := p.Leaf(LeafSpec{Name: "../../etc/passwd", User: "x"}); err == nil {
		t.Error("a certificate's name escaped the folder")
	}
}

func TestDamagedFiles(t *testing.T) {
	otherKey, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	foreign, _ := encodeKey(otherKey)
	for name, test := range map[string]struct {
		file   string
		change func([]byte) []byte
		want   string
	}{
		"empty authority":       {"ca.pem", func([]byte) []byte { return nil }, "no PEM certificate"},
		"garbage":               {"ca.pem", func([]byte) []byte { return []byte("garbage") }, "no PEM certificate"},
		"authority without key": {"ca.pem", func(b []byte) []byte { return b[:bytes.Index(b, []byte("-----BEGIN PRIVATE"))] }, "no PEM private key"},
		"foreign key":           {"ca.pem", func(b []byte) []byte { return append(b[:bytes.Index(b, []byte("-----BEGIN PRIVATE"))], foreign...) }, "belongs to another certificate"},
		"leaf as authority":     {"ca.pem", nil, "not an authority"},
		"token key cut":         {"service-account.key", func(b []byte) []byte { return b[:len(b)/2] }, "no PEM private key"},
		"huge":                  {"service-account.key", func([]byte) []byte { return make([]byte, 2<<20) }, "more than"},
	} {
		t.Run(name, func(t *testing.T) {
			dir, clk := t.TempDir(), clocktesting.NewFakeClock(time.Now())
			l := leaf(t, open(t, dir, clk), Admin())
			path := filepath.Join(dir, test.file)
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if test.change == nil {
				data, _ = os.ReadFile(l.Path())
			} else {
				data = test.change(data)
			}
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
			_, err = Open(Config{Dir: dir, Clock: clk, Log: quiet})
			if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), test.file[:2]) {
				t.Errorf("got %v, want one line with %q", err, test.want)
			}
			after, _ := os.ReadFile(path)
			if !bytes.Equal(after, data) {
				t.Error("the damaged file was touched")
			}
		})
	}
}

func TestADamagedLeafIsIssuedAnew(t *testing.T) {
	dir, clk := t.TempDir(), clocktesting.NewFakeClock(time.Now())
	p := open(t, dir, clk)
	path := leaf(t, p, Admin()).Path()
	if err := os.WriteFile(path, []byte("garbage"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := certificate(t, leaf(t, p, Admin())).Subject.CommonName; got != "system:admin" {
		t.Errorf("got %q", got)
	}
}

func TestAnOldClockIsRefused(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pki")
	_, err := Open(Config{Dir: dir, Clock: clocktesting.NewFakeClock(time.Unix(0, 0)), Log: quiet})
	if err == nil || !strings.Contains(err.Error(), "1970-01-01") || !strings.Contains(err.Error(), "set the clock") {
		t.Errorf("got %v", err)
	}
	if _, statErr := os.Stat(dir); !os.IsNotExist(statErr) {
		t.Error("something was written all the same")
	}
}

func TestPin(t *testing.T) {
	clk := clocktesting.NewFakeClock(time.Now())
	ours, theirs := open(t, t.TempDir(), clk), open(t, t.TempDir(), clk)
	pin := ours.Cluster.Pin()
	mixed := append(theirs.Cluster.CertPEM(), ours.Cluster.CertPEM()...)
	got, err := CheckPin(mixed, pin)
	if err != nil || !bytes.Equal(got, ours.Cluster.CertPEM()) {
		t.Errorf("a pinned authority was not found alone: %v", err)
	}
	for name, data := range map[string][]byte{"another cluster": theirs.Cluster.CertPEM(), "nothing": nil, "garbage": []byte("x")} {
		if _, err := CheckPin(data, pin); err == nil {
			t.Errorf("%s passed", name)
		}
	}
	l := leaf(t, ours, Admin())
	c, _, err := l.PEM()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := CheckPin(c, Pin(certificate(t, l))); err == nil {
		t.Error("a certificate that is no authority passed")
	}
}

func TestKubeconfigWorks(t *testing.T) {
	p, err := Open(Config{Dir: t.TempDir(), Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{
		TLSConfig: ServerTLS(leaf(t, p, APIServer("cluster.local", nil, nil))),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, r.TLS.PeerCertificates[0].Subject.CommonName+" "+r.Proto)
		}),
	}
	go server.ServeTLS(listener, "", "")
	defer server.Close()
	cert, key, err := leaf(t, p, Admin()).PEM()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := kubeconfig.Write(path, kubeconfig.Entry{Name: "test", Server: "https://" + listener.Addr().String(), CA: p.Cluster.CertPEM(), Cert: cert, Key: key}); err != nil {
		t.Fatal(err)
	}
	if info, _ := os.Stat(path); info.Mode().Perm() != 0o600 {
		t.Errorf("mode %o", info.Mode().Perm())
	}
	rest, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(rest.CertData, rest.KeyData)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(rest.CAData)
	client := &http.Client{Transport: &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}}}}
	answer, err := client.Get(rest.Host)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, _ := io.ReadAll(answer.Body)
	if got := string(body); got != "system:admin HTTP/2.0" {
		t.Errorf("got %q", got)
	}
}

func TestOneRenewalForManyHandshakes(t *testing.T) {
	clk := clocktesting.NewFakeClock(time.Now())
	p := open(t, t.TempDir(), clk)
	l := leaf(t, p, Admin())
	renewed := 0
	l.OnRenew(func(*Leaf) { renewed++ })
	clk.Step(300 * 24 * time.Hour)
	var group sync.WaitGroup
	for range 20 {
		group.Go(func() {
			if _, err := l.Certificate(); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if renewed != 1 {
		t.Errorf("renewed %d times", renewed)
	}
}

func TestAnOldCertificateServesWhileRenewalFails(t *testing.T) {
	clk := clocktesting.NewFakeClock(time.Now())
	p := open(t, t.TempDir(), clk)
	fail := errors.New("the server is away")
	issuer := &flaky{Issuer: p.Cluster}
	l, err := OpenLeaf(LeafConfig{Config: Config{Dir: t.TempDir(), Clock: clk, Log: quiet}, Spec: NodeClient("n"), Issuer: issuer, Roots: p.Cluster.Pool()})
	if err != nil {
		t.Fatal(err)
	}
	issuer.err = fail
	clk.Step(300 * 24 * time.Hour)
	if _, err := l.Certificate(); err != nil {
		t.Errorf("a valid certificate was withheld: %v", err)
	}
	clk.Step(100 * 24 * time.Hour)
	if _, err := l.Certificate(); !errors.Is(err, fail) {
		t.Errorf("got %v for an expired certificate", err)
	}
}

type flaky struct {
	Issuer
	err error
}

func (f *flaky) Issue(spec LeafSpec, key crypto.Signer) ([]byte, error) {
	if f.err != nil {
		return nil, f.err
	}
	return f.Issuer.Issue(spec, key)
}
