package authn

import (
	"crypto/ecdsa"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sort"
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
	Curve     string `json:"crv"`
	Algorithm string `json:"alg"`
	X         string `json:"x"`
	Y         string `json:"y"`
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
		ResponseTypesSupported: []string{"id_token"}, SubjectTypes: []string{"public"}, SigningAlgorithms: []string{algorithm},
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

func webKeys(keys map[string]*ecdsa.PublicKey) ([]byte, error) {
	set := struct {
		Keys []webKey `json:"keys"`
	}{Keys: []webKey{}}
	for id, k := range keys {
		point, err := k.Bytes() // 0x04, X, Y
		if err != nil || len(point) != 65 {
			return nil, fmt.Errorf("authn: token key %s cannot be published: not on P-256", id)
		}
		set.Keys = append(set.Keys, webKey{Use: "sig", KeyType: "EC", KeyID: id, Curve: "P-256", Algorithm: algorithm,
			X: b64.EncodeToString(point[1:33]), Y: b64.EncodeToString(point[33:])})
	}
	sort.Slice(set.Keys, func(i, j int) bool { return set.Keys[i].KeyID < set.Keys[j].KeyID })
	return json.Marshal(set)
}
