package structured_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

var b64 = base64.RawURLEncoding

// provider is an OpenID Connect provider over TLS, whose keys can be exchanged.
type provider struct {
	t testing.TB
	*httptest.Server

	mu    sync.Mutex
	keys  map[string]crypto.Signer
	asked int // how often the keys were fetched
	// issuer is what its discovery document says, if not its own URL.
	issuer string
}

func newProvider(t testing.TB) *provider {
	p := &provider{t: t, keys: map[string]crypto.Signer{"rsa": newRSA(t), "ec": newEC(t)}}
	mux := http.NewServeMux()
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		issuer := p.issuer
		if issuer == "" {
			issuer = p.URL
		}
		writeJSON(w, map[string]any{"issuer": issuer, "jwks_uri": p.URL + "/keys"})
	})
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, map[string]any{"keys": p.published()}) })
	p.Server = httptest.NewUnstartedServer(mux)
	p.Config.ErrorLog = log.New(io.Discard, "", 0)
	p.StartTLS()
	t.Cleanup(p.Server.Close)
	return p
}

func newRSA(t testing.TB) *rsa.PrivateKey {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func newEC(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

// ca is the authority of the provider's certificate, as PEM.
func (p *provider) ca() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.Certificate().Raw}))
}

func (p *provider) published() []map[string]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked++
	var out []map[string]string
	for id, key := range p.keys {
		switch k := key.Public().(type) {
		case *rsa.PublicKey:
			out = append(out, map[string]string{"kty": "RSA", "kid": id, "use": "sig", "alg": "RS256",
				"n": b64.EncodeToString(k.N.Bytes()), "e": b64.EncodeToString(big.NewInt(int64(k.E)).Bytes())})
		case *ecdsa.PublicKey:
			point, _ := k.Bytes()
			out = append(out, map[string]string{"kty": "EC", "kid": id, "use": "sig", "alg": "ES256", "crv": "P-256",
				"x": b64.EncodeToString(point[1:33]), "y": b64.EncodeToString(point[33:])})
		}
	}
	return out
}

// replace exchanges all keys for one.
func (p *provider) replace(id string, key crypto.Signer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.keys = map[string]crypto.Signer{id: key}
}

// token is signed by the key of this id.
func (p *provider) token(id string, claims map[string]any) string {
	p.t.Helper()
	p.mu.Lock()
	key := p.keys[id]
	p.mu.Unlock()
	return p.signed(id, key, claims)
}

func (p *provider) signed(id string, key crypto.Signer, claims map[string]any) string {
	p.t.Helper()
	algorithm := "RS256"
	if _, ok := key.(*ecdsa.PrivateKey); ok {
		algorithm = "ES256"
	}
	text := part(map[string]any{"alg": algorithm, "kid": id}) + "." + part(claims)
	digest := sha256.Sum256([]byte(text))
	signature, err := key.Sign(rand.Reader, digest[:], crypto.SHA256)
	if k, ok := key.(*ecdsa.PrivateKey); ok {
		r, s, failed := ecdsa.Sign(rand.Reader, k, digest[:])
		signature, err = make([]byte, 64), failed
		r.FillBytes(signature[:32])
		s.FillBytes(signature[32:])
	}
	if err != nil {
		p.t.Fatal(err)
	}
	return text + "." + b64.EncodeToString(signature)
}

func part(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // a test's own literals
	}
	return b64.EncodeToString(data)
}

// unsigned is a token of the algorithm "none".
func unsigned(claims map[string]any) string {
	return part(map[string]any{"alg": "none"}) + "." + part(claims) + "."
}

// altered is a token with other claims than were signed.
func altered(token string, claims map[string]any) string {
	parts := strings.Split(token, ".")
	return parts[0] + "." + part(claims) + "." + parts[2]
}
