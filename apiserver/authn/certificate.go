package authn

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/apis/asn1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/utils/clock"
)

// uidAttribute is the object identifier of a user's uid (k8s.io/apimachinery/pkg/apis/asn1).
var uidAttribute = asn1.X509UID()

// certificates authenticates by client certificate: the common name is the user, the organizations are the groups, and
// there may be a uid.
type certificates struct {
	chains *chains
}

func newCertificates(roots *x509.CertPool, clock clock.PassiveClock) *certificates {
	return &certificates{chains: newChains(roots, clock)}
}

func (c *certificates) AuthenticateRequest(req *http.Request) (*authenticator.Response, bool, error) {
	if req.TLS == nil || len(req.TLS.PeerCertificates) == 0 {
		return nil, false, nil
	}
	leaf := req.TLS.PeerCertificates[0]
	good, err := c.chains.verify(req.TLS.PeerCertificates)
	if err == nil {
		err = good.nobody
	}
	if err != nil {
		return nil, false, fmt.Errorf("client certificate of %q is not accepted: %w", leaf.Subject.CommonName, err)
	}
	return good.who, true, nil
}

// userOf is whom a good certificate names.
func userOf(leaf *x509.Certificate, fingerprint [sha256.Size]byte) (*authenticator.Response, error) {
	if leaf.Subject.CommonName == "" {
		return nil, fmt.Errorf("serial number %s names no user: its subject has no common name", leaf.SerialNumber)
	}
	uid, err := uidOf(leaf)
	if err != nil {
		return nil, err
	}
	return withGroup(&authenticator.Response{User: &user.DefaultInfo{
		Name:   leaf.Subject.CommonName,
		UID:    uid,
		Groups: leaf.Subject.Organization,
		Extra:  map[string][]string{user.CredentialIDKey: {"X509SHA256=" + hex.EncodeToString(fingerprint[:])}},
	}}), nil
}

// uidOf is the user's uid, which a certificate may have in its subject under Kubernetes' own attribute. It must be one, and say something.
func uidOf(leaf *x509.Certificate) (string, error) {
	uid, found := "", false
	for i := range leaf.Subject.Names {
		if !leaf.Subject.Names[i].Type.Equal(uidAttribute) {
			continue
		}
		text, ok := leaf.Subject.Names[i].Value.(string)
		if !ok || text == "" || found {
			return "", fmt.Errorf("its subject's uid (attribute %s) is not one text", uidAttribute)
		}
		uid, found = text, true
	}
	return uid, nil
}

// chains verifies client certificates and remembers which are good until when, and whose: a connection's certificate comes with every request.
type chains struct {
	roots *x509.CertPool
	clock clock.PassiveClock
	good  *bounded[[sha256.Size]byte, verified]
}

type verified struct {
	validity
	who    *authenticator.Response // shared by all requests: nobody changes it
	nobody error                   // why it names no user, which a proxy's need not
}

type validity struct{ from, until time.Time }

func newChains(roots *x509.CertPool, clock clock.PassiveClock) *chains {
	return &chains{roots: roots, clock: clock, good: newBounded[[sha256.Size]byte, verified](1024)}
}

// verify tells that the leaf is good, and whose it is.
func (c *chains) verify(certs []*x509.Certificate) (verified, error) {
	fingerprint := sha256.Sum256(certs[0].Raw)
	now := c.clock.Now()
	if v, ok := c.good.get(fingerprint); ok && !now.Before(v.from) && !now.After(v.until) {
		return v, nil
	}
	intermediates := x509.NewCertPool()
	for _, cert := range certs[1:] {
		intermediates.AddCert(cert)
	}
	found, err := certs[0].Verify(x509.VerifyOptions{
		Roots: c.roots, Intermediates: intermediates, CurrentTime: now,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return verified{}, err
	}
	v := verified{validity: spanOf(found[0])}
	v.who, v.nobody = userOf(certs[0], fingerprint)
	c.good.put(fingerprint, v)
	return v, nil
}

// spanOf is when every certificate of a chain is valid.
func spanOf(chain []*x509.Certificate) validity {
	v := validity{chain[0].NotBefore, chain[0].NotAfter}
	for _, c := range chain[1:] {
		if c.NotBefore.After(v.from) {
			v.from = c.NotBefore
		}
		if c.NotAfter.Before(v.until) {
			v.until = c.NotAfter
		}
	}
	return v
}
