// Package host reads the facts of this machine that the node agent needs: its size, its kernel, its identity, and what this process may do.
//
// Read takes a snapshot and changes nothing. Sources are files under /proc, /sys and /etc, as proc(5) and the kernel documentation describe them.
package host

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sort"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Facts describes a machine.
type Facts struct {
	CPUs   int
	Memory int64 // bytes
	Swap   int64 // bytes
	// HugePages is the size in bytes of all reserved huge pages, by page size in bytes.
	HugePages map[int64]int64
	// MachineID, SystemUUID and BootID are empty where the machine has none.
	MachineID, SystemUUID, BootID string
	Kernel, OSImage, Arch         string
	// OOMFloor is the lowest oom_score_adj that this process can give another.
	OOMFloor int
	AppArmor bool
}

// Read reads the facts of this machine.
func Read() (Facts, error) {
	f := Facts{CPUs: runtime.NumCPU(), Arch: runtime.GOARCH, MachineID: line("/etc/machine-id"), BootID: line("/proc/sys/kernel/random/boot_id"),
		SystemUUID: strings.ToLower(line("/sys/class/dmi/id/product_uuid")), OSImage: osImage(), HugePages: hugePages(),
		AppArmor: line("/sys/module/apparmor/parameters/enabled") == "Y", OOMFloor: oomFloor()}
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return f, fmt.Errorf("uname: %w", err)
	}
	f.Kernel = string(u.Release[:bytes.IndexByte(u.Release[:], 0)])
	if f.MachineID == "" {
		f.MachineID = line("/var/lib/dbus/machine-id")
	}
	if f.SystemUUID == "" {
		f.SystemUUID = f.MachineID
	}
	info, err := MemInfo()
	if err != nil {
		return f, err
	}
	f.Memory, f.Swap = info["MemTotal"], info["SwapTotal"]
	return f, nil
}

// MemInfo reads /proc/meminfo, in bytes.
func MemInfo() (map[string]int64, error) {
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return nil, err
	}
	out := map[string]int64{}
	lines := bufio.NewScanner(bytes.NewReader(b))
	for lines.Scan() {
		name, rest, ok := strings.Cut(lines.Text(), ":")
		fields := strings.Fields(rest)
		if !ok || len(fields) == 0 {
			continue
		}
		n, err := strconv.ParseInt(fields[0], 10, 64)
		if err != nil {
			continue
		}
		if len(fields) > 1 && fields[1] == "kB" {
			n *= 1024
		}
		out[name] = n
	}
	return out, lines.Err()
}

// Disk is the size of the file system that holds a path.
type Disk struct{ Total, Free, Inodes, InodesFree int64 }

// DiskOf answers the file system that holds path.
func DiskOf(path string) (Disk, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return Disk{}, fmt.Errorf("size of %s: %w", path, err)
	}
	return Disk{Total: int64(s.Blocks) * s.Bsize, Free: int64(s.Bavail) * s.Bsize, Inodes: int64(s.Files), InodesFree: int64(s.Ffree)}, nil
}

// PIDs answers how many processes there are and may be.
func PIDs() (used, limit int64) {
	limit, _ = strconv.ParseInt(line("/proc/sys/kernel/pid_max"), 10, 64)
	if fields := strings.Fields(line("/proc/loadavg")); len(fields) > 3 {
		_, total, _ := strings.Cut(fields[3], "/")
		used, _ = strconv.ParseInt(total, 10, 64)
	}
	return used, limit
}

// HugePageNames lists the page sizes that the kernel offers, as cgroup files name them: 2MB, 1GB.
func HugePageNames() []string {
	var sizes []int64
	for size := range hugePages() {
		sizes = append(sizes, size)
	}
	sort.Slice(sizes, func(i, j int) bool { return sizes[i] < sizes[j] })
	out := make([]string, len(sizes))
	for i, s := range sizes {
		units := []string{"B", "KB", "MB", "GB"}
		u := 0
		for s >= 1024 && u < len(units)-1 {
			s, u = s/1024, u+1
		}
		out[i] = strconv.FormatInt(s, 10) + units[u]
	}
	return out
}

func hugePages() map[int64]int64 {
	out := map[int64]int64{}
	dirs, _ := filepath.Glob("/sys/kernel/mm/hugepages/hugepages-*kB")
	for _, d := range dirs {
		kb, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimPrefix(filepath.Base(d), "hugepages-"), "kB"), 10, 64)
		if err != nil {
			continue
		}
		n, _ := strconv.ParseInt(line(filepath.Join(d, "nr_hugepages")), 10, 64)
		out[kb*1024] = n * kb * 1024
	}
	return out
}

const capSysResource = 24

// oomFloor answers -1000 with CAP_SYS_RESOURCE, and without it this process's own value: the kernel lets nobody go below that.
func oomFloor() int {
	b, err := os.ReadFile("/proc/self/status")
	if err == nil {
		for _, l := range strings.Split(string(b), "\n") {
			if v, ok := strings.CutPrefix(l, "CapEff:"); ok {
				if bits, err := strconv.ParseUint(strings.TrimSpace(v), 16, 64); err == nil && bits&(1<<capSysResource) != 0 {
					return -1000
				}
			}
		}
	}
	n, _ := strconv.Atoi(line("/proc/self/oom_score_adj"))
	return n
}

func osImage() string {
	b, _ := os.ReadFile("/etc/os-release")
	for _, l := range strings.Split(string(b), "\n") {
		if v, ok := strings.CutPrefix(l, "PRETTY_NAME="); ok {
			return strings.Trim(v, `"'`)
		}
	}
	return "Linux"
}

// line answers the first line of a file, or nothing.
func line(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	first, _, _ := strings.Cut(string(b), "\n")
	return strings.TrimSpace(first)
}
