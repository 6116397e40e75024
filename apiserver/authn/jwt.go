package authn

import (
	"crypto"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
)

// The JSON Web Tokens of service accounts (RFC 7519). The algorithm is that of the key (package-local algorithmOf): what a token's header says about it is
// checked, never followed.

var b64 = base64.RawURLEncoding.Strict()

type header struct {
	Algorithm string   `json:"alg"`
	KeyID     string   `json:"kid,omitempty"`
	Critical  []string `json:"crit,omitempty"`
}

// Claims are what a service-account token says.
type Claims struct {
	Issuer     string    `json:"iss,omitempty"`
	Subject    string    `json:"sub,omitempty"`
	Audience   audience  `json:"aud,omitempty"`
	Expires    timestamp `json:"exp,omitempty"`
	NotBefore  timestamp `json:"nbf,omitempty"`
	IssuedAt   timestamp `json:"iat,omitempty"`
	ID         string    `json:"jti,omitempty"`
	Kubernetes private   `json:"kubernetes.io,omitzero"`
	legacy
}

// legacy are the claims of tokens that are kept in Secrets.
type legacy struct {
	Namespace  string `json:"kubernetes.io/serviceaccount/namespace,omitempty"`
	Secret     string `json:"kubernetes.io/serviceaccount/secret.name,omitempty"`
	Account    string `json:"kubernetes.io/serviceaccount/service-account.name,omitempty"`
	AccountUID string `json:"kubernetes.io/serviceaccount/service-account.uid,omitempty"`
}

// private are Kubernetes' own claims.
type private struct {
	Namespace      string `json:"namespace,omitempty"`
	ServiceAccount bound  `json:"serviceaccount,omitzero"`
	Pod            *bound `json:"pod,omitempty"`
	Secret         *bound `json:"secret,omitempty"`
	Node           *bound `json:"node,omitempty"`
	// WarnAfter is when whoever holds the token should have fetched a new one, though this one lives longer.
	WarnAfter timestamp `json:"warnafter,omitempty"`
}

// bound names one object, and which of those that ever had the name.
type bound struct {
	Name string `json:"name,omitempty"`
	UID  string `json:"uid,omitempty"`
}

// audience is a list that may be written as a single string (RFC 7519 section 4.1.3).
type audience []string

func (a *audience) UnmarshalJSON(data []byte) error {
	var one string
	if json.Unmarshal(data, &one) == nil {
		*a = audience{one}
		return nil
	}
	return json.Unmarshal(data, (*[]string)(a))
}

// timestamp is a NumericDate: seconds since 1970, perhaps with a fraction, which is dropped.
type timestamp int64

func (t *timestamp) UnmarshalJSON(data []byte) error {
	var f float64
	if err := json.Unmarshal(data, &f); err != nil {
		return err
	}
	if math.IsNaN(f) || f < 0 || f > 1<<40 {
		return fmt.Errorf("%v is not a time", f)
	}
	*t = timestamp(f)
	return nil
}

func (t timestamp) time() time.Time { return time.Unix(int64(t), 0) }

// parsed is a token taken apart; nothing of it is to be believed before verify.
type parsed struct {
	header    header
	claims    Claims
	signed    string
	signature []byte
}

// errNotJWT says that a string is not a JSON Web Token at all, so that somebody else may know it.
var errNotJWT = errors.New("not a JSON Web Token")

// parse takes a token apart. Its length was bounded by the caller.
func parse(token string) (*parsed, error) {
	head, rest, ok := strings.Cut(token, ".")
	body, signature, ok2 := strings.Cut(rest, ".")
	if !ok || !ok2 || head == "" || body == "" || signature == "" || strings.Contains(signature, ".") {
		return nil, errNotJWT
	}
	p := &parsed{signed: token[:len(head)+1+len(body)]}
	if err := decodePart(head, &p.header); err != nil {
		return nil, errNotJWT
	}
	if err := decodePart(body, &p.claims); err != nil {
		return nil, errNotJWT
	}
	var err error
	if p.signature, err = b64.DecodeString(signature); err != nil {
		return nil, errNotJWT
	}
	return p, nil
}

func decodePart(s string, into any) error {
	data, err := b64.DecodeString(s)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}

// verify checks the signature by the keys, by key id.
func (p *parsed) verify(keys map[string]crypto.PublicKey) error {
	if len(p.header.Critical) > 0 {
		return errors.New("token has critical header parameters that are not understood")
	}
	key, ok := keys[p.header.KeyID]
	if !ok {
		return errors.New("token is signed by an unknown key")
	}
	algorithm, err := algorithmOf(key)
	if err != nil {
		return err
	}
	if p.header.Algorithm != algorithm.name {
		return fmt.Errorf("token is signed with %q, only %s is accepted from its key", p.header.Algorithm, algorithm.name)
	}
	if !algorithm.good(key, p.signed, p.signature) {
		return errors.New("token's signature is not valid")
	}
	return nil
}

// leeway is how far clocks may differ.
const leeway = time.Minute

// current checks the token's times.
func (c *Claims) current(now time.Time) error {
	switch {
	case c.Expires == 0:
		return errors.New("token has no expiration")
	case now.Add(-leeway).After(c.Expires.time()):
		return errors.New("service account token has expired")
	case now.Add(leeway).Before(c.NotBefore.time()):
		return errors.New("service account token is not valid yet")
	case now.Add(leeway).Before(c.IssuedAt.time()):
		return errors.New("service account token is issued in the future")
	}
	return nil
}
