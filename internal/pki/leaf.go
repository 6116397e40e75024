package pki

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"
)

// Issuer turns a key and what its certificate shall say into the certificate, in PEM: an Authority, or a server far away, which gets a request
// that the key has signed. The key itself stays here.
type Issuer interface {
	Issue(spec LeafSpec, key crypto.Signer) ([]byte, error)
}

// LeafConfig describes one certificate outside a PKI, for example on a node that joined a cluster.
type LeafConfig struct {
	Config
	Spec   LeafSpec
	Issuer Issuer
	// Roots are what the certificate must be signed by; nil takes the Issuer's pool if it is an Authority, else does not check.
	Roots *x509.CertPool
}

// Leaf is an issued certificate with its key, in <name>.pem, that renews itself.
type Leaf struct {
	cfg     LeafConfig
	path    string
	current atomic.Pointer[tls.Certificate]
	renewal sync.Mutex

	mu      sync.Mutex
	onRenew []func(*Leaf)
}

// OpenLeaf loads a certificate, or has it issued.
func OpenLeaf(cfg LeafConfig) (*Leaf, error) {
	cfg.Config = cfg.Config.withDefaults()
	if authority, ok := cfg.Issuer.(*Authority); ok && cfg.Roots == nil {
		cfg.Roots = authority.Pool()
	}
	if name := cfg.Spec.Name; name == "" || name != filepath.Base(name) || name[0] == '.' {
		return nil, fmt.Errorf("pki: %q cannot name a certificate: it must be a plain file name", name)
	}
	if err := cfg.makeDir(); err != nil {
		return nil, err
	}
	l := &Leaf{cfg: cfg, path: filepath.Join(cfg.Dir, cfg.Spec.Name+".pem")}
	data, err := cfg.load(l.path)
	switch {
	case os.IsNotExist(err):
		return l, l.renew()
	case err != nil:
		return nil, fmt.Errorf("pki: certificate %s: %w", cfg.Spec.Name, err)
	}
	if err := l.load(data); err != nil {
		// Nothing is lost by issuing it anew: nobody but its holder knows its key.
		cfg.Log.Info("certificate is issued anew", "file", l.path, "because", err)
		return l, l.renew()
	}
	return l, l.renewIfDue()
}

// load takes over PEM data if it is what the spec wants.
func (l *Leaf) load(data []byte) error {
	certs, err := decodeCerts(data)
	if err != nil {
		return err
	}
	key, err := decodeKey(data)
	if err != nil {
		return err
	}
	if !key.PublicKey.Equal(certs[0].PublicKey) {
		return fmt.Errorf("its key belongs to another certificate")
	}
	if err := l.cfg.Spec.matches(certs[0]); err != nil {
		return err
	}
	if l.cfg.Roots != nil {
		_, err := certs[0].Verify(x509.VerifyOptions{Roots: l.cfg.Roots, CurrentTime: l.cfg.Clock.Now(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
		if err != nil {
			return err
		}
	}
	c := &tls.Certificate{PrivateKey: key, Leaf: certs[0]}
	for _, cert := range certs {
		c.Certificate = append(c.Certificate, cert.Raw)
	}
	l.current.Store(c)
	return nil
}

// renewAt is when two thirds of the certificate's life are over.
func (l *Leaf) renewAt() time.Time {
	c := l.current.Load()
	if c == nil {
		return time.Time{}
	}
	return c.Leaf.NotAfter.Add(-c.Leaf.NotAfter.Sub(c.Leaf.NotBefore) / 3)
}

func (l *Leaf) due() bool { return !l.cfg.Clock.Now().Before(l.renewAt()) }

// renewIfDue is nil when the certificate is still good, even if a renewal ahead of time failed.
func (l *Leaf) renewIfDue() error {
	if !l.due() {
		return nil
	}
	l.renewal.Lock()
	defer l.renewal.Unlock()
	if !l.due() {
		return nil
	}
	return l.renewLocked()
}

func (l *Leaf) renew() error {
	l.renewal.Lock()
	defer l.renewal.Unlock()
	return l.renewLocked()
}

func (l *Leaf) renewLocked() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), l.cfg.Rand)
	if err != nil {
		return fmt.Errorf("pki: make key: %w", err)
	}
	cert, err := l.cfg.Issuer.Issue(l.cfg.Spec, key)
	if err != nil {
		return fmt.Errorf("pki: issue certificate %s: %w", l.cfg.Spec.Name, err)
	}
	encoded, err := encodeKey(key)
	if err != nil {
		return err
	}
	data := append(bytes.Clone(cert), encoded...)
	if err := l.load(data); err != nil {
		return fmt.Errorf("pki: certificate %s came back unfit: %w", l.cfg.Spec.Name, err)
	}
	if err := l.cfg.save(l.path, data, 0o600); err != nil {
		return err
	}
	l.mu.Lock()
	hooks := append([]func(*Leaf){}, l.onRenew...)
	l.mu.Unlock()
	for _, f := range hooks {
		f(l)
	}
	return nil
}

// OnRenew calls f after each renewal from now on; f may read the leaf but must not wait for another renewal.
func (l *Leaf) OnRenew(f func(*Leaf)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.onRenew = append(l.onRenew, f)
}

// Certificate returns the present certificate, renewed if it is due. When a renewal fails it returns the old one as long as that is valid.
func (l *Leaf) Certificate() (*tls.Certificate, error) {
	if err := l.renewIfDue(); err != nil {
		c := l.current.Load()
		if c == nil || l.cfg.Clock.Now().After(c.Leaf.NotAfter) {
			return nil, err
		}
		l.cfg.Log.Warn("certificate could not be renewed yet", "certificate", l.cfg.Spec.Name, "ends", c.Leaf.NotAfter, "error", err)
	}
	return l.current.Load(), nil
}

// GetCertificate is tls.Config's callback for servers.
func (l *Leaf) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) { return l.Certificate() }

// GetClientCertificate is tls.Config's callback for clients.
func (l *Leaf) GetClientCertificate(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	return l.Certificate()
}

// PEM returns the present certificate and its key, for a kubeconfig.
func (l *Leaf) PEM() (cert, key []byte, err error) {
	c, err := l.Certificate()
	if err != nil {
		return nil, nil, err
	}
	for _, der := range c.Certificate {
		cert = append(cert, encodeCert(der)...)
	}
	key, err = encodeKey(c.PrivateKey.(*ecdsa.PrivateKey))
	return cert, key, err
}

// Path is the file that holds certificate and key.
func (l *Leaf) Path() string { return l.path }
