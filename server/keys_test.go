package server

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/yare-project/yare/internal/pki"
)

func writePEM(t *testing.T, dir, name, kind string, der []byte) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Whoever brings keys of their own has them in any of these forms.
func TestKeyFilesOfEveryForm(t *testing.T) {
	dir := t.TempDir()
	ec, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	der := func(data []byte, err error) []byte {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	authority, err := pki.Open(pki.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		path    string
		public  crypto.PublicKey
		private bool
	}{
		"PKCS 8":           {writePEM(t, dir, "a", "PRIVATE KEY", der(x509.MarshalPKCS8PrivateKey(ec))), ec.Public(), true},
		"SEC 1":            {writePEM(t, dir, "b", "EC PRIVATE KEY", der(x509.MarshalECPrivateKey(ec))), ec.Public(), true},
		"PKCS 1":           {writePEM(t, dir, "c", "RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(rsaKey)), rsaKey.Public(), true},
		"public":           {writePEM(t, dir, "d", "PUBLIC KEY", der(x509.MarshalPKIXPublicKey(ec.Public()))), ec.Public(), false},
		"PKCS 1, public":   {writePEM(t, dir, "e", "RSA PUBLIC KEY", x509.MarshalPKCS1PublicKey(&rsaKey.PublicKey)), rsaKey.Public(), false},
		"of a certificate": {writePEM(t, dir, "f", "CERTIFICATE", authority.Cluster.Certificate().Raw), authority.Cluster.Certificate().PublicKey, false},
	} {
		t.Run(name, func(t *testing.T) {
			keys, err := publicKeysIn(c.path)
			if err != nil || len(keys) != 1 || !keys[0].(interface{ Equal(crypto.PublicKey) bool }).Equal(c.public) {
				t.Errorf("public keys %v, %v", keys, err)
			}
			private, err := privateKeyIn(c.path)
			if c.private && (err != nil || !private.Public().(interface{ Equal(crypto.PublicKey) bool }).Equal(c.public)) {
				t.Errorf("private key %T, %v", private, err)
			}
			if !c.private && err == nil {
				t.Error("a private key was found where there is none")
			}
		})
	}
}

func TestKeyFilesThatAreNone(t *testing.T) {
	dir := t.TempDir()
	for path, want := range map[string]string{
		filepath.Join(dir, "missing"):                                    "no such file",
		writePEM(t, dir, "damaged", "PRIVATE KEY", []byte("nonsense")):   "damaged PRIVATE KEY",
		writePEM(t, dir, "something", "SECRET RECIPE", []byte("a cake")): "no key in it",
	} {
		if _, err := privateKeyIn(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v does not say %q", path, err, want)
		}
		if _, err := publicKeysIn(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v does not say %q", path, err, want)
		}
	}
	if _, err := (Keys{TLSCertFile: filepath.Join(dir, "missing")}).serving(nil); err == nil || !strings.Contains(err.Error(), "--tls-cert-file") {
		t.Errorf("a certificate without a key: %v", err)
	}
}
