package server

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/yare-project/yare/internal/pki"
)

// preflight refuses to start on a host where Yare cannot work, before anything was changed. Each fault is one line: what, why, what to do.
func (c *Config) preflight() error {
	if err := pki.CheckClock(c.Clock.Now()); err != nil {
		return err
	}
	if c.Listener == nil {
		if err := checkPort("--https-listen-port", c.BindAddress, c.HTTPSPort); err != nil {
			return err
		}
	}
	if !c.WithoutNode && c.CRI == nil {
		if err := c.checkNode(); err != nil {
			return err
		}
	}
	return c.makeFolder()
}

func (c *Config) makeFolder() error {
	if c.throwaway() {
		return nil
	}
	if err := os.MkdirAll(c.DataDir, 0o700); err != nil {
		return fmt.Errorf("cannot make the data folder %s: %w; give another with --data-dir", c.DataDir, plain(err))
	}
	return nil
}

// NeedRoot refuses to run a node as anybody else.
func NeedRoot() error {
	if os.Geteuid() != 0 {
		return errors.New("not root: a node starts containers and sets up networks; run as root (sudo), or run the control plane alone with `yare server --disable-agent`")
	}
	return nil
}

func (c *Config) checkNode() error {
	if err := NeedRoot(); err != nil {
		return err
	}
	if err := checkPort("--kubelet-port", netip.IPv4Unspecified(), c.AgentPort); err != nil {
		return err
	}
	if err := checkEndpoint(c.RuntimeEndpoint); err != nil {
		return err
	}
	return checkKernel("/proc")
}

func checkPort(flag string, ip netip.Addr, port int) error {
	l, err := net.Listen("tcp", netip.AddrPortFrom(ip, uint16(port)).String())
	if err == nil {
		return l.Close()
	}
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("port %d is in use: another program (another Yare or Kubernetes?) listens there; stop it, or choose another with %s", port, flag)
	}
	if errors.Is(err, syscall.EADDRNOTAVAIL) {
		return fmt.Errorf("cannot listen on %s: no interface of this machine has that address; choose another with --bind-address", ip)
	}
	return fmt.Errorf("cannot listen on %s port %d: %w; choose another with %s", ip, port, plain(err), flag)
}

// checkKernel looks for what every pod needs.
func checkKernel(proc string) error {
	filesystems, err := os.ReadFile(filepath.Join(proc, "filesystems"))
	if err != nil {
		return fmt.Errorf("cannot read %s/filesystems: %w; is /proc mounted?", proc, plain(err))
	}
	for _, need := range []struct{ name, why string }{
		{"cgroup", "to limit what pods use"},
		{"tmpfs", "for Secrets in memory"},
		{"mqueue", "for the pods' own message queues"},
	} {
		if !strings.Contains(string(filesystems), need.name) {
			return fmt.Errorf("the kernel lacks %s, needed %s; use a kernel with it", need.name, need.why)
		}
	}
	for _, ns := range []string{"net", "mnt", "pid", "ipc", "uts"} {
		if _, err := os.Stat(filepath.Join(proc, "self", "ns", ns)); err != nil {
			return fmt.Errorf("the kernel lacks %s namespaces, needed to separate pods; use a kernel with them", ns)
		}
	}
	return nil
}

// plain takes the path off a file error, when the message names it already.
func plain(err error) error {
	var path *os.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Err
	}
	return err
}

// hostAddress is the host's own address: that of the interface with the default route, else the first global one, else loopback.
func hostAddress() (netip.Addr, error) {
	// Connecting a UDP socket sends nothing; it asks the routing table which source address would be used.
	if conn, err := net.Dial("udp4", "192.0.2.1:9"); err == nil {
		defer conn.Close()
		if a, err := netip.ParseAddrPort(conn.LocalAddr().String()); err == nil {
			return a.Addr().Unmap(), nil
		}
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return netip.Addr{}, fmt.Errorf("cannot list the host's addresses: %w; give --node-ip", err)
	}
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Is4() && p.Addr().IsGlobalUnicast() {
			return p.Addr(), nil
		}
	}
	return netip.AddrFrom4([4]byte{127, 0, 0, 1}), nil
}
