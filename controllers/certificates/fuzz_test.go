package certificates

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"slices"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// FuzzRequest has a stranger's request judged and readied for signing: whatever it says, it gets no more than its signer gives.
func FuzzRequest(f *testing.F) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		f.Fatal(err)
	}
	for _, change := range []func(*x509.CertificateRequest){
		nil,
		func(r *x509.CertificateRequest) { r.DNSNames = []string{"a", "kubernetes"} },
		func(r *x509.CertificateRequest) { r.Subject.Organization = []string{"system:nodes", "system:masters"} },
		func(r *x509.CertificateRequest) { r.Subject.CommonName = "admin" },
	} {
		der, err := x509.CreateCertificateRequest(rand.Reader, nodeRequest(change), key)
		if err != nil {
			f.Fatal(err)
		}
		for _, signer := range []string{clientSigner, servingSigner, certificatesv1.KubeAPIServerClientSignerName} {
			f.Add(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}), signer, "system:node:a", "system:nodes", "digital signature,client auth,server auth")
		}
	}
	f.Add([]byte("-----BEGIN CERTIFICATE REQUEST-----\n-----END CERTIFICATE REQUEST-----\n"), "", "", "", "cert sign")
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	f.Fuzz(func(t *testing.T, request []byte, signer, user, group, usages string) {
		r := &certificatesv1.CertificateSigningRequest{Spec: certificatesv1.CertificateSigningRequestSpec{Request: request, SignerName: signer, Username: user, Groups: []string{group}}}
		for _, u := range strings.Split(usages, ",") {
			r.Spec.Usages = append(r.Spec.Usages, certificatesv1.KeyUsage(u))
		}
		parsed, err := parse(r)
		if err != nil {
			return
		}
		of := strings.HasPrefix(parsed.Subject.CommonName, nodePrefix) && slices.Equal(parsed.Subject.Organization, []string{nodesGroup})
		if v := Judge(r, parsed, node); (v.Approve || v.Subresource != "") && !of {
			t.Errorf("approved as a node's: %v", parsed.Subject)
		} else if v.Approve && (user != parsed.Subject.CommonName || group != nodesGroup) {
			t.Errorf("approved for %q of %q: %v", user, group, parsed.Subject)
		}
		usage, extended, err := usagesFor(r, parsed)
		if err != nil {
			return
		}
		if signer != certificatesv1.KubeAPIServerClientSignerName && !of {
			t.Errorf("signed as a node's: %v", parsed.Subject)
		}
		if usage&^(x509.KeyUsageDigitalSignature|x509.KeyUsageKeyEncipherment) != 0 {
			t.Errorf("signed for %b", usage)
		}
		for _, e := range extended {
			if e != x509.ExtKeyUsageClientAuth && e != x509.ExtKeyUsageServerAuth || (e == x509.ExtKeyUsageServerAuth) != (signer == servingSigner) {
				t.Errorf("%s signed for %v", signer, e)
			}
		}
	})
}
