package runtimetest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/yare-project/yare/node/cni"
	"github.com/yare-project/yare/node/runtime"
)

// Machine is what a runtime has on the machine outside its folder.
type Machine struct {
	Mounts, Interfaces, Cgroups, Processes, HostPorts, Results string
	RunDir                                                     bool
}

// Observe looks for everything that belongs to the runtime with this
// configuration; other runtimes of the machine don't count. Network namespaces are
// mounts of the runtime's state folder.
func Observe(t testing.TB, cfg runtime.Config) Machine {
	t.Helper()
	state := filepath.Join("/run/yare", cfg.ID())
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	_, err = os.Stat(state)
	bridge := cni.Bridge(cfg.ID())
	return Machine{
		Mounts:     lines(string(mounts), cfg.Dir, state),
		Interfaces: lines(run(t, "ip", "-o", "link", "show"), bridge),
		Cgroups:    run(t, "find", "/sys/fs/cgroup", "-type", "d", "-path", "*"+cfg.CgroupRoots[0]+"*"),
		Processes:  processes(cfg, state),
		HostPorts:  lines(run(t, "nft", "list", "ruleset"), bridge),
		Results:    lines(run(t, "find", "/var/lib/cni"), bridge),
		RunDir:     err == nil,
	}
}

func run(t testing.TB, name string, args ...string) string {
	t.Helper()
	b, err := exec.Command(name, args...).CombinedOutput()
	if err != nil && name != "find" { // find complains of groups that vanish meanwhile
		t.Fatalf("%s %v: %v: %s", name, args, err, b)
	}
	return string(b)
}

// lines are those that mention one of the words.
func lines(text string, words ...string) string {
	var out []string
	for line := range strings.Lines(text) {
		for _, w := range words {
			if strings.Contains(line, w) {
				out = append(out, line)
				break
			}
		}
	}
	return strings.Join(out, "")
}

// processes are the daemon, the shims and what runs in the runtime's control groups.
func processes(cfg runtime.Config, state string) string {
	var out strings.Builder
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		cmdline, _ := os.ReadFile(filepath.Join(d, "cmdline"))
		cgroup, _ := os.ReadFile(filepath.Join(d, "cgroup"))
		if len(cmdline) == 0 {
			continue // it has ended, and waits for its parent to notice
		}
		if strings.Contains(string(cmdline), state+"/") || strings.Contains(string(cgroup), "/"+cfg.CgroupRoots[0]+"/") {
			out.WriteString(strings.ReplaceAll(string(cmdline), "\x00", " ") + "\n")
		}
	}
	return out.String()
}
