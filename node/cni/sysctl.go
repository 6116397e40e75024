package cni

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// needed are the kernel settings that pod traffic relies on. forwarding moves
// packets between the bridge and the other interfaces; bridge-nf shows packets
// between two pods on one bridge to the service rules.
var needed = []struct{ key, value, why, module string }{
	{key: "net/ipv4/ip_forward", value: "1", why: "pods can't reach anything outside their node"},
	{key: "net/bridge/bridge-nf-call-iptables", value: "1", why: "a Service can't be reached when client and endpoint are on one node (load the br_netfilter module)", module: "br_netfilter"},
}

const recordName = "sysctls.json"

// Settings turns kernel settings on and restores them.
type Settings struct {
	// Proc is where sysctls are files: /proc/sys.
	Proc string
	// StateDir is this cluster's record of what it found; its parent's other
	// folders may hold those of other clusters on the machine.
	StateDir string
	// Peers is a glob that matches the records' folders of every cluster on this
	// machine, such as /run/yare/*/cni.
	Peers string
	// Load loads a kernel module that brings a setting; nil loads none.
	Load func(module string)
}

// Enable sets what is not set yet, and remembers the values that it replaced. The
// error names what will not work and how to mend it.
func (s Settings) Enable() error {
	if err := os.MkdirAll(s.StateDir, 0o755); err != nil {
		return fmt.Errorf("kernel settings: %w", err)
	}
	found, err := readRecord(s.record())
	if err != nil {
		return err
	}
	for _, n := range needed {
		have, err := s.get(n.key)
		if errors.Is(err, fs.ErrNotExist) && n.module != "" && s.Load != nil {
			s.Load(n.module)
			have, err = s.get(n.key)
		}
		if err != nil {
			return fmt.Errorf("kernel setting %s can't be read: %s: %w", dotted(n.key), n.why, err)
		}
		if have == n.value {
			continue
		}
		// Remember first: a crash between the two steps restores a value too many, not one too few.
		if _, ok := found[n.key]; !ok {
			found[n.key] = have
			if err := writeRecord(s.record(), found); err != nil {
				return err
			}
		}
		if err := s.set(n.key, n.value); err != nil {
			return fmt.Errorf("kernel setting %s can't be set to %s: %s: %w", dotted(n.key), n.value, n.why, err)
		}
	}
	return nil
}

// Restore puts back the values that Enable replaced. While another cluster still
// runs on the machine, it is handed the record instead, and the last one to go
// restores.
func (s Settings) Restore() error {
	found, err := readRecord(s.record())
	if err != nil {
		return err
	}
	heir, err := s.heir()
	if err != nil {
		return err
	}
	if heir != "" {
		if err := bequeath(heir, found); err != nil {
			return err
		}
		return remove(s.record())
	}
	var errs []error
	for key, value := range found {
		if err := s.set(key, value); err != nil {
			errs = append(errs, fmt.Errorf("kernel setting %s can't be put back to %s: %w", dotted(key), value, err))
		}
	}
	return errors.Join(append(errs, remove(s.record()))...)
}

// heir is the record of another cluster on this machine, or "".
func (s Settings) heir() (string, error) {
	dirs, err := filepath.Glob(s.Peers)
	if err != nil {
		return "", fmt.Errorf("kernel settings: %w", err)
	}
	for _, d := range dirs {
		if filepath.Clean(d) != filepath.Clean(s.StateDir) {
			return filepath.Join(d, recordName), nil
		}
	}
	return "", nil
}

func bequeath(heir string, found map[string]string) error {
	have, err := readRecord(heir)
	if err != nil {
		return err
	}
	for k, v := range found {
		have[k] = v // ours is older, hence nearer to what the machine had
	}
	return writeRecord(heir, have)
}

func (s Settings) record() string { return filepath.Join(s.StateDir, recordName) }

func (s Settings) get(key string) (string, error) {
	b, err := os.ReadFile(filepath.Join(s.Proc, key))
	return strings.TrimSpace(string(b)), err
}

func (s Settings) set(key, value string) error {
	return os.WriteFile(filepath.Join(s.Proc, key), []byte(value), 0o644)
}

func dotted(key string) string { return strings.ReplaceAll(key, "/", ".") }

func readRecord(path string) (map[string]string, error) {
	out := map[string]string{}
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return out, nil
	}
	if err != nil {
		return nil, fmt.Errorf("kernel settings: %w", err)
	}
	if err := json.Unmarshal(b, &out); err != nil {
		return nil, fmt.Errorf("kernel settings: %s is damaged; remove it: %w", path, err)
	}
	return out, nil
}

func writeRecord(path string, m map[string]string) error {
	b, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("kernel settings: %w", err)
	}
	return replaceFile(path, b)
}

func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("kernel settings: %w", err)
	}
	return nil
}
