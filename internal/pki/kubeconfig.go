package pki

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Kubeconfig describes a kubeconfig with one cluster, one user and one context, all called Name.
type Kubeconfig struct {
	// Name is "default" when empty.
	Name string
	// Server is the API server's URL.
	Server string
	CA     []byte
	// Cert and Key, or Token, are the credential.
	Cert, Key []byte
	Token     string
	Namespace string
}

// Encode returns the file's content.
func (k Kubeconfig) Encode() ([]byte, error) {
	name := k.Name
	if name == "" {
		name = "default"
	}
	c := clientcmdapi.NewConfig()
	c.Clusters[name] = &clientcmdapi.Cluster{Server: k.Server, CertificateAuthorityData: k.CA}
	c.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificateData: k.Cert, ClientKeyData: k.Key, Token: k.Token}
	c.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name, Namespace: k.Namespace}
	c.CurrentContext = name
	data, err := clientcmd.Write(*c)
	if err != nil {
		return nil, fmt.Errorf("pki: encode kubeconfig: %w", err)
	}
	return data, nil
}

// Write puts the kubeconfig at path with mode (0600 when zero), unless it is there already.
func (k Kubeconfig) Write(path string, mode os.FileMode) error {
	if mode == 0 {
		mode = 0o600
	}
	data, err := k.Encode()
	if err != nil {
		return err
	}
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, data) {
		return os.Chmod(path, mode)
	}
	return WriteFile(path, data, mode)
}

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
