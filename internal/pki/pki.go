// Package pki is a cluster's own public key infrastructure on disk: certificate authorities, the certificates they issue, the key that
// signs service-account tokens, and kubeconfig files.
//
// Guarantees:
//   - Keys are ECDSA P-256. Files with a key in them have mode 0600 and are replaced atomically: a crash leaves the old file or the new one.
//   - An issued certificate is renewed when a third of its life is left, or when what it must say changed (a new address, a new CA),
//     while the process runs: TLS takes it from callbacks, never from a fixed value.
//   - Authorities and the token key are never replaced silently: a damaged or foreign file is an error that says what to do, because
//     a new authority would lock every client out.
//
// Everything is safe for concurrent use. The package does not decide who gets a certificate; its caller does.
package pki

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Config says where a PKI lives.
type Config struct {
	// Dir is made with mode 0700 if it is missing. Empty keeps everything in memory: it is gone with the process.
	Dir string
	// Clock is the real one when nil.
	Clock clock.WithTicker
	// Log is slog's default when nil. Keys are never logged.
	Log *slog.Logger
	// Rand is crypto/rand when nil.
	Rand io.Reader
	// CALife and LeafLife are how long new authorities and certificates are valid; zero means ten years and one year.
	CALife, LeafLife time.Duration
}

// PKI holds the authorities of one cluster.
type PKI struct {
	cfg Config
	// Cluster signs serving certificates, and the client certificates that authenticate users and nodes.
	Cluster *Authority
	// FrontProxy signs the client certificate of whoever may speak for other users (the aggregation layer). It is apart from
	// Cluster, so that no user's certificate can ever pass for a front proxy's.
	FrontProxy *Authority
	// TokenKey signs service-account tokens.
	TokenKey *ecdsa.PrivateKey

	mu     sync.Mutex
	leaves map[string]*Leaf
	added  chan struct{}
}

// Open loads the PKI in cfg.Dir and makes what is missing.
func Open(cfg Config) (*PKI, error) {
	cfg = cfg.withDefaults()
	if err := CheckClock(cfg.Clock.Now()); err != nil {
		return nil, err
	}
	if err := cfg.makeDir(); err != nil {
		return nil, err
	}
	p := &PKI{cfg: cfg, leaves: map[string]*Leaf{}, added: make(chan struct{}, 1)}
	var err error
	if p.Cluster, err = openAuthority(cfg, "ca", "yare-ca"); err != nil {
		return nil, err
	}
	if p.FrontProxy, err = openAuthority(cfg, "front-proxy-ca", "yare-front-proxy-ca"); err != nil {
		return nil, err
	}
	if p.TokenKey, err = openTokenKey(cfg); err != nil {
		return nil, err
	}
	return p, nil
}

func (c Config) withDefaults() Config {
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	if c.Rand == nil {
		c.Rand = rand.Reader
	}
	if c.CALife == 0 {
		c.CALife = 10 * 365 * 24 * time.Hour
	}
	if c.LeafLife == 0 {
		c.LeafLife = 365 * 24 * time.Hour
	}
	return c
}

// CheckClock refuses a clock that cannot be right. Certificates made by such a clock would be refused by everybody else's.
func CheckClock(now time.Time) error {
	if now.Before(time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)) {
		return fmt.Errorf("this machine's clock says %s, before 2020: certificates made now would be invalid; set the clock (for example with `timedatectl set-ntp true`) and start again",
			now.UTC().Format(time.DateTime))
	}
	return nil
}

// Leaf returns the certificate that spec describes, kept in Dir under spec.Name and issued by the authority that spec names. It is made
// now if it is missing, damaged, expiring, or says something else than spec.
func (p *PKI) Leaf(spec LeafSpec) (*Leaf, error) {
	issuer := p.Cluster
	if spec.FrontProxy {
		issuer = p.FrontProxy
	}
	l, err := OpenLeaf(LeafConfig{Config: p.cfg, Spec: spec, Issuer: issuer})
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	p.leaves[spec.Name] = l
	p.mu.Unlock()
	select {
	case p.added <- struct{}{}:
	default:
	}
	return l, nil
}

// Run renews certificates ahead of their end until ctx is done. TLS callbacks renew by themselves; Run serves what reads files, such as
// kubeconfigs (see Leaf.OnRenew).
func (p *PKI) Run(ctx context.Context) error {
	for {
		next := p.renewDue()
		timer := p.cfg.Clock.NewTimer(next)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-p.added:
			timer.Stop()
		case <-timer.C():
		}
	}
}

// renewDue renews what is due and returns how long nothing else will be. A failed renewal is tried again after a minute.
func (p *PKI) renewDue() time.Duration {
	p.mu.Lock()
	leaves := make([]*Leaf, 0, len(p.leaves))
	for _, l := range p.leaves {
		leaves = append(leaves, l)
	}
	p.mu.Unlock()
	next := 24 * time.Hour
	for _, l := range leaves {
		if err := l.renewIfDue(); err != nil {
			p.cfg.Log.Error("certificate could not be renewed", "certificate", l.cfg.Spec.Name, "error", err)
			next = min(next, time.Minute)
			continue
		}
		next = min(next, max(time.Second, l.renewAt().Sub(p.cfg.Clock.Now())))
	}
	return next
}

// openTokenKey loads or makes the key that signs service-account tokens.
func openTokenKey(cfg Config) (*ecdsa.PrivateKey, error) {
	path := filepath.Join(cfg.Dir, "service-account.key")
	data, err := cfg.load(path)
	if os.IsNotExist(err) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), cfg.Rand)
		if err != nil {
			return nil, fmt.Errorf("pki: make token key: %w", err)
		}
		encoded, err := encodeKey(key)
		if err != nil {
			return nil, err
		}
		return key, cfg.save(path, encoded, 0o600)
	}
	if err != nil {
		return nil, fmt.Errorf("pki: read token key: %w", err)
	}
	key, err := decodeKey(data)
	if err != nil {
		return nil, fmt.Errorf("pki: service-account token key %s cannot be used (%w): put back a copy, or move the file away to get a new key (tokens issued so far stop working)", path, err)
	}
	return key, nil
}
