package certificates

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

const (
	clientSigner  = certificatesv1.KubeAPIServerClientKubeletSignerName
	servingSigner = certificatesv1.KubeletServingSignerName
)

func nodeRequest(edit func(*x509.CertificateRequest)) *x509.CertificateRequest {
	r := &x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:node:a", Organization: []string{"system:nodes"}}}
	if edit != nil {
		edit(r)
	}
	return r
}

func csr(signer, user string, groups []string, usages ...certificatesv1.KeyUsage) *certificatesv1.CertificateSigningRequest {
	return &certificatesv1.CertificateSigningRequest{Spec: certificatesv1.CertificateSigningRequestSpec{SignerName: signer, Username: user, Groups: groups, Usages: usages}}
}

func TestJudge(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.4"}}}}
	nodes, joining := []string{"system:nodes"}, []string{"system:bootstrappers"}
	serves := func(ip string) func(*x509.CertificateRequest) {
		return func(r *x509.CertificateRequest) {
			r.IPAddresses = []net.IP{net.ParseIP(ip)}
			r.DNSNames = []string{"a"}
		}
	}
	const sign, clientAuth, serverAuth = certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth, certificatesv1.UsageServerAuth
	for _, c := range []struct {
		what    string
		csr     *certificatesv1.CertificateSigningRequest
		request *x509.CertificateRequest
		node    *corev1.Node
		approve bool
		sub     string
	}{
		{"a node joins with a token", csr(clientSigner, "system:bootstrap:x", joining, sign, clientAuth), nodeRequest(nil), nil, false, "nodeclient"},
		{"a node renews its own", csr(clientSigner, "system:node:a", nodes, sign, clientAuth), nodeRequest(nil), node, false, "selfnodeclient"},
		{"a node asks for another's", csr(clientSigner, "system:node:b", nodes, sign, clientAuth), nodeRequest(nil), node, false, "nodeclient"},
		{"a client certificate with names", csr(clientSigner, "system:node:a", nodes, clientAuth), nodeRequest(serves("192.0.2.4")), node, false, ""},
		{"a client certificate that may also serve", csr(clientSigner, "system:node:a", nodes, clientAuth, serverAuth), nodeRequest(nil), node, false, ""},
		{"an administrator's name", csr(clientSigner, "system:node:a", nodes, clientAuth), &x509.CertificateRequest{Subject: pkix.Name{CommonName: "admin", Organization: []string{"system:masters"}}}, nil, false, ""},
		{"a node's name in a second group", csr(clientSigner, "system:node:a", nodes, clientAuth), nodeRequest(func(r *x509.CertificateRequest) {
			r.Subject.Organization = append(r.Subject.Organization, "system:masters")
		}), nil, false, ""},
		{"a serving certificate for the node's address", csr(servingSigner, "system:node:a", nodes, sign, serverAuth), nodeRequest(serves("192.0.2.4")), node, true, ""},
		{"a serving certificate for a stranger's address", csr(servingSigner, "system:node:a", nodes, sign, serverAuth), nodeRequest(serves("192.0.2.9")), node, false, ""},
		{"a serving certificate before the node is there", csr(servingSigner, "system:node:a", nodes, sign, serverAuth), nodeRequest(serves("192.0.2.4")), nil, false, ""},
		{"a serving certificate asked for by a token", csr(servingSigner, "system:bootstrap:x", joining, sign, serverAuth), nodeRequest(serves("192.0.2.4")), node, false, ""},
		{"another signer", csr("example.org/mine", "system:node:a", nodes, clientAuth), nodeRequest(nil), node, false, ""},
	} {
		got := Judge(c.csr, c.request, c.node)
		if got.Approve != c.approve || got.Subresource != c.sub {
			t.Errorf("%s: approve %v, permission %q; want %v, %q", c.what, got.Approve, got.Subresource, c.approve, c.sub)
		}
	}
}

func TestSigningRules(t *testing.T) {
	const sign = certificatesv1.UsageDigitalSignature
	serving := nodeRequest(func(r *x509.CertificateRequest) { r.DNSNames = []string{"a"} })
	for _, c := range []struct {
		what    string
		csr     *certificatesv1.CertificateSigningRequest
		request *x509.CertificateRequest
		ok      bool
	}{
		{"a user's client certificate", csr(certificatesv1.KubeAPIServerClientSignerName, "u", nil, certificatesv1.UsageClientAuth), &x509.CertificateRequest{Subject: pkix.Name{CommonName: "jane"}}, true},
		{"a user's certificate that serves", csr(certificatesv1.KubeAPIServerClientSignerName, "u", nil, certificatesv1.UsageServerAuth), &x509.CertificateRequest{Subject: pkix.Name{CommonName: "jane"}}, false},
		{"an authority", csr(certificatesv1.KubeAPIServerClientSignerName, "u", nil, certificatesv1.UsageClientAuth, certificatesv1.UsageCertSign), &x509.CertificateRequest{}, false},
		{"a node's serving certificate", csr(servingSigner, "u", nil, sign, certificatesv1.UsageServerAuth), serving, true},
		{"with an RSA key", csr(servingSigner, "u", nil, sign, certificatesv1.UsageKeyEncipherment, certificatesv1.UsageServerAuth), serving, true},
		{"a node's client certificate", csr(clientSigner, "u", nil, sign, certificatesv1.UsageClientAuth), nodeRequest(nil), true},
		{"a node's client certificate that signs nothing", csr(clientSigner, "u", nil, certificatesv1.UsageClientAuth), nodeRequest(nil), false},
		{"a node's serving certificate that signs nothing", csr(servingSigner, "u", nil, certificatesv1.UsageServerAuth), serving, false},
		{"a node's client certificate with a URI", csr(clientSigner, "u", nil, sign, certificatesv1.UsageClientAuth), nodeRequest(func(r *x509.CertificateRequest) { r.URIs = []*url.URL{{Path: "x"}} }), false},
		{"a node's serving certificate with an e-mail", csr(servingSigner, "u", nil, sign, certificatesv1.UsageServerAuth), nodeRequest(func(r *x509.CertificateRequest) { r.DNSNames, r.EmailAddresses = []string{"a"}, []string{"a@b"} }), false},
		{"a node without a name", csr(clientSigner, "u", nil, sign, certificatesv1.UsageClientAuth), nodeRequest(func(r *x509.CertificateRequest) { r.Subject.CommonName = "system:node:" }), false},
		{"a node of no group", csr(clientSigner, "u", nil, sign, certificatesv1.UsageClientAuth), nodeRequest(func(r *x509.CertificateRequest) { r.Subject.Organization = nil }), false},
		{"a user's for code", csr(certificatesv1.KubeAPIServerClientSignerName, "u", nil, certificatesv1.UsageClientAuth, certificatesv1.UsageCodeSigning), &x509.CertificateRequest{}, false},
		{"a node's serving certificate without names", csr(servingSigner, "u", nil, sign, certificatesv1.UsageServerAuth), nodeRequest(nil), false},
		{"a stranger's serving certificate", csr(servingSigner, "u", nil, sign, certificatesv1.UsageServerAuth), &x509.CertificateRequest{DNSNames: []string{"kubernetes"}}, false},
	} {
		if _, _, err := usagesFor(c.csr, c.request); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.what, err)
		}
	}
}

func TestRequestsAreKeptForAWhile(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	at := func(ago time.Duration) metav1.Time { return metav1.NewTime(now.Add(-ago)) }
	request := func(age time.Duration, conditions ...certificatesv1.CertificateSigningRequestCondition) *certificatesv1.CertificateSigningRequest {
		return &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: at(age)},
			Status: certificatesv1.CertificateSigningRequestStatus{Conditions: conditions}}
	}
	is := func(what certificatesv1.RequestConditionType, ago time.Duration) certificatesv1.CertificateSigningRequestCondition {
		return certificatesv1.CertificateSigningRequestCondition{Type: what, LastUpdateTime: at(ago)}
	}
	approved := is(certificatesv1.CertificateApproved, 10*time.Minute)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	certificate := func(until time.Time) []byte {
		template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: until}
		der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
		if err != nil {
			t.Fatal(err)
		}
		return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	}
	with := func(r *certificatesv1.CertificateSigningRequest, certificate []byte) *certificatesv1.CertificateSigningRequest {
		r.Status.Certificate = certificate
		return r
	}
	for _, c := range []struct {
		what string
		csr  *certificatesv1.CertificateSigningRequest
		want time.Duration
	}{
		{"unanswered", request(time.Hour), 23 * time.Hour},
		{"unanswered for too long", request(25 * time.Hour), -time.Hour},
		{"approved, and another's to sign", request(5*time.Hour, approved), forever},
		{"approved and signed", with(request(5*time.Hour, approved), certificate(now.Add(24*time.Hour))), 50 * time.Minute},
		{"signed for less", with(request(5*time.Hour, approved), certificate(now.Add(time.Minute))), time.Minute},
		{"expired", with(request(5*time.Hour, approved), certificate(now.Add(-time.Minute))), -time.Minute},
		{"signed by something unreadable", with(request(5*time.Hour, approved), []byte("x")), 50 * time.Minute},
		{"denied", request(5*time.Hour, is(certificatesv1.CertificateDenied, 2*time.Hour)), -time.Hour},
		{"approved and failed", request(5*time.Hour, approved, is(certificatesv1.CertificateFailed, time.Minute)), 59 * time.Minute},
	} {
		if diff := cmp.Diff(c.want, keep(c.csr, now)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.what, diff)
		}
	}
}

func TestLifeIsBounded(t *testing.T) {
	for _, c := range []struct {
		seconds *int32
		want    time.Duration
	}{{nil, time.Hour}, {ptr.To[int32](1), minLife}, {ptr.To[int32](1200), 20 * time.Minute}, {ptr.To[int32](1 << 30), time.Hour}} {
		request := &certificatesv1.CertificateSigningRequest{Spec: certificatesv1.CertificateSigningRequestSpec{ExpirationSeconds: c.seconds}}
		if got := life(request, time.Hour); got != c.want {
			t.Errorf("asked for %v seconds: %v, want %v", c.seconds, got, c.want)
		}
	}
}
