package server

import (
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

func TestBadConfigurationIsRefusedInOneLine(t *testing.T) {
	for _, c := range []struct {
		what string
		edit func(*Config)
		want string
	}{
		{"ranges that overlap", func(c *Config) { c.ServiceCIDR = netip.MustParsePrefix("10.42.0.0/20") }, "--service-cidr"},
		{"a tiny range of Services", func(c *Config) { c.ServiceCIDR = netip.MustParsePrefix("10.43.0.0/30") }, "too small"},
		{"a DNS address elsewhere", func(c *Config) { c.ClusterDNS = netip.MustParseAddr("192.0.2.1") }, "--cluster-dns"},
		{"a name that is none", func(c *Config) { c.NodeName = "Big Ship" }, "--node-name"},
		{"ports the wrong way round", func(c *Config) { c.NodePorts = [2]int{32767, 30000} }, "--service-node-port-range"},
		{"a port that is none", func(c *Config) { c.HTTPSPort = 70000 }, "--https-listen-port"},
		{"a domain that is none", func(c *Config) { c.ClusterDomain = "a_b..c" }, "--cluster-domain"},
		{"a label without a key", func(c *Config) { c.NodeLabels = map[string]string{"": "x"} }, "--node-label"},
		{"an unknown store", func(c *Config) { c.Backend = "tape" }, "disk or memory"},
	} {
		config := &Config{NodeIP: netip.MustParseAddr("192.0.2.9")}
		c.edit(config)
		err := config.Complete()
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v; want one line with %q", c.what, err, c.want)
		}
	}
}

func TestDefaults(t *testing.T) {
	c := &Config{NodeIP: netip.MustParseAddr("192.0.2.9")}
	if err := c.Complete(); err != nil {
		t.Fatal(err)
	}
	if c.ClusterDNS != netip.MustParseAddr("10.43.0.10") || c.KubernetesService() != netip.MustParseAddr("10.43.0.1") || c.AdvertiseAddress != c.NodeIP {
		t.Errorf("DNS %s, API %s, advertised %s", c.ClusterDNS, c.KubernetesService(), c.AdvertiseAddress)
	}
}

func TestAPortInUseIsNamedWithItsFlag(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	err = checkPort("--https-listen-port", netip.MustParseAddr("127.0.0.1"), l.Addr().(*net.TCPAddr).Port)
	if err == nil || !strings.Contains(err.Error(), "in use") || !strings.Contains(err.Error(), "--https-listen-port") {
		t.Errorf("got %v", err)
	}
}

func TestAClockBefore2020IsRefused(t *testing.T) {
	c := &Config{DataDir: t.TempDir(), Clock: clocktesting.NewFakeClock(time.Date(1970, 1, 1, 0, 0, 0, 0, time.UTC))}
	if err := c.preflight(); err == nil || !strings.Contains(err.Error(), "set the clock") || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %v", err)
	}
}

func TestAMissingKernelFeatureIsNamed(t *testing.T) {
	proc := t.TempDir()
	if err := os.WriteFile(filepath.Join(proc, "filesystems"), []byte("nodev\ttmpfs\nnodev\tmqueue\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := checkKernel(proc); err == nil || !strings.Contains(err.Error(), "lacks cgroup") {
		t.Errorf("got %v", err)
	}
	if err := checkKernel("/proc"); err != nil {
		t.Errorf("this kernel: %v", err)
	}
}
