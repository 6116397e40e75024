package cni_test

import (
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/google/go-cmp/cmp"

	"github.com/yare-project/yare/node/cni"
)

func prefixes(t *testing.T, list ...string) []netip.Prefix {
	t.Helper()
	var out []netip.Prefix
	for _, s := range list {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

// What CNI's own library reads is what was meant.
func TestWriteIsReadByCNI(t *testing.T) {
	dir := t.TempDir()
	c := cni.Config{ID: "0a1b2c3d", ConfDir: dir, StateDir: "/run/yare/0a1b2c3d/cni", PodCIDRs: prefixes(t, "10.42.3.0/24", "fd00:42:3::/64"), MTU: 1400}
	if err := cni.Write(c); err != nil {
		t.Fatal(err)
	}
	list, err := libcni.LoadNetworkConf(dir, "yare-0a1b2c3d")
	if err != nil {
		t.Fatal(err)
	}
	var got []map[string]any
	for _, p := range list.Plugins {
		var m map[string]any
		if err := json.Unmarshal(p.Bytes, &m); err != nil {
			t.Fatal(err)
		}
		got = append(got, m)
	}
	want := []map[string]any{
		{
			"type": "bridge", "bridge": "yare-0a1b2c3d", "isGateway": true, "ipMasq": false, "hairpinMode": true, "mtu": 1400.0,
			"ipam": map[string]any{
				"type": "host-local", "dataDir": "/run/yare/0a1b2c3d/cni/leases",
				"ranges": []any{[]any{map[string]any{"subnet": "10.42.3.0/24"}}, []any{map[string]any{"subnet": "fd00:42:3::/64"}}},
				"routes": []any{map[string]any{"dst": "0.0.0.0/0"}, map[string]any{"dst": "::/0"}},
			},
		},
		{"type": "portmap", "capabilities": map[string]any{"portMappings": true}, "snat": true, "backend": "nftables"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("configuration (-want +got):\n%s", diff)
	}
	info, err := os.Stat(filepath.Join(dir, cni.FileName))
	if err != nil {
		t.Fatal(err)
	}
	if err := cni.Write(c); err != nil {
		t.Fatal(err)
	}
	again, err := os.Stat(filepath.Join(dir, cni.FileName))
	if err != nil || !os.SameFile(info, again) {
		t.Errorf("an unchanged configuration was written again: %v", err)
	}
}

func TestRefusals(t *testing.T) {
	for want, c := range map[string]cni.Config{
		"no pod CIDR":        {ID: "a"},
		"use 10.42.0.0/24":   {ID: "a", PodCIDRs: prefixes(t, "10.42.0.9/24")},
		"use /30 or wider":   {ID: "a", PodCIDRs: prefixes(t, "10.42.0.0/31")},
		"second of its IP":   {ID: "a", PodCIDRs: prefixes(t, "10.42.0.0/24", "10.43.0.0/24")},
		"1 to 10 lower-case": {ID: "much-too-long-a-name", PodCIDRs: prefixes(t, "10.42.0.0/24")},
	} {
		if _, err := cni.Conflist(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error is %v, want one with %q", err, want)
		}
	}
}

// machine is a made-up /proc/sys and a folder of clusters' records.
type machine struct {
	t         *testing.T
	proc, run string
}

func newMachine(t *testing.T) machine {
	m := machine{t, t.TempDir(), t.TempDir()}
	for key, value := range map[string]string{"net/ipv4/ip_forward": "0\n", "net/bridge/bridge-nf-call-iptables": "1\n"} {
		path := filepath.Join(m.proc, key)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(value), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

func (m machine) settings(id string) cni.Settings {
	return cni.Settings{Proc: m.proc, StateDir: filepath.Join(m.run, id, "cni"), Peers: filepath.Join(m.run, "*", "cni")}
}

func (m machine) forward() string {
	m.t.Helper()
	b, err := os.ReadFile(filepath.Join(m.proc, "net/ipv4/ip_forward"))
	if err != nil {
		m.t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

func (m machine) must(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}

// gone removes a cluster's state, as its runtime does.
func (m machine) gone(id string) {
	m.must(m.settings(id).Restore())
	m.must(os.RemoveAll(filepath.Join(m.run, id)))
}

func TestSettingsAreRestoredByTheLastCluster(t *testing.T) {
	for name, order := range map[string][]string{"first started goes first": {"a", "b"}, "first started goes last": {"b", "a"}} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			m.must(m.settings("a").Enable())
			m.must(m.settings("a").Enable()) // a restart remembers the first value, not its own
			m.must(m.settings("b").Enable())
			m.gone(order[0])
			if got := m.forward(); got != "1" {
				t.Errorf("while a cluster still runs ip_forward is %s", got)
			}
			m.gone(order[1])
			if got := m.forward(); got != "0" {
				t.Errorf("after the last cluster ip_forward is %s, it was 0", got)
			}
		})
	}
}

func TestSettingsThatWereOnStayOn(t *testing.T) {
	m := newMachine(t)
	m.must(os.WriteFile(filepath.Join(m.proc, "net/ipv4/ip_forward"), []byte("1\n"), 0o644))
	m.must(m.settings("a").Enable())
	m.gone("a")
	if got := m.forward(); got != "1" {
		t.Errorf("ip_forward became %s", got)
	}
}

func TestMissingKernelFeatureSaysWhatBreaks(t *testing.T) {
	m := newMachine(t)
	m.must(os.RemoveAll(filepath.Join(m.proc, "net/bridge")))
	err := m.settings("a").Enable()
	if err == nil || !strings.Contains(err.Error(), "br_netfilter") || !strings.Contains(err.Error(), "net.bridge.bridge-nf-call-iptables") {
		t.Errorf("error should name the setting and the module: %v", err)
	}
}

func TestModuleIsLoadedWhenItIsMissing(t *testing.T) {
	m := newMachine(t)
	m.must(os.RemoveAll(filepath.Join(m.proc, "net/bridge")))
	s := m.settings("a")
	s.Load = func(module string) {
		if module != "br_netfilter" {
			t.Errorf("loaded %s", module)
		}
		m.must(os.MkdirAll(filepath.Join(m.proc, "net/bridge"), 0o755))
		m.must(os.WriteFile(filepath.Join(m.proc, "net/bridge/bridge-nf-call-iptables"), []byte("0\n"), 0o644))
	}
	m.must(s.Enable())
	if b, err := os.ReadFile(filepath.Join(m.proc, "net/bridge/bridge-nf-call-iptables")); err != nil || string(b) != "1" {
		t.Errorf("the module's setting is %q, %v", b, err)
	}
}
