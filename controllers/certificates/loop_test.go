package certificates

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"net"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yare-project/yare/controllers/controllertest"
)

// stamp signs everything with the same word.
type stamp struct{}

func (stamp) SignRequest(*x509.CertificateRequest, x509.KeyUsage, []x509.ExtKeyUsage, time.Duration) ([]byte, error) {
	return []byte("signed"), nil
}

// TestARequestThatCameBeforeItsNode: the watches of requests and of nodes are two, and either may be ahead.
func TestARequestThatCameBeforeItsNode(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, nodeRequest(func(r *x509.CertificateRequest) { r.IPAddresses = []net.IP{net.ParseIP("192.0.2.4")} }), key)
	if err != nil {
		t.Fatal(err)
	}
	early := csr(servingSigner, "system:node:a", []string{"system:nodes"}, certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth)
	early.Name, early.Spec.Request = "early", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	s := controllertest.New(t, Descriptor(Config{Signer: stamp{}}))
	s.Put(early, node)
	s.Go()
	s.Settled()
	answered := func() []certificatesv1.CertificateSigningRequest {
		var out []certificatesv1.CertificateSigningRequest
		for _, r := range controllertest.AllIn[*certificatesv1.CertificateSigningRequest](s, "") {
			if len(r.Status.Conditions) > 0 {
				out = append(out, *r)
			}
		}
		return out
	}
	if got := answered(); len(got) > 0 {
		t.Fatalf("a request for an address that the node does not have was answered: %v", got)
	}
	controllertest.Change(s, node, func(n *corev1.Node) {
		n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.4"}}
	})
	s.Until("the request is answered once the node has its address", func() bool {
		got := answered()
		return len(got) == 1 && string(got[0].Status.Certificate) == "signed"
	}, func() any { return answered() })
}

// TestATokenMakesNewNodesOnly: who holds a join token must not become a node that is there already.
func TestATokenMakesNewNodesOnly(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	sign := []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth}
	byToken := csr(clientSigner, "system:bootstrap:x", []string{"system:bootstrappers"}, sign...)
	own := csr(clientSigner, "system:node:a", []string{"system:nodes"}, sign...)
	for what, c := range map[string]struct {
		csr    *certificatesv1.CertificateSigningRequest
		node   *corev1.Node
		denied bool
	}{
		"a new node":                   {byToken, nil, false},
		"a node that is there":         {byToken, node, true},
		"a node that renews its own":   {own, node, false},
		"a node that was just deleted": {own, nil, false},
	} {
		if got := Judge(c.csr, nodeRequest(nil), c.node); (got.Deny != "") != c.denied || got.Subresource == "" {
			t.Errorf("%s: %+v", what, got)
		}
	}
}
