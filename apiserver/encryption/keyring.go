package encryption

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"k8s.io/apiserver/pkg/storage/value"
)

// sealedPrefix begins every value that is not plain.
const sealedPrefix = "k8s:enc:"

// provider seals and opens with one key or one key service.
type provider interface {
	// prefix begins what the provider wrote; "" for what is plain.
	prefix() string
	// current is the id of the key that would seal now.
	current() (id string, err error)
	// seal returns the value with its prefix.
	seal(path string, data []byte) ([]byte, error)
	// open takes a value without its prefix.
	open(path string, data []byte) (plain []byte, id string, err error)
}

// keyring is the providers of one resource: the first seals, all of them open.
type keyring struct{ providers []provider }

var errNoMatch = errors.New("no matching prefix found")

// open tries every provider whose prefix the value has, for two keys may have one name.
func (k *keyring) open(path string, data []byte) ([]byte, string, error) {
	var errs []error
	for _, p := range k.providers {
		prefix := p.prefix()
		if !bytes.HasPrefix(data, []byte(prefix)) || prefix == "" && bytes.HasPrefix(data, []byte(sealedPrefix)) {
			continue
		}
		out, id, err := p.open(path, data[len(prefix):])
		if err == nil {
			return out, id, nil
		}
		errs = append(errs, err)
	}
	if len(errs) > 0 {
		return nil, "", errors.Join(errs...)
	}
	return nil, "", k.unmatched(data)
}

// unmatched says who wrote a value that nobody can open.
func (k *keyring) unmatched(data []byte) error {
	if !bytes.HasPrefix(data, []byte(sealedPrefix)) {
		return fmt.Errorf("%w: the value is plain, and the encryption configuration has no provider identity for this resource", errNoMatch)
	}
	return fmt.Errorf("%w: the value was sealed by %s, which the encryption configuration does not have for this resource", errNoMatch, writer(data))
}

// writer is the prefix of a sealed value: four names and the key's.
func writer(data []byte) string {
	const names, longest = 5, 256
	at := 0
	for range names {
		next := bytes.IndexByte(data[at:min(len(data), longest)], ':')
		if next < 0 {
			break
		}
		at += next + 1
	}
	return fmt.Sprintf("%q", data[:at])
}

// plain is the provider identity.
type plain struct{}

func (plain) prefix() string                                     { return "" }
func (plain) current() (string, error)                           { return "", nil }
func (plain) seal(_ string, data []byte) ([]byte, error)         { return data, nil }
func (plain) open(_ string, data []byte) ([]byte, string, error) { return data, "", nil }

// key is a provider with a key of its own.
type key struct {
	name   string // the whole prefix
	id     string
	cipher value.Transformer
}

// newKey names a key by its prefix and a digest of it, for a key that is changed under its old name is another one.
func newKey(prefix, name string, secret []byte, cipher value.Transformer) *key {
	digest := sha256.Sum256(append([]byte("id of an encryption key\x00"), secret...))
	full := prefix + name + ":"
	return &key{name: full, id: full + hex.EncodeToString(digest[:8]), cipher: cipher}
}

func (k *key) prefix() string           { return k.name }
func (k *key) current() (string, error) { return k.id, nil }

func (k *key) seal(path string, data []byte) ([]byte, error) {
	out, err := k.cipher.TransformToStorage(context.Background(), data, value.DefaultContext(path))
	if err != nil {
		return nil, err
	}
	return append([]byte(k.name), out...), nil
}

func (k *key) open(path string, data []byte) ([]byte, string, error) {
	out, _, err := k.cipher.TransformFromStorage(context.Background(), data, value.DefaultContext(path))
	if err != nil {
		return nil, "", fmt.Errorf("the key %q cannot open it: %w", k.name, err)
	}
	return out, k.id, nil
}
