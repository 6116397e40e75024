package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// maxFile bounds what is read of a certificate or key file.
const maxFile = 1 << 20

func (c Config) makeDir() error {
	if c.Dir == "" {
		return nil
	}
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return fmt.Errorf("pki: make folder: %w", err)
	}
	return nil
}

// load reads a file of Dir; without a Dir there is none.
func (c Config) load(path string) ([]byte, error) {
	if c.Dir == "" {
		return nil, os.ErrNotExist
	}
	return readSecret(path)
}

// save writes a file of Dir, if there is a Dir.
func (c Config) save(path string, data []byte, mode os.FileMode) error {
	if c.Dir == "" {
		return nil
	}
	return WriteFile(path, data, mode)
}

// WriteFile replaces path atomically: after a crash it has the old content or the new one, and content is on disk when it returns.
func WriteFile(path string, data []byte, mode os.FileMode) error {
	dir := filepath.Dir(path)
	tmp, err := os.CreateTemp(dir, "."+filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("pki: write %s: %w", path, err)
	}
	defer os.Remove(tmp.Name()) // fails once renamed
	err = errors.Join(tmp.Chmod(mode), writeAll(tmp, data), tmp.Sync(), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err == nil {
		err = syncDir(dir)
	}
	if err != nil {
		return fmt.Errorf("pki: write %s: %w", path, err)
	}
	return nil
}

func writeAll(w io.Writer, data []byte) error {
	_, err := w.Write(data)
	return err
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// readSecret reads a bounded file and takes away what others may do with it.
func readSecret(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	if info.Size() > maxFile {
		return nil, fmt.Errorf("%s has %d bytes, more than the %d that a key file may have", path, info.Size(), maxFile)
	}
	if info.Mode().Perm()&0o077 != 0 {
		if err := f.Chmod(0o600); err != nil {
			return nil, fmt.Errorf("%s can be read by others and cannot be closed to them: %w", path, err)
		}
	}
	return io.ReadAll(io.LimitReader(f, maxFile))
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("pki: encode key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

func encodeCert(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// decodeKey finds the private key in PEM data, which may have certificates beside it.
func decodeKey(data []byte) (*ecdsa.PrivateKey, error) {
	for {
		var block *pem.Block
		if block, data = pem.Decode(data); block == nil {
			return nil, errors.New("no PEM private key in it")
		}
		switch block.Type {
		case "PRIVATE KEY":
			key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
			if err != nil {
				return nil, fmt.Errorf("damaged private key: %w", err)
			}
			ec, ok := key.(*ecdsa.PrivateKey)
			if !ok || ec.Curve != elliptic.P256() {
				return nil, fmt.Errorf("private key is %T, only ECDSA P-256 is used here", key)
			}
			return ec, nil
		case "EC PRIVATE KEY":
			key, err := x509.ParseECPrivateKey(block.Bytes)
			if err != nil {
				return nil, fmt.Errorf("damaged private key: %w", err)
			}
			if key.Curve != elliptic.P256() {
				return nil, errors.New("private key is not on curve P-256")
			}
			return key, nil
		}
	}
}

// decodeCerts returns the certificates in PEM data, in order.
func decodeCerts(data []byte) ([]*x509.Certificate, error) {
	var out []*x509.Certificate
	for {
		var block *pem.Block
		if block, data = pem.Decode(data); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("damaged certificate: %w", err)
		}
		out = append(out, c)
	}
	if len(out) == 0 {
		return nil, errors.New("no PEM certificate in it")
	}
	return out, nil
}

// ParseCertificates reads PEM data that holds certificates only, at least one.
func ParseCertificates(data []byte) ([]*x509.Certificate, error) { return decodeCerts(data) }
