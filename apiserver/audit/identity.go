package audit

import (
	"encoding/hex"
	"math/rand/v2"
	"net/http"
	"strings"
)

// Header is the header of requests and answers that carries a request's id.
const Header = "Audit-Id"

// maxID bounds an id that a client chose, in bytes: it is repeated in the answer and in every event.
const maxID = 256

// IDOf is the id that the client gave its request, or a new one. A longer one than can be kept is cut.
func IDOf(h http.Header) string {
	given := h[Header]
	if len(given) == 0 || given[0] == "" {
		return NewID()
	}
	if len(given[0]) > maxID {
		return given[0][:maxID]
	}
	return given[0]
}

// NewID makes a random UUID (version 4). It need be unique, not secret.
func NewID() string {
	var b [16]byte
	for i, half := range [2]uint64{rand.Uint64(), rand.Uint64()} {
		for j := range 8 {
			b[8*i+j] = byte(half >> (8 * j))
		}
	}
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	var s [36]byte
	hex.Encode(s[0:8], b[0:4])
	hex.Encode(s[9:13], b[4:6])
	hex.Encode(s[14:18], b[6:8])
	hex.Encode(s[19:23], b[8:10])
	hex.Encode(s[24:36], b[10:16])
	s[8], s[13], s[18], s[23] = '-', '-', '-', '-'
	return string(s[:])
}

// Attempts says by which means a client tried to say who it is, without any part of its credentials.
func Attempts(req *http.Request) string {
	var by []string
	if _, _, basic := req.BasicAuth(); basic {
		by = append(by, "basic")
	}
	if scheme, rest, _ := strings.Cut(strings.TrimSpace(req.Header.Get("Authorization")), " "); rest != "" && strings.EqualFold(scheme, "bearer") {
		by = append(by, "bearer")
	}
	if strings.TrimSpace(req.URL.Query().Get("access_token")) != "" {
		by = append(by, "access_token")
	}
	if req.TLS != nil && len(req.TLS.PeerCertificates) > 0 {
		by = append(by, "x509")
	}
	if len(by) == 0 {
		return "Authentication failed, no credentials provided"
	}
	return "Authentication failed, attempted: " + strings.Join(by, ", ")
}
