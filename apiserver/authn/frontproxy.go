package authn

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/utils/clock"
)

// FrontProxy says whose word about the user counts. The headers are those of the Kubernetes aggregation layer.
type FrontProxy struct {
	// CA must have signed the proxy's client certificate. It must not be the CA of users' certificates.
	CA *x509.CertPool
	// Names are the common names allowed; empty allows every certificate of CA.
	Names []string
	// UserHeaders, GroupHeaders and UIDHeaders carry the user; empty means X-Remote-User, X-Remote-Group and X-Remote-Uid.
	UserHeaders, GroupHeaders, UIDHeaders []string
	// ExtraPrefixes begin headers with the user's extra fields; empty means X-Remote-Extra-.
	ExtraPrefixes []string
}

type frontProxy struct {
	FrontProxy
	chains *chains
}

func newFrontProxy(cfg FrontProxy, clock clock.PassiveClock) (*frontProxy, error) {
	if cfg.CA == nil {
		return nil, errors.New("authn: a front proxy needs a CA: without it, every client could claim to be anybody")
	}
	orDefault := func(in *[]string, value string) {
		if len(*in) == 0 {
			*in = []string{value}
		}
	}
	orDefault(&cfg.UserHeaders, "X-Remote-User")
	orDefault(&cfg.GroupHeaders, "X-Remote-Group")
	orDefault(&cfg.UIDHeaders, "X-Remote-Uid")
	orDefault(&cfg.ExtraPrefixes, "X-Remote-Extra-")
	return &frontProxy{FrontProxy: cfg, chains: newChains(cfg.CA, clock)}, nil
}

// AuthenticateRequest has no opinion on a request that does not come from the front proxy with a user in it; such a request's headers
// mean nothing, and they are removed so that nobody behind can believe them.
func (p *frontProxy) AuthenticateRequest(req *http.Request) (*authenticator.Response, bool, error) {
	name := first(req.Header, p.UserHeaders)
	if name == "" {
		return nil, false, nil
	}
	who := &user.DefaultInfo{Name: name, UID: first(req.Header, p.UIDHeaders), Groups: all(req.Header, p.GroupHeaders), Extra: p.extra(req.Header)}
	p.strip(req.Header)
	if req.TLS == nil || len(req.TLS.PeerCertificates) == 0 {
		return nil, false, nil
	}
	if _, err := p.chains.verify(req.TLS.PeerCertificates); err != nil {
		return nil, false, nil // a user's certificate, or nobody's: that is for the next authenticator to say
	}
	if cn := req.TLS.PeerCertificates[0].Subject.CommonName; len(p.Names) > 0 && !slices.Contains(p.Names, cn) {
		return nil, false, fmt.Errorf("front proxy %q is not one of those allowed to speak for users (%s)", cn, strings.Join(p.Names, ", "))
	}
	return &authenticator.Response{User: who}, true, nil
}

func (p *frontProxy) extra(h http.Header) map[string][]string {
	out := map[string][]string{}
	for _, prefix := range p.ExtraPrefixes {
		for name, values := range h {
			if key, ok := cutFold(name, prefix); ok {
				key = unescape(strings.ToLower(key))
				out[key] = append(out[key], values...)
			}
		}
	}
	return out
}

func (p *frontProxy) strip(h http.Header) {
	for name := range h {
		for _, prefix := range p.ExtraPrefixes {
			if _, ok := cutFold(name, prefix); ok {
				delete(h, name)
			}
		}
	}
	for _, name := range slices.Concat(p.UserHeaders, p.GroupHeaders, p.UIDHeaders) {
		h.Del(name)
	}
}

func first(h http.Header, names []string) string {
	for _, n := range names {
		if v := h.Get(n); v != "" {
			return v
		}
	}
	return ""
}

func all(h http.Header, names []string) []string {
	var out []string
	for _, n := range names {
		for _, v := range h.Values(n) {
			if v != "" {
				out = append(out, v)
			}
		}
	}
	return out
}

func cutFold(s, prefix string) (string, bool) {
	if len(s) < len(prefix) || !strings.EqualFold(s[:len(prefix)], prefix) {
		return "", false
	}
	return s[len(prefix):], true
}

// unescape decodes %-escapes of a header name's part; what cannot be decoded stays as it is, so that it is at least seen.
func unescape(s string) string {
	if out, err := url.PathUnescape(s); err == nil {
		return out
	}
	return s
}
