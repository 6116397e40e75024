package runtimetest

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// Machine is what a removed runtime must leave as it was.
type Machine struct {
	Mounts, Bridges, Veths, Cgroups, Processes, Tables, Forward string
	Namespaces                                                  string // how many network namespaces
	RunDir                                                      string
}

// Observe reads the machine's state. Processes are those that name dir, the
// runtime's state folder or the programs of test images.
func Observe(t testing.TB, dir string) Machine {
	t.Helper()
	run := func(name string, args ...string) string {
		b, err := exec.Command(name, args...).CombinedOutput()
		if err != nil {
			t.Fatalf("%s %v: %v: %s", name, args, err, b)
		}
		return string(b)
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	forward, err := os.ReadFile("/proc/sys/net/ipv4/ip_forward")
	if err != nil {
		t.Fatal(err)
	}
	var ours []string
	for line := range strings.SplitSeq(run("ps", "-eo", "args"), "\n") {
		if strings.Contains(line, dir) || strings.Contains(line, "/run/yare/") || strings.HasPrefix(line, "/prog") || strings.HasPrefix(line, "/pause") {
			ours = append(ours, line)
		}
	}
	runDirs, _ := os.ReadDir("/run/yare")
	var names []string
	for _, d := range runDirs {
		names = append(names, d.Name())
	}
	return Machine{
		Mounts:  string(mounts),
		Bridges: run("ip", "-o", "link", "show", "type", "bridge"), Veths: run("ip", "-o", "link", "show", "type", "veth"),
		Cgroups:    run("find", "/sys/fs/cgroup", "-type", "d", "-path", "*"+CgroupRoot+"*"),
		Namespaces: run("sh", "-c", "lsns -n -t net -o ns | wc -l"), Processes: strings.Join(ours, "\n"),
		Tables: run("nft", "list", "tables"), Forward: string(forward), RunDir: strings.Join(names, " "),
	}
}
