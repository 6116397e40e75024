package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// host is what a cluster could leave behind on a machine.
type host struct {
	Processes  []string
	Mounts     []string
	Links      string
	Namespaces []string
	Cgroups    []string
	Rules      string
}

// look records the state of the machine. Processes and mounts that are not a cluster's come and go: only those that mention a Yare folder count.
func look(t *testing.T, dir string) host {
	t.Helper()
	return host{
		Processes: processes(dir), Mounts: mounts(dir), Links: output("ip", "-br", "link"),
		Namespaces: names("/run/netns/*", "/var/run/netns/*"), Cgroups: names("/sys/fs/cgroup/*/kubepods*", "/sys/fs/cgroup/kubepods*", "/sys/fs/cgroup/*/yare*", "/sys/fs/cgroup/yare*"),
		Rules: output("nft", "list", "ruleset"),
	}
}

func (h host) check(t *testing.T, after host) {
	t.Helper()
	if diff := cmp.Diff(h, after); diff != "" {
		t.Errorf("the host is not as it was (-before +after):\n%s", diff)
	}
}

func processes(dir string) (out []string) {
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range lines {
		text, _ := os.ReadFile(path)
		if line := strings.ReplaceAll(string(text), "\x00", " "); strings.Contains(line, dir) || strings.Contains(line, "/run/yare/") {
			out = append(out, line)
		}
	}
	sort.Strings(out)
	return out
}

func mounts(dir string) (out []string) {
	text, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, dir) || strings.Contains(line, "/run/yare/") {
			out = append(out, line)
		}
	}
	return out
}

func names(globs ...string) (out []string) {
	for _, g := range globs {
		found, _ := filepath.Glob(g)
		out = append(out, found...)
	}
	slices.Sort(out)
	return out
}

func output(name string, args ...string) string {
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		return err.Error()
	}
	return string(out)
}
