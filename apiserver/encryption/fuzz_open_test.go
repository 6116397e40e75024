package encryption_test

import (
	"bytes"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/yare-project/yare/apiserver/encryption"
)

func from(t testing.TB, content string) (*encryption.Encryption, error) {
	file := filepath.Join(t.TempDir(), "encryption.yaml")
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return encryption.Open(encryption.Config{File: file, Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
}

// FuzzOpen reads values from a disk that somebody else can write: nothing opens but what was sealed, and for the key that it was sealed for.
func FuzzOpen(f *testing.F) {
	e, err := from(f, config("secrets", with("aesgcm", "k=a"), with("secretbox", "k=b"), identity))
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(e.Close)
	r := e.For(secrets, "/registry/secrets/")
	s, err := r.Current()
	if err != nil {
		f.Fatal(err)
	}
	text := []byte(`{"kind":"Secret"}`)
	sealed, err := s.Seal("ns/a", text)
	if err != nil {
		f.Fatal(err)
	}
	for _, data := range [][]byte{sealed, sealed[:len(sealed)-1], append(bytes.Clone(sealed), 0), []byte("k8s:enc:aesgcm:v1:k:"), []byte("k8s:enc:secretbox:v1:k:x"), []byte("k8s:enc:kms:v2:k:"), []byte("k8s:enc:"), nil, text} {
		f.Add("ns/a", data)
		f.Add("ns/b", data)
	}
	f.Fuzz(func(t *testing.T, key string, data []byte) {
		out, _, err := r.Open(key, data)
		switch {
		case err != nil:
		case bytes.HasPrefix(data, []byte("k8s:enc:")):
			if key != "ns/a" || !bytes.Equal(out, text) { // each process of the fuzzer sealed it anew
				t.Errorf("%q opened for %q as %q", data, key, out)
			}
		case !bytes.Equal(out, data):
			t.Errorf("the plain value %q was read as %q", data, out)
		}
	})
}

// FuzzConfiguration reads configuration files: one that is taken seals what it opens again.
func FuzzConfiguration(f *testing.F) {
	for _, s := range []string{config("secrets", with("aesgcm", "k=a"), identity), config("secrets, '*.apps', '*.*'", with("secretbox", "k=b")), config("secrets", identity), config("'*.'", with("aescbc", "a=a", "b=b")), config("secrets"), "{}", "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration",
		config("secrets", "  - kms: {apiVersion: v1, name: x, endpoint: 'unix:///x'}\n"), config("secrets", with("aesgcm", "k=a"))[:120]} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		if bytes.Contains(bytes.ToLower(content), []byte("kms")) {
			return // would call somebody
		}
		e, err := from(t, string(content))
		if err != nil {
			return
		}
		defer e.Close()
		r := e.For(secrets, "/registry/secrets/")
		s, err := r.Current()
		if err != nil || s == nil {
			return
		}
		sealed, err := s.Seal("ns/a", []byte("text"))
		if err != nil {
			t.Fatal(err)
		}
		if out, _, err := r.Open("ns/a", sealed); err != nil || string(out) != "text" {
			t.Errorf("%q: what it seals opens as %q, %v", content, out, err)
		}
	})
}
