package server

import (
	"bytes"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/yare-project/yare/apiserver/aggregation"
	"github.com/yare-project/yare/apiserver/authn"
	"github.com/yare-project/yare/internal/pki"
	"github.com/yare-project/yare/kinds/access"
)

// FrontProxy is who may speak for users, to this API server and to those behind it. Each field is the kube-apiserver flag of its name; an empty one
// leaves the cluster's own.
type FrontProxy struct {
	// ProxyClientCertFile and ProxyClientKeyFile are what API servers behind this one are shown. They are read once.
	ProxyClientCertFile, ProxyClientKeyFile string
	// RequestheaderClientCAFile has authorities of front proxies, besides the cluster's own.
	RequestheaderClientCAFile string
	// RequestheaderAllowedNames are the common names that certificates of those authorities may have; empty: any.
	RequestheaderAllowedNames []string
	// The headers in which a front proxy says who asks. API servers behind this one are told by X-Remote-User, X-Remote-Group, X-Remote-Uid and X-Remote-Extra-
	// whatever stands here, as in Kubernetes.
	RequestheaderUsernameHeaders, RequestheaderGroupHeaders, RequestheaderUIDHeaders, RequestheaderExtraHeadersPrefix []string
}

// ownFrontProxy is the common name of this server's own front-proxy certificate.
const ownFrontProxy = "front-proxy-client"

func (f *FrontProxy) check() error {
	if (f.ProxyClientCertFile == "") != (f.ProxyClientKeyFile == "") {
		return errors.New("--proxy-client-cert-file and --proxy-client-key-file go together: give both")
	}
	if f.RequestheaderClientCAFile == "" && len(slices.Concat(f.RequestheaderAllowedNames, f.RequestheaderUsernameHeaders, f.RequestheaderGroupHeaders,
		f.RequestheaderUIDHeaders, f.RequestheaderExtraHeadersPrefix)) > 0 {
		return errors.New("the --requestheader flags are about the front proxies of --requestheader-client-ca-file: give that too")
	}
	return nil
}

// names are the common names allowed, with this server's own.
func (f *FrontProxy) names() []string {
	switch {
	case f.RequestheaderClientCAFile == "":
		return []string{ownFrontProxy}
	case len(f.RequestheaderAllowedNames) == 0:
		return nil
	}
	return append(slices.Clone(f.RequestheaderAllowedNames), ownFrontProxy)
}

// trust says to the authenticator whom to believe.
func (f *FrontProxy) trust(own *pki.Authority) (*authn.FrontProxy, error) {
	out := &authn.FrontProxy{CA: own.Pool(), Names: f.names(), UserHeaders: f.RequestheaderUsernameHeaders, GroupHeaders: f.RequestheaderGroupHeaders,
		UIDHeaders: f.RequestheaderUIDHeaders, ExtraPrefixes: f.RequestheaderExtraHeadersPrefix}
	if f.RequestheaderClientCAFile == "" {
		return out, nil
	}
	certs, err := certificatesIn(f.RequestheaderClientCAFile)
	if err != nil {
		return nil, fmt.Errorf("--requestheader-client-ca-file: %w", err)
	}
	out.CA = out.CA.Clone()
	for _, c := range certs {
		out.CA.AddCert(c)
	}
	return out, nil
}

// headers are those that say who asks, to whoever believes them.
func (f *FrontProxy) headers() aggregation.Identity {
	return aggregation.Identity{Names: slices.Concat(f.RequestheaderUsernameHeaders, f.RequestheaderGroupHeaders, f.RequestheaderUIDHeaders),
		Prefixes: f.RequestheaderExtraHeadersPrefix}
}

// published is what API servers behind this one read about it.
func (p *plane) published() (*access.Authentication, error) {
	f := &p.config.FrontProxy
	out := &access.Authentication{ClientCA: p.pki.Cluster.CertPEM(), FrontProxyCA: p.pki.FrontProxy.CertPEM(), FrontProxyNames: f.names(),
		UserHeaders: f.RequestheaderUsernameHeaders, GroupHeaders: f.RequestheaderGroupHeaders, UIDHeaders: f.RequestheaderUIDHeaders,
		ExtraPrefixes: f.RequestheaderExtraHeadersPrefix}
	for _, more := range []struct {
		flag, path string
		into       *[]byte
	}{
		{"--client-ca-file", p.config.Keys.ClientCAFile, &out.ClientCA}, {"--requestheader-client-ca-file", f.RequestheaderClientCAFile, &out.FrontProxyCA},
	} {
		if more.path == "" {
			continue
		}
		certs, err := certificatesIn(more.path)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", more.flag, err)
		}
		bundle := bytes.Clone(*more.into)
		for _, c := range certs {
			bundle = append(bundle, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})...)
		}
		*more.into = bundle
	}
	return out, nil
}

type certificateFor = func(*tls.CertificateRequestInfo) (*tls.Certificate, error)

// proxyCertificate is what other API servers are shown: from the given files, or from the front proxy's authority once it is needed.
func (p *plane) proxyCertificate() (certificateFor, error) {
	f := &p.config.FrontProxy
	if f.ProxyClientCertFile == "" {
		own := sync.OnceValues(func() (*pki.Leaf, error) { return p.pki.Leaf(pki.FrontProxyClient()) })
		return func(r *tls.CertificateRequestInfo) (*tls.Certificate, error) {
			leaf, err := own()
			if err != nil {
				return nil, err
			}
			return leaf.GetClientCertificate(r)
		}, nil
	}
	pair, err := tls.LoadX509KeyPair(f.ProxyClientCertFile, f.ProxyClientKeyFile)
	if err != nil {
		return nil, fmt.Errorf("--proxy-client-cert-file %q with --proxy-client-key-file %q: %w", f.ProxyClientCertFile, f.ProxyClientKeyFile, err)
	}
	return func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }, nil
}
