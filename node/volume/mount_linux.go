package volume

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"golang.org/x/sys/unix"
)

// Mounter mounts and unmounts file systems.
type Mounter interface {
	// Tmpfs mounts a file system in memory; size is its limit in bytes, or zero; options are more mount options.
	Tmpfs(dir string, size int64, options string) error
	// HugePages mounts a file system of huge pages of one size, such as "2M".
	HugePages(dir, pageSize string) error
	// Bind mounts the file or folder that is open as fd at dir.
	Bind(fd uintptr, dir string) error
	IsMount(dir string) (bool, error)
	// UnmountUnder unmounts everything mounted at or below dir.
	UnmountUnder(dir string) error
}

// Kernel is the Mounter that does it.
type Kernel struct{}

// Tmpfs mounts a tmpfs without swap, where the kernel (6.4 on) can do without.
func (Kernel) Tmpfs(dir string, size int64, options string) error {
	var data []string
	if size > 0 {
		data = append(data, fmt.Sprintf("size=%d", size))
	}
	if options != "" {
		data = append(data, options)
	}
	err := unix.Mount("tmpfs", dir, "tmpfs", 0, strings.Join(append(data, "noswap"), ","))
	if errors.Is(err, unix.EINVAL) {
		err = unix.Mount("tmpfs", dir, "tmpfs", 0, strings.Join(data, ","))
	}
	if err != nil {
		return fmt.Errorf("mount tmpfs at %s: %w", dir, err)
	}
	return nil
}

// HugePages mounts a hugetlbfs.
func (Kernel) HugePages(dir, pageSize string) error {
	if err := unix.Mount("hugetlbfs", dir, "hugetlbfs", 0, "pagesize="+pageSize); err != nil {
		return fmt.Errorf("mount hugetlbfs (page size %s) at %s: %w", pageSize, dir, err)
	}
	return nil
}

// Bind mounts an open file.
func (Kernel) Bind(fd uintptr, dir string) error {
	if err := unix.Mount(fmt.Sprintf("/proc/self/fd/%d", fd), dir, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("bind mount at %s: %w", dir, err)
	}
	return nil
}

// IsMount answers whether something is mounted exactly at dir.
func (Kernel) IsMount(dir string) (bool, error) {
	points, err := mountPoints(dir)
	if err != nil {
		return false, err
	}
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return false, err
	}
	for _, p := range points {
		if p == real {
			return true, nil
		}
	}
	return false, nil
}

// UnmountUnder unmounts the deepest first.
func (Kernel) UnmountUnder(dir string) error {
	points, err := mountPoints(dir)
	if err != nil {
		return err
	}
	sort.Slice(points, func(i, j int) bool { return len(points[i]) > len(points[j]) })
	for _, p := range points {
		err := unix.Unmount(p, unix.UMOUNT_NOFOLLOW)
		if errors.Is(err, unix.EBUSY) {
			err = unix.Unmount(p, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH)
		}
		if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("unmount %s: %w", p, err)
		}
	}
	return nil
}

// mountPoints lists the mount points at or below dir.
func mountPoints(dir string) ([]string, error) {
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return nil, err
	}
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	var out []string
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 5 {
			continue
		}
		if p := unescape.Replace(fields[4]); p == real || strings.HasPrefix(p, real+"/") {
			out = append(out, p)
		}
	}
	return out, lines.Err()
}
