package runtime

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// facts are what the machine can do.
type facts struct {
	root bool
	// overlay is nil when overlay mounts work on the image store's file system.
	overlay error
	// lowerOOMScore: a process may be given a lower oom_score_adj than its parent's
	// (CAP_SYS_RESOURCE).
	lowerOOMScore bool
	// missing names kernel features without which no container runs.
	missing []string
}

// settings are what follows from the facts.
type settings struct {
	snapshotter string
	restrictOOM bool
	warnings    []string
}

func decide(f facts) (settings, error) {
	if !f.root {
		return settings{}, errors.New("container runtime: containers need root: run as root, or use a running containerd or CRI-O with --container-runtime-endpoint")
	}
	if len(f.missing) > 0 {
		return settings{}, fmt.Errorf("container runtime: the kernel lacks %s: containers can't run without; use a kernel that has it", strings.Join(f.missing, ", "))
	}
	s := settings{snapshotter: "overlayfs"}
	if f.overlay != nil {
		s.snapshotter = "native"
		s.warnings = append(s.warnings, fmt.Sprintf("overlay file systems don't work here (%v): each container gets a full copy of its image, which is slow and takes space; load the overlay module, or move the data folder to ext4 or xfs", f.overlay))
	}
	if !f.lowerOOMScore {
		s.restrictOOM = true
		s.warnings = append(s.warnings, "CAP_SYS_RESOURCE is missing: oom_score_adj of containers is raised to at least this process's own")
	}
	return s, nil
}

// observe asks the machine. dir is on the file system that will keep images.
func observe(dir string) facts {
	return facts{
		root:          os.Geteuid() == 0,
		overlay:       tryOverlay(dir),
		lowerOOMScore: hasCapability(unix.CAP_SYS_RESOURCE),
		missing:       missingFeatures("/proc", "/sys/fs/cgroup"),
	}
}

// missingFeatures checks by the files that a feature brings.
func missingFeatures(proc, cgroup string) []string {
	var out []string
	for _, ns := range []string{"ipc", "mnt", "net", "pid", "uts"} {
		if !exists(filepath.Join(proc, "self/ns", ns)) {
			out = append(out, ns+" namespaces")
		}
	}
	if exists(filepath.Join(cgroup, "cgroup.controllers")) {
		have, _ := os.ReadFile(filepath.Join(cgroup, "cgroup.controllers"))
		for _, c := range []string{"cpu", "memory", "pids"} {
			if !contains(strings.Fields(string(have)), c) {
				out = append(out, "cgroup controller "+c)
			}
		}
		return out
	}
	for _, c := range []string{"cpu", "cpuset", "devices", "freezer", "memory", "pids"} {
		if !exists(filepath.Join(cgroup, c)) {
			out = append(out, "cgroup controller "+c+" (mounted on "+filepath.Join(cgroup, c)+")")
		}
	}
	return out
}

// tryOverlay mounts a small overlay below dir, the only test that tells about the
// file system as well as the kernel.
func tryOverlay(dir string) error {
	if !listed("/proc/filesystems", "overlay") {
		// The kernel loads the module by itself when a mount asks for it, unless the
		// machine turned that off; modprobe covers this.
		modprobe("overlay")
	}
	tmp, err := os.MkdirTemp(dir, ".overlay-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	at := func(n string) string { return filepath.Join(tmp, n) }
	for _, n := range []string{"lower", "upper", "work", "merged"} {
		if err := os.Mkdir(at(n), 0o700); err != nil {
			return err
		}
	}
	opts := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", at("lower"), at("upper"), at("work"))
	if err := unix.Mount("overlay", at("merged"), "overlay", 0, opts); err != nil {
		return err
	}
	return unix.Unmount(at("merged"), unix.MNT_DETACH)
}

// modprobe asks for a module. Whether it helped shows in what is tried next.
func modprobe(module string) { _ = exec.Command("modprobe", module).Run() }

// hasCapability reads the effective set of this process.
func hasCapability(bit int) bool {
	f, err := os.Open("/proc/self/status")
	if err != nil {
		return false
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		hex, ok := strings.CutPrefix(s.Text(), "CapEff:")
		if !ok {
			continue
		}
		set, err := strconv.ParseUint(strings.TrimSpace(hex), 16, 64)
		return err == nil && set&(1<<bit) != 0
	}
	return false
}

func listed(path, word string) bool {
	b, err := os.ReadFile(path)
	return err == nil && contains(strings.Fields(string(b)), word)
}

func contains(words []string, word string) bool {
	for _, w := range words {
		if w == word {
			return true
		}
	}
	return false
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
