package certificates

import (
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
)

const (
	nodePrefix = "system:node:"
	nodesGroup = "system:nodes"
)

// Verdict is what Judge finds.
type Verdict struct {
	// Approve says that the request may be approved without asking further.
	Approve bool
	// Subresource, if set, names the permission (create certificatesigningrequests/<it>) that the requester must have.
	Subresource string
	// Deny, if set, is why a requester with that permission is refused all the same.
	Deny    string
	Message string
}

// Judge decides whether a request may be approved without a person. request is what csr carries; node is the Node that it speaks of, if
// there is one. The zero Verdict leaves it to a person.
func Judge(csr *certificatesv1.CertificateSigningRequest, request *x509.CertificateRequest, node *corev1.Node) Verdict {
	if !forNode(request) {
		return Verdict{}
	}
	own := csr.Spec.Username == request.Subject.CommonName && slices.Contains(csr.Spec.Groups, nodesGroup)
	switch csr.Spec.SignerName {
	case certificatesv1.KubeAPIServerClientKubeletSignerName:
		if _, _, err := usagesFor(csr, request); err != nil {
			return Verdict{}
		}
		if own {
			return Verdict{Subresource: "selfnodeclient", Message: "a node renews its own client certificate"}
		}
		v := Verdict{Subresource: "nodeclient", Message: "a node joins"}
		if node != nil {
			// Else a join token would open whatever the nodes may have that are in the cluster already.
			v.Deny = fmt.Sprintf("the cluster has a node named %s already: give another --node-name, or, if this machine takes its place, remove it first with `kubectl delete node %[1]s`", node.Name)
		}
		return v
	case certificatesv1.KubeletServingSignerName:
		if _, _, err := usagesFor(csr, request); err != nil || !own || node == nil || !speaksFor(request, node) {
			return Verdict{}
		}
		return Verdict{Approve: true, Message: "a node's serving certificate for the addresses that its Node object has"}
	}
	return Verdict{}
}

func forNode(request *x509.CertificateRequest) bool {
	return strings.HasPrefix(request.Subject.CommonName, nodePrefix) && len(request.Subject.CommonName) > len(nodePrefix) &&
		slices.Equal(request.Subject.Organization, []string{nodesGroup})
}

func nodeName(request *x509.CertificateRequest) string {
	return strings.TrimPrefix(request.Subject.CommonName, nodePrefix)
}

// speaksFor tells whether every name and address that a request wants to serve as is the node's.
func speaksFor(request *x509.CertificateRequest, node *corev1.Node) bool {
	known := map[string]bool{node.Name: true}
	for _, a := range node.Status.Addresses {
		known[a.Address] = true
	}
	for _, name := range request.DNSNames {
		if !known[name] {
			return false
		}
	}
	for _, ip := range request.IPAddresses {
		if !known[ip.String()] {
			return false
		}
	}
	return true
}

// errOthers says that a request is another signer's.
var errOthers = errors.New("not a signer of this cluster's authority")

// usagesFor checks a request against its signer's rules and says what the certificate may be used for.
func usagesFor(csr *certificatesv1.CertificateSigningRequest, request *x509.CertificateRequest) (x509.KeyUsage, []x509.ExtKeyUsage, error) {
	names := len(request.DNSNames) + len(request.IPAddresses)
	others := len(request.EmailAddresses) + len(request.URIs)
	var want certificatesv1.KeyUsage
	switch csr.Spec.SignerName {
	case certificatesv1.KubeAPIServerClientSignerName:
		want = certificatesv1.UsageClientAuth
	case certificatesv1.KubeAPIServerClientKubeletSignerName:
		want = certificatesv1.UsageClientAuth
		if !forNode(request) || names+others > 0 {
			return 0, nil, fmt.Errorf("signer %s wants organization %q, a common name that starts with %q, and no alternative names", csr.Spec.SignerName, nodesGroup, nodePrefix)
		}
	case certificatesv1.KubeletServingSignerName:
		want = certificatesv1.UsageServerAuth
		if !forNode(request) || names == 0 || others > 0 {
			return 0, nil, fmt.Errorf("signer %s wants organization %q, a common name that starts with %q, and DNS names or addresses only", csr.Spec.SignerName, nodesGroup, nodePrefix)
		}
	default:
		return 0, nil, errOthers
	}
	return keyUsages(csr, want)
}

func keyUsages(csr *certificatesv1.CertificateSigningRequest, want certificatesv1.KeyUsage) (usages x509.KeyUsage, extended []x509.ExtKeyUsage, err error) {
	if !slices.Contains(csr.Spec.Usages, want) {
		return 0, nil, fmt.Errorf("signer %s wants the usage %q among spec.usages", csr.Spec.SignerName, want)
	}
	ofNode := csr.Spec.SignerName != certificatesv1.KubeAPIServerClientSignerName
	if ofNode && !slices.Contains(csr.Spec.Usages, certificatesv1.UsageDigitalSignature) {
		return 0, nil, fmt.Errorf("signer %s wants the usage %q among spec.usages", csr.Spec.SignerName, certificatesv1.UsageDigitalSignature)
	}
	for _, u := range csr.Spec.Usages {
		switch u {
		case certificatesv1.UsageDigitalSignature:
			usages |= x509.KeyUsageDigitalSignature
		case certificatesv1.UsageKeyEncipherment:
			usages |= x509.KeyUsageKeyEncipherment
		case want:
			extended = append(extended, map[certificatesv1.KeyUsage]x509.ExtKeyUsage{
				certificatesv1.UsageClientAuth: x509.ExtKeyUsageClientAuth, certificatesv1.UsageServerAuth: x509.ExtKeyUsageServerAuth,
			}[u])
		default:
			return 0, nil, fmt.Errorf("signer %s does not sign for the usage %q: only %q, %q and %q", csr.Spec.SignerName, u,
				want, certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment)
		}
	}
	return usages, extended, nil
}
