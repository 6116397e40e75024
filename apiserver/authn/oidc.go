package authn

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"net/http"
	"slices"
)

// Paths of the OpenID Connect discovery documents.
const (
	OIDCConfigurationPath = "/.well-known/openid-configuration"
	OIDCKeysPath          = "/openid/v1/jwks"
)

type providerMetadata struct {
	Issuer                 string   `json:"issuer"`
	JWKSURI                string   `json:"jwks_uri"`
	ResponseTypesSupported []string `json:"response_types_supported"`
	SubjectTypes           []string `json:"subject_types_supported"`
	SigningAlgorithms      []string `json:"id_token_signing_alg_values_supported"`
}

type webKey struct {
	Use       string `json:"use"`
	KeyType   string `json:"kty"`
	KeyID     string `json:"kid"`
	Algorithm string `json:"alg"`
	// Curve, X and Y are of EC keys, N and E of RSA ones.
	Curve string `json:"crv,omitempty"`
	X     string `json:"x,omitempty"`
	Y     string `json:"y,omitempty"`
	N     string `json:"n,omitempty"`
	E     string `json:"e,omitempty"`
}

// Discovery serves the two documents by which others check service-account tokens (OpenID Connect Discovery 1.0). jwksURI is where
// the keys are found from outside; empty means below the issuer.
func Discovery(cfg Config, jwksURI string) (http.Handler, error) {
	if cfg.TokenKey == nil {
		return nil, errors.New("authn: discovery needs the token key")
	}
	if jwksURI == "" {
		jwksURI = cfg.Issuer + OIDCKeysPath
	}
	configuration, err := json.Marshal(providerMetadata{
		Issuer: cfg.Issuer, JWKSURI: jwksURI,
		ResponseTypesSupported: []string{"id_token"}, SubjectTypes: []string{"public"}, SigningAlgorithms: algorithmsOf(keysOf(cfg)),
	})
	if err != nil {
		return nil, fmt.Errorf("authn: discovery: %w", err)
	}
	keys, err := webKeys(keysOf(cfg))
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+OIDCConfigurationPath, document("application/json", configuration))
	mux.HandleFunc("GET "+OIDCKeysPath, document("application/jwk-set+json", keys))
	return mux, nil
}

func document(contentType string, body []byte) http.HandlerFunc {
	body = slices.Clone(body)
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.Header().Set("Cache-Control", "public, max-age=3600")
		w.Write(body)
	}
}

func webKeys(keys map[string]crypto.PublicKey) ([]byte, error) {
	set := struct {
		Keys []webKey `json:"keys"`
	}{Keys: []webKey{}}
	for _, id := range slices.Sorted(maps.Keys(keys)) {
		k, err := webKeyOf(id, keys[id])
		if err != nil {
			return nil, err
		}
		set.Keys = append(set.Keys, k)
	}
	return json.Marshal(set)
}

func webKeyOf(id string, key crypto.PublicKey) (webKey, error) {
	algorithm, err := algorithmOf(key)
	if err != nil {
		return webKey{}, err
	}
	out := webKey{Use: "sig", KeyID: id, Algorithm: algorithm.name}
	switch k := key.(type) {
	case *rsa.PublicKey:
		out.KeyType, out.N, out.E = "RSA", b64.EncodeToString(k.N.Bytes()), b64.EncodeToString(big.NewInt(int64(k.E)).Bytes())
	case *ecdsa.PublicKey:
		point, err := k.Bytes() // 0x04, X, Y
		if err != nil {
			return webKey{}, fmt.Errorf("authn: token key %s cannot be published: %w", id, err)
		}
		half := 1 + len(point)/2
		out.KeyType, out.Curve = "EC", k.Curve.Params().Name
		out.X, out.Y = b64.EncodeToString(point[1:half]), b64.EncodeToString(point[half:])
	}
	return out, nil
}

// algorithmsOf are those with which any of the keys signs.
func algorithmsOf(keys map[string]crypto.PublicKey) []string {
	var out []string
	for _, k := range keys {
		if a, err := algorithmOf(k); err == nil && !slices.Contains(out, a.name) {
			out = append(out, a.name)
		}
	}
	slices.Sort(out)
	return out
}
