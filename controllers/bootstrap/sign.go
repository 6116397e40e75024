package bootstrap

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
)

// sign makes the JSON Web Signature (RFC 7515, appendix F: without its content) that kubeadm compares with its own: HS256, the token's secret as the key, its
// id as the key's.
func sign(content, id, secret string) string {
	quoted, err := json.Marshal(id)
	if err != nil {
		return "" // strings can always be encoded
	}
	header := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"HS256","kid":` + string(quoted) + `}`))
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(header + "." + base64.RawURLEncoding.EncodeToString([]byte(content))))
	return header + ".." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}
