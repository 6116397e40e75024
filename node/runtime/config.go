package runtime

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/utils/clock"

	"github.com/yare-project/yare/node/cni"
)

// PauseImage is the name of the built-in image whose one process holds a pod's
// namespaces. It is the name that Kubernetes 1.36 uses, so that manifests and
// tests which refer to it find it; nothing is pulled.
const PauseImage = "registry.k8s.io/pause:3.10.2"

// Config says what runtime to use and where its files are.
type Config struct {
	// Endpoint of a runtime that somebody else runs, such as
	// unix:///run/containerd/containerd.sock. When set, everything below but Log
	// and Clock is unused.
	Endpoint string

	// Dir keeps what must survive a reboot: images, logs, settings.
	Dir string
	// BinDir holds containerd, containerd-shim-runc-v2, runc, bridge, host-local,
	// portmap and pause.
	BinDir string
	// RunDir is where folders for sockets and mounts are made, on a file system
	// that a reboot clears. Socket names are limited to 107 bytes, so it must be
	// short. Empty means /run/yare.
	RunDir string
	// PodCIDRs are the node's ranges of pod addresses; empty when the server is yet
	// to assign them (SetPodCIDRs).
	PodCIDRs []netip.Prefix
	// MTU of pod interfaces in bytes; 0 takes the kernel's default.
	MTU int
	// CgroupRoots are control groups below which Remove removes what is empty,
	// relative to each hierarchy's root. Empty means kubepods.
	CgroupRoots []string
	// LogLevel of containerd: "debug", "info", "warn", "error". Empty means "warn".
	LogLevel string

	Clock clock.Clock
	Log   *slog.Logger
}

func (c Config) withDefaults() (Config, error) {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	if c.Endpoint != "" {
		return c, nil
	}
	if c.Dir == "" {
		return c, errors.New("container runtime: Dir is not set")
	}
	abs, err := filepath.Abs(c.Dir)
	if err != nil {
		return c, fmt.Errorf("container runtime: %w", err)
	}
	c.Dir = abs
	if c.RunDir == "" {
		c.RunDir = "/run/yare"
	}
	if len(c.CgroupRoots) == 0 {
		c.CgroupRoots = []string{"kubepods"}
	}
	if c.LogLevel == "" {
		c.LogLevel = "warn"
	}
	return c, nil
}

// programs that the runtime can't do without.
var programs = []string{"containerd", "containerd-shim-runc-v2", "runc", "bridge", "host-local", "portmap", "pause"}

func (c Config) checkPrograms() error {
	abs, err := filepath.Abs(c.BinDir)
	if err != nil {
		return fmt.Errorf("container runtime: %w", err)
	}
	var missing []string
	for _, p := range programs {
		if info, err := os.Stat(filepath.Join(abs, p)); err != nil || info.Mode()&0o111 == 0 {
			missing = append(missing, p)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("container runtime: %s not found in %s: build them with `make programs`, or use a running containerd or CRI-O with --container-runtime-endpoint",
			strings.Join(missing, ", "), abs)
	}
	return nil
}

// ID names Dir among the data folders on this machine: 8 hexadecimal digits. What
// a cluster makes outside its folder is named after it.
func (c Config) ID() string {
	if abs, err := filepath.Abs(c.Dir); err == nil {
		c.Dir = abs
	}
	return c.paths().id
}

// RegistryDir holds settings for registries, one folder for each host:
// <host>/hosts.toml in containerd's format names mirrors, CAs and plain HTTP.
// Loopback registries speak plain HTTP without.
func (c Config) RegistryDir() string { return c.paths().certs }

// Socket is the address of the runtime that Start runs for Dir. Another process
// reaches it, while it runs, with Config{Endpoint: c.Socket()}.
func (c Config) Socket() string {
	c, err := c.withDefaults()
	if err != nil {
		return ""
	}
	return "unix://" + c.paths().socket
}

// paths are the files of one embedded runtime.
type paths struct {
	id string // tells this data folder from others on the machine

	root, log, certs, cniConf string // below Dir

	state, socket, config, record, shims, cni string // below RunDir
}

func (c Config) paths() paths {
	sum := sha256.Sum256([]byte(c.Dir))
	id := hex.EncodeToString(sum[:4])
	state := filepath.Join(c.RunDir, id)
	return paths{
		id:      id,
		root:    filepath.Join(c.Dir, "containerd"),
		log:     filepath.Join(c.Dir, "containerd.log"),
		certs:   filepath.Join(c.Dir, "certs.d"),
		cniConf: filepath.Join(c.Dir, "cni", "net.d"),
		state:   state,
		socket:  filepath.Join(state, "containerd.sock"),
		config:  filepath.Join(state, "containerd.toml"),
		record:  filepath.Join(state, "containerd.json"),
		shims:   filepath.Join(state, "s"),
		cni:     filepath.Join(state, "cni"),
	}
}

// maxShimDir leaves room, within the kernel's limit on socket names, for the 64
// hexadecimal digits and a slash that containerd appends.
const maxShimDir = 107 - 1 - 65

func (p paths) validate() error {
	if len(p.shims) > maxShimDir {
		return fmt.Errorf("container runtime: RunDir %s is too long: sockets below it would exceed the kernel's 107 bytes; use at most %d",
			filepath.Dir(p.state), maxShimDir-len("/12345678/s"))
	}
	return nil
}

func (c Config) network(p paths) cni.Config {
	return cni.Config{ID: p.id, ConfDir: p.cniConf, StateDir: p.cni, PodCIDRs: c.PodCIDRs, MTU: c.MTU}
}

func (c Config) settings(p paths) cni.Settings {
	return cni.Settings{Proc: "/proc/sys", StateDir: p.cni, Peers: filepath.Join(c.RunDir, "*", "cni"), Load: modprobe}
}
