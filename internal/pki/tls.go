package pki

import (
	"crypto/tls"
	"crypto/x509"
)

// ServerTLS is a server's configuration: leaf's certificate, TLS 1.2 or newer, HTTP/2, and client certificates asked for but not
// demanded. Who presents one that none of clients signed is told apart by the authenticator, so that a token beside it still counts.
func ServerTLS(leaf *Leaf) *tls.Config {
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		NextProtos:     []string{"h2", "http/1.1"},
		ClientAuth:     tls.RequestClientCert,
		GetCertificate: leaf.GetCertificate,
	}
}

// ClientTLS is a client's configuration: it trusts roots only and shows leaf's certificate, if leaf is not nil.
func ClientTLS(roots *x509.CertPool, leaf *Leaf) *tls.Config {
	c := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}
	if leaf != nil {
		c.GetClientCertificate = leaf.GetClientCertificate
	}
	return c
}
