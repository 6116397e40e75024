// Package server puts Yare together: it builds every component from its own config, starts them in order, prints what took how long,
// and drains them in reverse.
//
// Nothing else in the module constructs more than its own part. The package holds no behaviour of the API, the scheduler or the node.
package server

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	internalapi "k8s.io/cri-api/pkg/apis"
	"k8s.io/utils/clock"

	"github.com/yare-project/yare/apiserver"
	"github.com/yare-project/yare/apiserver/audit"
)

// Backend names where the state lives.
type Backend string

const (
	Disk   Backend = "disk"   // under DataDir: survives everything but the disk
	Memory Backend = "memory" // gone with the process: tests, throw-away clusters
)

// Config is everything that a Yare process is told. Zero fields take the defaults of Complete.
type Config struct {
	// DataDir holds all state: one folder, one cluster.
	DataDir string
	Backend Backend
	// BindAddress and HTTPSPort are where the API server listens.
	BindAddress netip.Addr
	HTTPSPort   int
	// AdvertiseAddress is the API server's address as pods and other nodes reach it; zero takes NodeIP.
	AdvertiseAddress netip.Addr
	// TLSNames are further DNS names and addresses for the API server's certificate.
	TLSNames []string
	// Listener is an open socket for the API server instead of BindAddress and HTTPSPort: whoever wants a free port opens port 0. Stopping closes it.
	Listener net.Listener
	// Keys are files that stand for the cluster's own certificates and keys.
	Keys Keys
	// Identity is who else is believed, and who decides what they may do.
	Identity Identity
	// FrontProxy is who may speak for users.
	FrontProxy FrontProxy
	// Token lets a bearer act as cluster administrator ("--token"); empty means none.
	Token string

	NodeName string
	NodeIP   netip.Addr
	// AgentPort is the node agent's HTTPS port.
	AgentPort int
	// APIOnly runs the API server and nothing around it: no node, no scheduler, no Services of the cluster's own, and of the loops only those that
	// Controllers names. With Memory and without a DataDir, nothing is written to disk.
	APIOnly bool
	// Controllers picks the loops as kube-controller-manager's --controllers does: "*" is all of them, a name one, and "-" before a name leaves it
	// out. Nil means all, with APIOnly none.
	Controllers []string
	// EnableAdmissionPlugins and DisableAdmissionPlugins switch the built-in admission plugins, as kube-apiserver's flags of these names do.
	EnableAdmissionPlugins, DisableAdmissionPlugins []string
	// NotReadySeconds and UnreachableSeconds are how long pods that do not say stay on a node that is not ready or not reachable; nil: 300.
	NotReadySeconds, UnreachableSeconds *int64
	// AdmissionConfigFile is the path of an AdmissionConfiguration that configures admission plugins. Empty: they have their defaults.
	AdmissionConfigFile string
	// Audit says what is recorded of requests, and where.
	Audit audit.Options
	// AtRest says what is encrypted on disk.
	AtRest AtRest
	// Observe hears of every request that is answered, in its goroutine. Nil: nobody does.
	Observe func(apiserver.AuditEvent)
	// WithoutNode runs the control plane alone.
	WithoutNode bool
	NodeLabels  map[string]string

	ClusterCIDR   netip.Prefix
	ServiceCIDR   netip.Prefix
	ClusterDNS    netip.Addr
	ClusterDomain string
	NodePorts     [2]int // first and last

	// RuntimeDir holds the programs of the container runtime (containerd, runc, CNI plugins).
	RuntimeDir string
	// RuntimeEndpoint uses a container runtime that is there already ("unix:///run/containerd/containerd.sock").
	RuntimeEndpoint string

	// CRI, when set, is a container runtime in this process that runs no real containers: networks, mounts and control groups are left alone.
	CRI func() (internalapi.RuntimeService, internalapi.ImageManagerService)

	// Load is how the API server shares itself out among its clients, and how it ends.
	Load Load

	// SchedulerConfig is the path of a KubeSchedulerConfiguration; empty means the default profile.
	SchedulerConfig string

	Clock clock.WithTicker
	Log   *slog.Logger
	// Steps hears of each step of the start as it ends.
	Steps func(Step)
}

// Complete fills defaults and refuses what cannot work, one clear line a fault.
func (c *Config) Complete() error {
	if err := c.completeFolder(); err != nil {
		return err
	}
	if c.Backend == "" {
		c.Backend = Disk
	}
	if c.Backend != Disk && c.Backend != Memory {
		return fmt.Errorf("--store %q is not known: use disk or memory", c.Backend)
	}
	if at, ok := c.listenerAddress(); ok {
		c.BindAddress, c.HTTPSPort = at.Addr(), int(at.Port())
	}
	setDefault(&c.BindAddress, netip.IPv4Unspecified())
	setDefault(&c.HTTPSPort, 6443)
	setDefault(&c.AgentPort, 10250)
	setDefault(&c.ClusterCIDR, netip.MustParsePrefix("10.42.0.0/16"))
	setDefault(&c.ServiceCIDR, netip.MustParsePrefix("10.43.0.0/16"))
	setDefault(&c.ClusterDomain, "cluster.local")
	setDefault(&c.NodePorts, [2]int{30000, 32767})
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	if c.Steps == nil {
		c.Steps = func(Step) {}
	}
	c.WithoutNode = c.WithoutNode || c.APIOnly
	return errors.Join(c.completeNode(), c.completeNetwork(), c.FrontProxy.check(), c.Keys.check(), c.checkControllers(), c.choice().Check(), c.Audit.Validate(), c.AtRest.check(), c.Load.complete())
}

func (c *Config) completeNode() error {
	if c.NodeName == "" {
		host, err := os.Hostname()
		if err != nil {
			return fmt.Errorf("cannot read the host's name: %w; give --node-name", err)
		}
		c.NodeName = strings.ToLower(host)
	}
	if faults := validation.IsDNS1123Subdomain(c.NodeName); len(faults) > 0 {
		return fmt.Errorf("--node-name %q: %s", c.NodeName, strings.Join(faults, "; "))
	}
	for key, value := range c.NodeLabels {
		if faults := append(validation.IsQualifiedName(key), validation.IsValidLabelValue(value)...); len(faults) > 0 {
			return fmt.Errorf("--node-label %q: %s", key+"="+value, strings.Join(faults, "; "))
		}
	}
	if !c.NodeIP.IsValid() {
		ip, err := hostAddress()
		if err != nil {
			return err
		}
		c.NodeIP = ip
	}
	if c.RuntimeDir == "" {
		c.RuntimeDir = defaultRuntimeDir()
	}
	return nil
}

func (c *Config) completeNetwork() error {
	if c.ClusterCIDR.Overlaps(c.ServiceCIDR) {
		return fmt.Errorf("--cluster-cidr %s and --service-cidr %s overlap: give two separate ranges", c.ClusterCIDR, c.ServiceCIDR)
	}
	c.ClusterCIDR, c.ServiceCIDR = c.ClusterCIDR.Masked(), c.ServiceCIDR.Masked()
	if c.ServiceCIDR.Bits() > c.ServiceCIDR.Addr().BitLen()-4 {
		return fmt.Errorf("--service-cidr %s is too small: it must hold 16 addresses at least", c.ServiceCIDR)
	}
	if !c.ClusterDNS.IsValid() {
		c.ClusterDNS = nthAddress(c.ServiceCIDR, 10)
	}
	if !c.ServiceCIDR.Contains(c.ClusterDNS) {
		return fmt.Errorf("--cluster-dns %s is not in --service-cidr %s", c.ClusterDNS, c.ServiceCIDR)
	}
	if !c.AdvertiseAddress.IsValid() {
		c.AdvertiseAddress = c.NodeIP
		// A machine without a network: pods can reach the address that each node has for DNS, never its loopback.
		if c.NodeIP.IsLoopback() {
			c.AdvertiseAddress = c.ClusterDNS
		}
	}
	if faults := validation.IsDNS1123Subdomain(c.ClusterDomain); len(faults) > 0 {
		return fmt.Errorf("--cluster-domain %q: %s", c.ClusterDomain, strings.Join(faults, "; "))
	}
	if err := c.checkPorts(); err != nil {
		return err
	}
	if c.NodePorts[0] < 1 || c.NodePorts[1] > 65535 || c.NodePorts[0] > c.NodePorts[1] {
		return fmt.Errorf("--service-node-port-range %d-%d is not a range of ports", c.NodePorts[0], c.NodePorts[1])
	}
	return nil
}

func (c *Config) checkPorts() error {
	for _, p := range []struct {
		flag string
		port int
	}{{"--https-listen-port", c.HTTPSPort}, {"--kubelet-port", c.AgentPort}} {
		if p.port < 1 || p.port > 65535 {
			return fmt.Errorf("%s %d is not a port: give one from 1 to 65535", p.flag, p.port)
		}
	}
	return nil
}

// KubernetesService is the address of the Service "kubernetes": the first of the service range.
func (c *Config) KubernetesService() netip.Addr { return nthAddress(c.ServiceCIDR, 1) }

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// nthAddress is the n-th address after a prefix's first.
func nthAddress(p netip.Prefix, n int) netip.Addr {
	a := p.Masked().Addr()
	for range n {
		a = a.Next()
	}
	return a
}

// defaultRuntimeDir is the folder "runtime" beside the running program.
func defaultRuntimeDir() string {
	exe, err := os.Executable()
	if err != nil {
		return "runtime"
	}
	if resolved, err := filepath.EvalSymlinks(exe); err == nil {
		exe = resolved
	}
	return filepath.Join(filepath.Dir(exe), "runtime")
}
