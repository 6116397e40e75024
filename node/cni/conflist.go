package cni

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
)

// FileName is the network's file in the configuration folder. It sorts early,
// because a runtime takes the first; a file that sorts before it replaces Yare's
// network.
const FileName = "10-yare.conflist"

// Config describes the pod network of one node of one cluster.
type Config struct {
	// ID tells this cluster's node from others on the machine: up to 10 lower-case
	// letters and digits, because the kernel limits interface names to 15 bytes.
	ID string
	// ConfDir is the folder that the container runtime reads.
	ConfDir string
	// StateDir keeps address leases and what must be restored later. It should not
	// outlive a reboot.
	StateDir string
	// PodCIDRs are the ranges that pods get addresses from: one per IP family.
	PodCIDRs []netip.Prefix
	// MTU of pod interfaces in bytes; 0 takes the kernel's default.
	MTU int
}

var validID = regexp.MustCompile(`^[a-z0-9]{1,10}$`)

func (c Config) validate() error {
	if !validID.MatchString(c.ID) {
		return fmt.Errorf("pod network: ID %q must be 1 to 10 lower-case letters and digits", c.ID)
	}
	if len(c.PodCIDRs) == 0 {
		return errors.New("pod network: no pod CIDR is set: pods need a range to take addresses from")
	}
	var v4, v6 bool
	for _, p := range c.PodCIDRs {
		seen, room := &v4, 30
		if p.Addr().Is6() {
			seen, room = &v6, 126
		}
		if !p.IsValid() || p.Masked() != p {
			return fmt.Errorf("pod network: pod CIDR %s has bits set beyond its prefix length: use %s", p, p.Masked())
		}
		if p.Bits() > room {
			return fmt.Errorf("pod network: pod CIDR %s is too small: use /%d or wider", p, room)
		}
		if *seen {
			return fmt.Errorf("pod network: pod CIDR %s is the second of its IP family: one per family is supported", p)
		}
		*seen = true
	}
	return nil
}

// Bridge is the name of the interface that this node's pods are attached to.
func Bridge(id string) string { return "yare-" + id }

type list struct {
	Version string `json:"cniVersion"`
	Name    string `json:"name"`
	Plugins []any  `json:"plugins"`
}

type bridgePlugin struct {
	Type      string `json:"type"`
	Bridge    string `json:"bridge"`
	IsGateway bool   `json:"isGateway"`
	IPMasq    bool   `json:"ipMasq"`
	// Hairpin lets a pod reach itself through a Service.
	Hairpin bool `json:"hairpinMode"`
	MTU     int  `json:"mtu,omitempty"`
	IPAM    ipam `json:"ipam"`
}

type ipam struct {
	Type    string     `json:"type"`
	DataDir string     `json:"dataDir"`
	Ranges  [][]subnet `json:"ranges"`
	Routes  []route    `json:"routes"`
}

type subnet struct {
	Subnet string `json:"subnet"`
}

type route struct {
	Dst string `json:"dst"`
}

type portmapPlugin struct {
	Type         string          `json:"type"`
	Capabilities map[string]bool `json:"capabilities"`
	SNAT         bool            `json:"snat"`
	Backend      string          `json:"backend"`
}

// Conflist renders the network's CNI configuration.
func Conflist(c Config) ([]byte, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	addresses := ipam{Type: "host-local", DataDir: c.leaseDir()}
	for _, p := range c.PodCIDRs {
		addresses.Ranges = append(addresses.Ranges, []subnet{{p.String()}})
		dst := "0.0.0.0/0"
		if p.Addr().Is6() {
			dst = "::/0"
		}
		addresses.Routes = append(addresses.Routes, route{dst})
	}
	b, err := json.MarshalIndent(list{
		Version: "1.0.0", Name: Bridge(c.ID),
		Plugins: []any{
			bridgePlugin{Type: "bridge", Bridge: Bridge(c.ID), IsGateway: true, Hairpin: true, MTU: c.MTU, IPAM: addresses},
			portmapPlugin{Type: "portmap", Capabilities: map[string]bool{"portMappings": true}, SNAT: true, Backend: "nftables"},
		},
	}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("pod network: %w", err)
	}
	return append(b, '\n'), nil
}

// Write puts the configuration where the runtime finds it. The runtime watches
// the folder; the file appears whole.
func Write(c Config) error {
	want, err := Conflist(c)
	if err != nil {
		return err
	}
	path := filepath.Join(c.ConfDir, FileName)
	if have, err := os.ReadFile(path); err == nil && bytes.Equal(have, want) {
		return nil
	}
	if err := os.MkdirAll(c.ConfDir, 0o755); err != nil {
		return fmt.Errorf("pod network: %w", err)
	}
	return replaceFile(path, want)
}

func (c Config) leaseDir() string { return filepath.Join(c.StateDir, "leases") }

func replaceFile(path string, b []byte) error {
	tmp := path + ".new"
	if err := os.WriteFile(tmp, b, 0o644); err != nil {
		return fmt.Errorf("pod network: %w", err)
	}
	if err := os.Rename(tmp, path); err != nil {
		return fmt.Errorf("pod network: %w", err)
	}
	return nil
}
