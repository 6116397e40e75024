package runtime

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// killLeft ends the shims that serve this runtime's socket and the processes of
// its containers. A process belongs to a container when the container's ID is
// the last part of one of its control groups.
func killLeft(ctx context.Context, p paths) error {
	ids := containerIDs(p)
	for {
		left, err := belonging(p.socket, ids)
		if err != nil {
			return err
		}
		if len(left) == 0 {
			return nil
		}
		for _, pid := range left {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		if err := awaitOne(ctx, left[0]); err != nil {
			return fmt.Errorf("container runtime: %d processes of containers don't end: %w", len(left), err)
		}
	}
}

// awaitOne returns when a killed process has ended.
func awaitOne(ctx context.Context, pid int) error {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return nil // it has
	}
	f := os.NewFile(uintptr(fd), "pidfd")
	defer f.Close()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		waitReadable(f)
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(5 * time.Second):
		return fmt.Errorf("process %d survives SIGKILL", pid)
	}
}

// containerIDs are those whose bundles are still in the state folder.
func containerIDs(p paths) map[string]bool {
	out := map[string]bool{}
	for _, pattern := range []string{"io.containerd.runtime.v2.task/*/*", "runc/*/*"} {
		found, _ := filepath.Glob(filepath.Join(p.state, pattern))
		for _, f := range found {
			out[filepath.Base(f)] = true
		}
	}
	return out
}

func belonging(socket string, ids map[string]bool) ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var out []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		if ended(pid) {
			continue
		}
		cmdline, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		cgroups, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cgroup"))
		if isShim(cmdline, socket) || inContainer(cgroups, ids) {
			out = append(out, pid)
		}
	}
	return out, nil
}

// ended: a zombie waits for its parent, and can't be killed any more.
func ended(pid int) bool {
	_, err := startTime(pid)
	return err != nil
}

// isShim reads a command line: a shim names its daemon's socket after -address.
func isShim(cmdline []byte, socket string) bool {
	args := bytes.Split(cmdline, []byte{0})
	for i := 0; i+1 < len(args); i++ {
		if string(args[i]) == "-address" && string(args[i+1]) == socket {
			return true
		}
	}
	return false
}

// inContainer reads /proc/PID/cgroup.
func inContainer(cgroups []byte, ids map[string]bool) bool {
	for line := range strings.SplitSeq(string(cgroups), "\n") {
		if i := strings.LastIndexByte(line, '/'); i >= 0 && ids[line[i+1:]] {
			return true
		}
	}
	return false
}

// unmountBelow detaches every mount at or below a folder, deepest first.
func unmountBelow(dir string) error {
	points, err := mountPoints("/proc/self/mountinfo", dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, m := range points {
		if err := unix.Unmount(m, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			errs = append(errs, fmt.Errorf("unmount %s: %w", m, err))
		}
	}
	return errors.Join(errs...)
}

// mountPoints lists mounts at or below dir, newest first: a later mount may lie
// on an earlier one.
func mountPoints(mountinfo, dir string) ([]string, error) {
	f, err := os.Open(mountinfo)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var out []string
	s := bufio.NewScanner(f)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		fields := strings.Fields(s.Text())
		if len(fields) < 5 {
			continue
		}
		at := unescapeMount(fields[4])
		if at == dir || strings.HasPrefix(at, dir+"/") {
			out = append(out, at)
		}
	}
	for i, j := 0, len(out)-1; i < j; i, j = i+1, j-1 {
		out[i], out[j] = out[j], out[i]
	}
	return out, s.Err()
}

// unescapeMount undoes mountinfo's octal escapes of blanks and backslashes.
func unescapeMount(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

// removeCgroups removes the empty control groups at and below root in every
// hierarchy. A group that still holds a process is another cluster's, and stays.
func removeCgroups(root string) error {
	var errs []error
	for _, h := range hierarchies() {
		var dirs []string
		_ = filepath.WalkDir(filepath.Join(h, root), func(p string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				dirs = append(dirs, p)
			}
			return nil
		})
		sort.Sort(sort.Reverse(sort.StringSlice(dirs)))
		for _, d := range dirs {
			err := unix.Rmdir(d)
			if err != nil && !errors.Is(err, unix.EBUSY) && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENOTEMPTY) {
				errs = append(errs, fmt.Errorf("remove control group %s: %w", d, err))
			}
		}
	}
	return errors.Join(errs...)
}

// hierarchies are the mount points of every control group hierarchy.
func hierarchies() []string {
	b, _ := os.ReadFile("/proc/self/mounts")
	var out []string
	for line := range strings.SplitSeq(string(b), "\n") {
		f := strings.Fields(line)
		if len(f) > 2 && (f[2] == "cgroup" || f[2] == "cgroup2") {
			out = append(out, unescapeMount(f[1]))
		}
	}
	return out
}
