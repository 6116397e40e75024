package pki

import (
	"strings"
	"testing"
)

// FuzzCheckPin reads what an unknown server sends as its authority. Nothing that the pin does not name is trusted.
func FuzzCheckPin(f *testing.F) {
	f.Add([]byte("-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n"), "sha256:"+strings.Repeat("0", 64))
	f.Add([]byte("-----BEGIN CERTIFICATE-----\n"), "")
	f.Add([]byte{}, "sha256:")
	f.Fuzz(func(t *testing.T, data []byte, pin string) {
		if out, err := CheckPin(data, pin); err == nil {
			t.Errorf("pin %q was found in %q: %q", pin, data, out)
		}
	})
}
