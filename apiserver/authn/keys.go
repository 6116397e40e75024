package authn

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/rsa"
	"crypto/sha256"
	_ "crypto/sha512" // for the larger curves
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"math/big"
)

// algorithm is how a key signs (RFC 7518, sections 3.3 and 3.4).
type algorithm struct {
	name string
	hash crypto.Hash
	// size is the bytes of each half of an ECDSA signature; 0 for RSA.
	size int
}

// algorithmOf is the one that Kubernetes uses with such a key.
func algorithmOf(key crypto.PublicKey) (algorithm, error) {
	switch k := key.(type) {
	case *rsa.PublicKey:
		return algorithm{"RS256", crypto.SHA256, 0}, nil
	case *ecdsa.PublicKey:
		switch k.Curve.Params().BitSize {
		case 256:
			return algorithm{"ES256", crypto.SHA256, 32}, nil
		case 384:
			return algorithm{"ES384", crypto.SHA384, 48}, nil
		case 521:
			return algorithm{"ES512", crypto.SHA512, 66}, nil
		}
		return algorithm{}, fmt.Errorf("authn: a key on curve %s cannot sign tokens: use P-256, P-384 or P-521", k.Curve.Params().Name)
	}
	return algorithm{}, fmt.Errorf("authn: a %T cannot sign tokens: use RSA or ECDSA", key)
}

func (a algorithm) digest(text string) []byte {
	h := a.hash.New()
	h.Write([]byte(text))
	return h.Sum(nil)
}

// good checks a signature.
func (a algorithm) good(key crypto.PublicKey, text string, signature []byte) bool {
	digest := a.digest(text)
	switch k := key.(type) {
	case *rsa.PublicKey:
		return rsa.VerifyPKCS1v15(k, a.hash, digest, signature) == nil
	case *ecdsa.PublicKey:
		if len(signature) != 2*a.size {
			return false
		}
		r, s := new(big.Int).SetBytes(signature[:a.size]), new(big.Int).SetBytes(signature[a.size:])
		return ecdsa.Verify(k, digest, r, s)
	}
	return false
}

func (a algorithm) sign(rand io.Reader, key crypto.Signer, text string) ([]byte, error) {
	digest := a.digest(text)
	k, ok := key.(*ecdsa.PrivateKey)
	if !ok {
		return key.Sign(rand, digest, a.hash)
	}
	r, s, err := ecdsa.Sign(rand, k, digest)
	if err != nil {
		return nil, err
	}
	signature := make([]byte, 2*a.size)
	r.FillBytes(signature[:a.size])
	s.FillBytes(signature[a.size:])
	return signature, nil
}

// keyID names a key as Kubernetes does: the SHA-256 of its SubjectPublicKeyInfo. The error says why the key cannot sign tokens.
func keyID(key crypto.PublicKey) (string, error) {
	if _, err := algorithmOf(key); err != nil {
		return "", err
	}
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return "", fmt.Errorf("authn: token key: %w", err)
	}
	sum := sha256.Sum256(der)
	return b64.EncodeToString(sum[:]), nil
}

// CheckKey says why a key cannot sign or check tokens, nil if it can.
func CheckKey(key crypto.PublicKey) error {
	_, err := keyID(key)
	return err
}

// sign makes a token.
func sign(rand io.Reader, key crypto.Signer, claims Claims) (string, error) {
	algorithm, err := algorithmOf(key.Public())
	if err != nil {
		return "", err
	}
	kid, err := keyID(key.Public())
	if err != nil {
		return "", err
	}
	head, err := json.Marshal(header{Algorithm: algorithm.name, KeyID: kid})
	if err != nil {
		return "", err
	}
	body, err := json.Marshal(claims)
	if err != nil {
		return "", err
	}
	text := b64.EncodeToString(head) + "." + b64.EncodeToString(body)
	signature, err := algorithm.sign(rand, key, text)
	if err != nil {
		return "", fmt.Errorf("authn: sign token: %w", err)
	}
	return text + "." + b64.EncodeToString(signature), nil
}
