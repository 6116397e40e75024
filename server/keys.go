package server

import (
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/url"
	"os"
	"time"

	"github.com/yare-project/yare/apiserver/authn"
	"github.com/yare-project/yare/internal/pki"
	"github.com/yare-project/yare/kind"
)

// Keys are files of PEM that stand for the cluster's own certificates and keys. Each field is the kube-apiserver flag of its name; an empty one
// keeps what the cluster made for itself.
type Keys struct {
	// TLSCertFile and TLSPrivateKeyFile are what the API server shows to clients. They are read once.
	TLSCertFile, TLSPrivateKeyFile string
	// ClientCAFile has authorities whose certificates say who a client is, besides the cluster's own.
	ClientCAFile string
	// ServiceAccountKeyFiles are public keys, private keys or certificates whose signature makes a service account's token good.
	ServiceAccountKeyFiles []string
	// ServiceAccountSigningKeyFile signs new tokens of service accounts.
	ServiceAccountSigningKeyFile string
	// ServiceAccountIssuers are who issues tokens: the first for new ones, all of them accepted.
	ServiceAccountIssuers []string
	// ServiceAccountJWKSURI is where the documents say that the public keys are; empty: below the issuer.
	ServiceAccountJWKSURI string
	// APIAudiences are what tokens must be for to be good here; empty: the first issuer.
	APIAudiences []string
	// ServiceAccountMaxTokenExpiration bounds the life of new tokens; 0: a year.
	ServiceAccountMaxTokenExpiration time.Duration
	// ServiceAccountExtendTokenExpiration has pods' tokens for the API server live for a year.
	ServiceAccountExtendTokenExpiration bool
}

// check refuses what cannot work.
func (k Keys) check() error {
	if d := k.ServiceAccountMaxTokenExpiration; d != 0 && (d < time.Hour || d > 1<<32*time.Second) {
		return fmt.Errorf("--service-account-max-token-expiration %v: give an hour or more, and 2^32 seconds at most", d)
	}
	for flag, urls := range map[string][]string{"--service-account-issuer": k.ServiceAccountIssuers, "--service-account-jwks-uri": {k.ServiceAccountJWKSURI}} {
		for _, text := range urls {
			if u, err := url.Parse(text); err != nil || u.Scheme != "" && u.Scheme != "https" && flag == "--service-account-jwks-uri" {
				return fmt.Errorf("%s %q: give an https:// URL", flag, text)
			}
		}
	}
	return nil
}

// serving makes the configuration for the API server's listener, from the given files or from the cluster's own authority.
func (k Keys) serving(own func() (*pki.Leaf, error)) (*tls.Config, error) {
	if k.TLSCertFile == "" && k.TLSPrivateKeyFile == "" {
		leaf, err := own()
		if err != nil {
			return nil, err
		}
		return pki.ServerTLS(leaf), nil
	}
	pair, err := tls.LoadX509KeyPair(k.TLSCertFile, k.TLSPrivateKeyFile)
	if err != nil {
		return nil, fmt.Errorf("--tls-cert-file %q with --tls-private-key-file %q: %w", k.TLSCertFile, k.TLSPrivateKeyFile, err)
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}, Certificates: []tls.Certificate{pair}}, nil
}

// apply puts the given keys into the authenticator's config.
func (k Keys) apply(auth *authn.Config) error {
	if k.ClientCAFile != "" {
		certs, err := certificatesIn(k.ClientCAFile)
		if err != nil {
			return fmt.Errorf("--client-ca-file: %w", err)
		}
		auth.ClientCA = auth.ClientCA.Clone()
		for _, c := range certs {
			auth.ClientCA.AddCert(c)
		}
	}
	if k.ServiceAccountSigningKeyFile != "" {
		key, err := privateKeyIn(k.ServiceAccountSigningKeyFile)
		if err != nil {
			return fmt.Errorf("--service-account-signing-key-file: %w", err)
		}
		auth.TokenKey = key
	}
	for _, path := range k.ServiceAccountKeyFiles {
		keys, err := publicKeysIn(path)
		if err != nil {
			return fmt.Errorf("--service-account-key-file: %w", err)
		}
		auth.TokenKeys = append(auth.TokenKeys, keys...)
	}
	auth.ExtendTokens = k.ServiceAccountExtendTokenExpiration
	if len(k.ServiceAccountIssuers) > 0 {
		auth.AcceptIssuers = append(auth.AcceptIssuers, k.ServiceAccountIssuers[1:]...)
	}
	return nil
}

// issue puts the given issuer into the settings.
func (k Keys) issue(s *kind.Settings) {
	if len(k.ServiceAccountIssuers) > 0 {
		s.TokenIssuer, s.TokenAudiences = k.ServiceAccountIssuers[0], k.ServiceAccountIssuers[:1]
	}
	if len(k.APIAudiences) > 0 {
		s.TokenAudiences = k.APIAudiences
	}
	if k.ServiceAccountMaxTokenExpiration > 0 {
		s.MaxTokenTTL = k.ServiceAccountMaxTokenExpiration
	}
}

func certificatesIn(path string) ([]*x509.Certificate, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	certs, err := pki.ParseCertificates(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return certs, nil
}

var errNoKey = errors.New("no key in it; give PEM with an RSA or ECDSA key")

// privateKeyIn is the first private key. Whether it can sign tokens is package authn's to say.
func privateKeyIn(path string) (crypto.Signer, error) {
	for block := range blocksIn(path) {
		if block.err != nil {
			return nil, block.err
		}
		if key, ok := block.key.(crypto.Signer); ok {
			return key, nil
		}
	}
	return nil, fmt.Errorf("%s: %w", path, errNoKey)
}

func publicKeysIn(path string) ([]crypto.PublicKey, error) {
	var out []crypto.PublicKey
	for block := range blocksIn(path) {
		switch key := block.key.(type) {
		case nil:
			if block.err != nil {
				return nil, block.err
			}
		case crypto.Signer:
			out = append(out, key.Public())
		default:
			out = append(out, key)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s: %w", path, errNoKey)
	}
	for _, key := range out {
		if err := authn.CheckKey(key); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	return out, nil
}

// keyBlock is a key, private or public, as one block of a file has it; or why the file or the block cannot be read.
type keyBlock struct {
	key any
	err error
}

func blocksIn(path string) func(yield func(keyBlock) bool) {
	return func(yield func(keyBlock) bool) {
		data, err := os.ReadFile(path)
		if err != nil {
			yield(keyBlock{err: err})
			return
		}
		for {
			var block *pem.Block
			if block, data = pem.Decode(data); block == nil {
				return
			}
			key, err := parseKey(block)
			if err != nil {
				err = fmt.Errorf("%s: damaged %s: %w", path, block.Type, err)
			}
			if !yield(keyBlock{key, err}) {
				return
			}
		}
	}
}

func parseKey(block *pem.Block) (any, error) {
	switch block.Type {
	case "PRIVATE KEY":
		return x509.ParsePKCS8PrivateKey(block.Bytes)
	case "RSA PRIVATE KEY":
		return x509.ParsePKCS1PrivateKey(block.Bytes)
	case "RSA PUBLIC KEY":
		return x509.ParsePKCS1PublicKey(block.Bytes)
	case "EC PRIVATE KEY":
		return x509.ParseECPrivateKey(block.Bytes)
	case "PUBLIC KEY":
		return x509.ParsePKIXPublicKey(block.Bytes)
	case "CERTIFICATE":
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		return cert.PublicKey, nil
	}
	return nil, nil
}
