package node

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	internalapi "k8s.io/cri-api/pkg/apis"
	"k8s.io/utils/clock"

	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/node/cgroup"
	"github.com/yare-project/yare/node/host"
	"github.com/yare-project/yare/node/volume"
)

// Config is all that an Agent needs. Fields without a default must be set.
type Config struct {
	// Name is the Node's name, and IPs its addresses, primary first.
	Name string
	IPs  []string
	// Root is the agent's data folder. LogRoot is where the runtime writes container logs; default <Root>/logs/pods.
	Root, LogRoot string

	// Transport reaches the API as this node; Caches read through it.
	Transport client.Transport
	Caches    *client.Caches
	// Runtime and Images are the container runtime: a cri.Conn, a fake, or one in this process.
	Runtime internalapi.RuntimeService
	Images  internalapi.ImageManagerService

	// Cgroups keeps the groups above containers; default cgroup.None, which is for runtimes without cgroups.
	Cgroups cgroup.Groups
	// Mounter mounts volumes; without one nothing is mounted, which is for runtimes without containers.
	Mounter volume.Mounter
	// Host describes the machine; default: what host.Read says.
	Host *host.Facts
	// Disk answers the size of a file system; default host.DiskOf.
	Disk func(path string) (host.Disk, error)

	// ClusterDNS and ClusterDomain are the cluster's DNS; without addresses pods get the host's. ResolvConf is the host's settings;
	// default /etc/resolv.conf if there is one.
	ClusterDNS    []string
	ClusterDomain string // default cluster.local
	ResolvConf    string

	// PodCIDRs is written to the Node's spec if the API has none for it.
	PodCIDRs []string
	// KubeletPort is where the node's HTTP API listens; default 10250.
	KubeletPort int32
	MaxPods     int // default 110
	// Reserved is kept from pods: allocatable is capacity less this.
	Reserved corev1.ResourceList
	// Labels and Taints are given to the Node when it registers; NodeIPs' hostname label and the standard ones come by themselves.
	Labels map[string]string
	Taints []corev1.Taint
	// SeccompUnconfined makes containers that name no seccomp profile run without the runtime's default one.
	SeccompUnconfined bool
	// AllowedUnsafeSysctls are kernel parameters that pods may set beside the safe ones; a pattern may end with *.
	AllowedUnsafeSysctls []string
	// PluginDirs are where drivers that run on this node make the sockets by which they register. The first is made; default <Root>/plugins_registry.
	PluginDirs []string
	// PodResourcesDirs are where the PodResources API has its socket kubelet.sock. The first is made; others count if they are there. Default <Root>/pod-resources.
	PodResourcesDirs []string
	// KubeletVersion is reported in the Node's status; default v1.36.0+yare.
	KubeletVersion string

	// Event records an Event; loop.Recorder.EventAbout has its shape. It must not block. Default: dropped.
	Event   func(about corev1.ObjectReference, kind, reason, message string)
	Clock   clock.WithTicker      // default: the real one
	Log     *slog.Logger          // default: slog.Default()
	Metrics prometheus.Registerer // default: none
}

// complete checks a Config and fills in defaults.
func (c *Config) complete() error {
	var missing []error
	need := func(ok bool, name string) {
		if !ok {
			missing = append(missing, fmt.Errorf("node.Config.%s must be set", name))
		}
	}
	need(c.Name != "", "Name")
	need(len(c.IPs) > 0, "IPs")
	need(filepath.IsAbs(c.Root), "Root (an absolute path)")
	need(c.Transport != nil, "Transport")
	need(c.Caches != nil, "Caches")
	need(c.Runtime != nil, "Runtime")
	need(c.Images != nil, "Images")
	if len(missing) > 0 {
		return errors.Join(missing...)
	}
	if c.Host == nil {
		f, err := host.Read()
		if err != nil {
			return fmt.Errorf("facts of this machine: %w", err)
		}
		c.Host = &f
	}
	c.defaults()
	return nil
}

func (c *Config) defaults() {
	if c.LogRoot == "" {
		c.LogRoot = filepath.Join(c.Root, "logs", "pods")
	}
	if c.Cgroups == nil {
		c.Cgroups = cgroup.None{}
	}
	if c.Disk == nil {
		c.Disk = host.DiskOf
	}
	if c.ClusterDomain == "" {
		c.ClusterDomain = "cluster.local"
	}
	if c.ResolvConf == "" {
		if _, err := os.Stat("/etc/resolv.conf"); err == nil {
			c.ResolvConf = "/etc/resolv.conf"
		}
	}
	if len(c.PluginDirs) == 0 {
		c.PluginDirs = []string{filepath.Join(c.Root, "plugins_registry")}
	}
	if len(c.PodResourcesDirs) == 0 {
		c.PodResourcesDirs = []string{filepath.Join(c.Root, "pod-resources")}
	}
	if c.KubeletPort == 0 {
		c.KubeletPort = 10250
	}
	if c.MaxPods == 0 {
		c.MaxPods = 110
	}
	if c.KubeletVersion == "" {
		c.KubeletVersion = "v1.36.0+yare"
	}
	if c.Event == nil {
		c.Event = func(corev1.ObjectReference, string, string, string) {}
	}
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
}

func platform() (os, arch string) { return runtime.GOOS, runtime.GOARCH }
