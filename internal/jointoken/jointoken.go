// Package jointoken writes and reads the token by which a machine joins a cluster: a secret for the server to know the machine by, and a
// pin for the machine to know the server by.
//
// Its form is K10<pin>::<id>.<secret>: the pin is the hexadecimal SHA-256 of the cluster authority's public key, id and secret are a
// Kubernetes bootstrap token (Kubernetes documentation, "Authenticating with Bootstrap Tokens").
package jointoken

import (
	"crypto/rand"
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// Token is a join token's parts.
type Token struct {
	// Pin is "sha256:" and 64 hexadecimal digits.
	Pin    string
	ID     string // 6 characters of a-z0-9; public
	Secret string // 16 characters of a-z0-9
}

const (
	prefix = "K10"
	digest = "sha256:"
)

var form = regexp.MustCompile(`^K10([0-9a-f]{64})::([a-z0-9]{6})\.([a-z0-9]{16})$`)

// New makes a token with a random identity and secret.
func New(pin string) (Token, error) {
	id, err := random(6)
	if err != nil {
		return Token{}, err
	}
	secret, err := random(16)
	return Token{Pin: pin, ID: id, Secret: secret}, err
}

// Parse reads a token.
func Parse(text string) (Token, error) {
	m := form.FindStringSubmatch(strings.TrimSpace(text))
	if m == nil {
		return Token{}, errors.New("this is no join token: it must look like K10<64 digits>::<6 characters>.<16 characters>, as `yare token create` prints it")
	}
	return Token{Pin: digest + m[1], ID: m[2], Secret: m[3]}, nil
}

func (t Token) String() string {
	return prefix + strings.TrimPrefix(t.Pin, digest) + "::" + t.Bearer()
}

// Bearer is the part that the server checks.
func (t Token) Bearer() string { return t.ID + "." + t.Secret }

const letters = "abcdefghijklmnopqrstuvwxyz0123456789"

// random is n characters, each equally likely.
func random(n int) (string, error) {
	out := make([]byte, 0, n)
	buf := make([]byte, 4*n)
	for len(out) < n {
		if _, err := rand.Read(buf); err != nil {
			return "", fmt.Errorf("random numbers: %w", err)
		}
		for _, b := range buf {
			// 252 is the largest multiple of 36 below 256: what is above would favour some letters.
			if b < 252 && len(out) < n {
				out = append(out, letters[int(b)%len(letters)])
			}
		}
	}
	return string(out), nil
}
