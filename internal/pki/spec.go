package pki

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"
)

// LeafSpec is what an issued certificate must say.
type LeafSpec struct {
	// Name is the file's name without extension.
	Name string
	// User and Groups become the subject's common name and organizations: who the holder is to the API server.
	User   string
	Groups []string
	// Hosts and IPs are what a serving certificate is valid for.
	Hosts []string
	IPs   []net.IP
	// Server and Client are what the certificate may be used for.
	Server, Client bool
	// FrontProxy has it signed by the front-proxy authority.
	FrontProxy bool
	// Life overrides the configured life.
	Life time.Duration
}

// APIServer is the API server's serving certificate: the names under which pods and the machine itself reach it, and the given
// addresses, among which must be the first of the service network.
func APIServer(clusterDomain string, hosts []string, ips []net.IP) LeafSpec {
	names := []string{"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc." + clusterDomain, "localhost"}
	return LeafSpec{Name: "apiserver", User: "kube-apiserver", Server: true,
		Hosts: unique(append(names, hosts...)),
		IPs:   uniqueIPs(append([]net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}, ips...))}
}

// NodeServing is the serving certificate of a node agent.
func NodeServing(node string, hosts []string, ips []net.IP) LeafSpec {
	return LeafSpec{Name: "node-serving-" + node, User: "system:node:" + node, Groups: []string{"system:nodes"}, Server: true,
		Hosts: unique(append([]string{node}, hosts...)), IPs: uniqueIPs(ips)}
}

// NodeClient is the client certificate of a node agent: the identity that the Node authorizer and NodeRestriction confine.
func NodeClient(node string) LeafSpec {
	return LeafSpec{Name: "node-client-" + node, User: "system:node:" + node, Groups: []string{"system:nodes"}, Client: true}
}

// Admin is the client certificate of the cluster's owner: group system:masters, which no authorizer refuses.
func Admin() LeafSpec {
	return LeafSpec{Name: "admin", User: "system:admin", Groups: []string{"system:masters"}, Client: true}
}

// KubeletClient is what the API server shows to node agents.
func KubeletClient() LeafSpec {
	return LeafSpec{Name: "apiserver-kubelet-client", User: "kube-apiserver-kubelet-client", Groups: []string{"system:masters"}, Client: true}
}

// FrontProxyClient is what the API server shows to aggregated API servers.
func FrontProxyClient() LeafSpec {
	return LeafSpec{Name: "front-proxy-client", User: "front-proxy-client", Client: true, FrontProxy: true}
}

func (s LeafSpec) template() *x509.Certificate {
	c := &x509.Certificate{
		Subject:               pkix.Name{CommonName: s.User, Organization: s.Groups},
		DNSNames:              s.Hosts,
		IPAddresses:           s.IPs,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
	}
	if s.Server {
		c.ExtKeyUsage = append(c.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	if s.Client {
		c.ExtKeyUsage = append(c.ExtKeyUsage, x509.ExtKeyUsageClientAuth)
	}
	return c
}

// matches says what in cert is not as the spec wants it.
func (s LeafSpec) matches(cert *x509.Certificate) error {
	if cert.Subject.CommonName != s.User || !sameSet(cert.Subject.Organization, s.Groups) {
		return fmt.Errorf("it is %q's", cert.Subject)
	}
	for _, h := range s.Hosts {
		if !slices.Contains(cert.DNSNames, h) {
			return fmt.Errorf("it lacks the name %s", h)
		}
	}
	for _, ip := range s.IPs {
		if !slices.ContainsFunc(cert.IPAddresses, ip.Equal) {
			return fmt.Errorf("it lacks the address %s", ip)
		}
	}
	want := s.template().ExtKeyUsage
	if len(want) != len(cert.ExtKeyUsage) || slices.ContainsFunc(want, func(u x509.ExtKeyUsage) bool { return !slices.Contains(cert.ExtKeyUsage, u) }) {
		return errors.New("it is for another use")
	}
	return nil
}

func sameSet(a, b []string) bool {
	a, b = slices.Clone(a), slices.Clone(b)
	slices.Sort(a)
	slices.Sort(b)
	return strings.Join(a, "\x00") == strings.Join(b, "\x00")
}

func unique(in []string) []string {
	var out []string
	for _, s := range in {
		if s != "" && !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

func uniqueIPs(in []net.IP) []net.IP {
	var out []net.IP
	for _, ip := range in {
		if len(ip) > 0 && !slices.ContainsFunc(out, ip.Equal) {
			out = append(out, ip)
		}
	}
	return out
}
