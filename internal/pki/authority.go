package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// backdate is how far the beginning of a certificate lies in the past, so that clocks which differ a little agree on it.
const backdate = time.Hour

// Authority is a certificate authority: a self-signed certificate and its key, in <name>.pem, with a public copy in <name>.crt.
type Authority struct {
	cfg  Config
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

func openAuthority(cfg Config, name, commonName string) (*Authority, error) {
	path := filepath.Join(cfg.Dir, name+".pem")
	data, err := cfg.load(path)
	if os.IsNotExist(err) {
		if data, err = newAuthority(cfg, commonName); err != nil {
			return nil, err
		}
		err = cfg.save(path, data, 0o600)
	}
	if err != nil {
		return nil, fmt.Errorf("pki: certificate authority: %w", err)
	}
	a, err := parseAuthority(cfg, data)
	if err != nil {
		return nil, fmt.Errorf("pki: certificate authority %s cannot be used (%w): put back a copy, or move the file away to get a new authority (every kubeconfig and node of this cluster must then be set up anew)", path, err)
	}
	return a, cfg.publish(filepath.Join(cfg.Dir, name+".crt"), a.CertPEM())
}

// publish writes the public copy unless it is right already.
func (c Config) publish(path string, data []byte) error {
	if c.Dir == "" {
		return nil
	}
	if old, err := os.ReadFile(path); err == nil && string(old) == string(data) {
		return nil
	}
	return WriteFile(path, data, 0o644)
}

func newAuthority(cfg Config, commonName string) ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), cfg.Rand)
	if err != nil {
		return nil, fmt.Errorf("pki: make CA key: %w", err)
	}
	now := cfg.Clock.Now()
	// The time in the name tells authorities of successive clusters apart in error messages.
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: fmt.Sprintf("%s@%d", commonName, now.Unix())},
		NotBefore:             now.Add(-backdate),
		NotAfter:              now.Add(cfg.CALife),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}
	if template.SerialNumber, err = serial(cfg); err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificate(cfg.Rand, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, fmt.Errorf("pki: make CA certificate: %w", err)
	}
	encoded, err := encodeKey(key)
	if err != nil {
		return nil, err
	}
	return append(encodeCert(der), encoded...), nil
}

func parseAuthority(cfg Config, data []byte) (*Authority, error) {
	certs, err := decodeCerts(data)
	if err != nil {
		return nil, err
	}
	key, err := decodeKey(data)
	if err != nil {
		return nil, err
	}
	cert := certs[0]
	if !cert.IsCA {
		return nil, errors.New("its certificate is not an authority's")
	}
	if !key.PublicKey.Equal(cert.PublicKey) {
		return nil, errors.New("its key belongs to another certificate")
	}
	if now := cfg.Clock.Now(); now.After(cert.NotAfter) || now.Before(cert.NotBefore) {
		return nil, fmt.Errorf("it is valid from %s to %s, and the clock says %s",
			cert.NotBefore.UTC().Format(time.DateTime), cert.NotAfter.UTC().Format(time.DateTime), now.UTC().Format(time.DateTime))
	}
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	return &Authority{cfg: cfg, cert: cert, key: key, pool: pool}, nil
}

func serial(cfg Config) (*big.Int, error) {
	buf := make([]byte, 16)
	if _, err := cfg.Rand.Read(buf); err != nil {
		return nil, fmt.Errorf("pki: serial number: %w", err)
	}
	buf[0] &= 0x7f // RFC 5280 section 4.1.2.2: a positive number
	return new(big.Int).SetBytes(buf), nil
}

// CertPEM is the authority's certificate for clients to trust.
func (a *Authority) CertPEM() []byte { return encodeCert(a.cert.Raw) }

// Pool trusts this authority only.
func (a *Authority) Pool() *x509.CertPool { return a.pool }

// Certificate is the authority's own certificate. It is shared: read only.
func (a *Authority) Certificate() *x509.Certificate { return a.cert }

// Pin identifies the authority in a join token: "sha256:" and the hex SHA-256 of its public key (SubjectPublicKeyInfo), as in
// kubeadm's discovery-token-ca-cert-hash.
func (a *Authority) Pin() string { return Pin(a.cert) }

// Pin is the pin of any certificate; see Authority.Pin.
func Pin(cert *x509.Certificate) string {
	sum := sha256.Sum256(cert.RawSubjectPublicKeyInfo)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// CheckPin finds, among the certificates in PEM data that came over an untrusted connection, the authority that pin names, and returns
// its PEM alone. Anything else in the data is dropped.
func CheckPin(data []byte, pin string) ([]byte, error) {
	certs, err := decodeCerts(data)
	if err != nil {
		return nil, fmt.Errorf("pki: the server's CA certificate: %w", err)
	}
	i := slices.IndexFunc(certs, func(c *x509.Certificate) bool { return c.IsCA && Pin(c) == strings.ToLower(pin) })
	if i < 0 {
		return nil, fmt.Errorf("pki: the server's CA is %s but the token names %s: this is another cluster, or someone in between; get a new token from the server", Pin(certs[0]), pin)
	}
	return encodeCert(certs[i].Raw), nil
}

// Issue signs a certificate for key's public half that says what spec says, for spec.Life or the configured life, and returns it in PEM.
func (a *Authority) Issue(spec LeafSpec, key crypto.Signer) ([]byte, error) {
	now := a.cfg.Clock.Now()
	if err := CheckClock(now); err != nil {
		return nil, err
	}
	life := spec.Life
	if life == 0 {
		life = a.cfg.LeafLife
	}
	template := spec.template()
	template.NotBefore = later(now.Add(-backdate), a.cert.NotBefore)
	template.NotAfter = earlier(now.Add(life), a.cert.NotAfter)
	if !template.NotAfter.After(now) {
		return nil, fmt.Errorf("pki: certificate %q would end at %s, which is past", spec.Name, template.NotAfter.UTC().Format(time.DateTime))
	}
	return a.sign(template, key.Public())
}

// Pair makes a key and its certificate, which says what spec says, both in PEM. Nothing of it is kept.
func (a *Authority) Pair(spec LeafSpec) (cert, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), a.cfg.Rand)
	if err != nil {
		return nil, nil, fmt.Errorf("pki: make key: %w", err)
	}
	if cert, err = a.Issue(spec, private); err != nil {
		return nil, nil, err
	}
	key, err = encodeKey(private)
	return cert, key, err
}

// SignRequest signs exactly the subject, names and usages given for the key in csr, whose signature is checked. The caller has
// decided that they may be signed: nothing else of the request is taken over.
func (a *Authority) SignRequest(csr *x509.CertificateRequest, usages x509.KeyUsage, extended []x509.ExtKeyUsage, life time.Duration) ([]byte, error) {
	if err := csr.CheckSignature(); err != nil {
		return nil, fmt.Errorf("pki: certificate request: %w", err)
	}
	now := a.cfg.Clock.Now()
	return a.sign(&x509.Certificate{
		Subject: csr.Subject, DNSNames: csr.DNSNames, IPAddresses: csr.IPAddresses, EmailAddresses: csr.EmailAddresses, URIs: csr.URIs,
		KeyUsage: usages, ExtKeyUsage: extended, BasicConstraintsValid: true,
		NotBefore: later(now.Add(-5*time.Minute), a.cert.NotBefore), NotAfter: earlier(now.Add(life), a.cert.NotAfter),
	}, csr.PublicKey)
}

func (a *Authority) sign(template *x509.Certificate, pub crypto.PublicKey) ([]byte, error) {
	var err error
	if template.SerialNumber, err = serial(a.cfg); err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificate(a.cfg.Rand, template, a.cert, pub, a.key)
	if err != nil {
		return nil, fmt.Errorf("pki: sign certificate for %q: %w", template.Subject, err)
	}
	return encodeCert(der), nil
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
