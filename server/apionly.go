package server

import (
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"slices"

	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/internal/kubeconfig"
	"github.com/yare-project/yare/internal/pki"
	"github.com/yare-project/yare/loop"
)

// throwaway tells whether nothing is kept: a server for a test, in memory alone.
func (c *Config) throwaway() bool { return c.DataDir == "" }

func (c *Config) completeFolder() error {
	if c.DataDir == "" && c.APIOnly && c.Backend == Memory {
		return nil
	}
	if c.DataDir == "" {
		c.DataDir = "/var/lib/yare"
	}
	dir, err := filepath.Abs(c.DataDir)
	if err != nil {
		return fmt.Errorf("--data-dir %q: %w", c.DataDir, err)
	}
	c.DataDir = dir
	return nil
}

// listenerAddress is where Listener listens, if there is one on TCP.
func (c *Config) listenerAddress() (netip.AddrPort, bool) {
	if c.Listener == nil {
		return netip.AddrPort{}, false
	}
	tcp, ok := c.Listener.Addr().(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}, false
	}
	at := tcp.AddrPort()
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port()), true
}

// pick leaves out the loops that are not wanted.
func (c *Config) pick(all []loop.Descriptor) []loop.Descriptor {
	return slices.DeleteFunc(all, func(d loop.Descriptor) bool { return !c.Runs(d.Name) })
}

// Local reaches the API as the server itself, without a connection.
func (cl *Cluster) Local() client.Transport { return cl.plane.gate.Local(superuser) }

// Calls tells whether the webhooks of a configuration of this name are called by now: they are soon after it was written, not with it.
func (cl *Cluster) Calls(configuration string) bool { return cl.plane.dynamic.Calls(configuration) }

// User makes a client certificate for a user of these groups, and says how to use it. It cannot be taken back: it ends with the cluster's authority or
// after a year.
func (cl *Cluster) User(context, name string, groups ...string) (kubeconfig.Entry, error) {
	entry := cl.plane.address(context)
	var err error
	entry.Cert, entry.Key, err = cl.plane.pki.Cluster.Pair(pki.LeafSpec{Name: name, User: name, Groups: groups, Client: true})
	return entry, err
}

// Serving makes a certificate with which a program beside the cluster can serve, for names and addresses, and that whoever trusts the cluster trusts.
func (cl *Cluster) Serving(names []string, ips []net.IP) (cert, key, authority []byte, err error) {
	cert, key, err = cl.plane.pki.Cluster.Pair(pki.LeafSpec{Name: "serving", User: "serving", Hosts: names, IPs: ips, Server: true})
	return cert, key, cl.plane.pki.Cluster.CertPEM(), err
}
