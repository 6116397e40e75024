package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/yare-project/yare/node/environ"
)

// Mounts answers what to mount into a container for its volumeMounts. attempt tells the bind mounts of subPaths apart between restarts.
func (m *Manager) Mounts(pod *corev1.Pod, c *corev1.Container, attempt int, env []environ.Var) ([]*runtimeapi.Mount, error) {
	var out []*runtimeapi.Mount
	for i := range c.VolumeMounts {
		mount, err := m.mount(pod, c, i, attempt, env)
		if err != nil {
			return nil, err
		}
		out = append(out, mount)
	}
	return out, nil
}

func (m *Manager) mount(pod *corev1.Pod, c *corev1.Container, i, attempt int, env []environ.Var) (*runtimeapi.Mount, error) {
	vm := &c.VolumeMounts[i]
	v, err := m.find(pod.UID, vm.Name)
	if err != nil {
		return nil, fmt.Errorf("%w to mount into container %q", err, c.Name)
	}
	sub, err := subPath(vm, env)
	if err != nil {
		return nil, err
	}
	path := vm.MountPath
	if !filepath.IsAbs(path) {
		path = "/" + path
	}
	out := &runtimeapi.Mount{ContainerPath: path, HostPath: v.path, Readonly: vm.ReadOnly || v.readOnly, Propagation: propagation(vm),
		SelinuxRelabel: !v.host && v.image == nil}
	if out.RecursiveReadOnly, err = m.recursive(vm); err != nil {
		return nil, err
	}
	switch {
	case v.image != nil:
		out.Image, out.ImageSubPath, out.HostPath = v.image, sub, ""
	case sub != "":
		key := filepath.Join(vm.Name, c.Name, strconv.Itoa(attempt)+"-"+strconv.Itoa(i))
		if out.HostPath, err = m.subPathMount(pod, v.path, sub, key); err != nil {
			return nil, fmt.Errorf("failed to prepare subPath for volumeMount %q of container %q: %w", vm.Name, c.Name, err)
		}
	}
	return out, nil
}

func subPath(vm *corev1.VolumeMount, env []environ.Var) (string, error) {
	if vm.SubPathExpr == "" {
		return vm.SubPath, nil
	}
	lookup, missing := environ.Lookup(env), ""
	sub := environ.Expand(vm.SubPathExpr, func(name string) (string, bool) {
		v, ok := lookup(name)
		if !ok || v == "" {
			missing = name
		}
		return v, ok
	})
	switch {
	case missing != "":
		return "", fmt.Errorf("missing value for %q in subPathExpr %q of volumeMount %q", missing, vm.SubPathExpr, vm.Name)
	case filepath.IsAbs(sub):
		return "", fmt.Errorf("error SubPath `%s` must not be an absolute path", sub)
	case strings.Contains("/"+sub+"/", "/../"):
		return "", fmt.Errorf("unable to provision SubPath `%s`: must not contain '..'", sub)
	}
	return sub, nil
}

func propagation(vm *corev1.VolumeMount) runtimeapi.MountPropagation {
	if vm.MountPropagation == nil {
		return runtimeapi.MountPropagation_PROPAGATION_PRIVATE
	}
	switch *vm.MountPropagation {
	case corev1.MountPropagationHostToContainer:
		return runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER
	case corev1.MountPropagationBidirectional:
		return runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL
	}
	return runtimeapi.MountPropagation_PROPAGATION_PRIVATE
}

func (m *Manager) recursive(vm *corev1.VolumeMount) (bool, error) {
	if vm.RecursiveReadOnly == nil || !vm.ReadOnly {
		return false, nil
	}
	switch *vm.RecursiveReadOnly {
	case corev1.RecursiveReadOnlyIfPossible:
		return m.cfg.RecursiveReadOnly, nil
	case corev1.RecursiveReadOnlyEnabled:
		if !m.cfg.RecursiveReadOnly {
			return false, fmt.Errorf("failed to resolve recursive read-only mode: volumeMount %q wants recursiveReadOnly: Enabled, which this node's runtime does not support", vm.Name)
		}
		return true, nil
	}
	return false, nil
}

// subPathMount answers a host path that is the subPath of a volume, now and for good: it opens the path without ever leaving the volume,
// whatever links a container has put there, and binds what it has opened to a place of its own.
func (m *Manager) subPathMount(pod *corev1.Pod, volume, sub, key string) (string, error) {
	f, err := openSub(volume, sub)
	if err != nil {
		return "", plain(err)
	}
	defer f.Close()
	if m.cfg.Mounter == nil {
		return filepath.Join(volume, sub), nil
	}
	target := filepath.Join(m.podDir(pod.UID), "volume-subpaths", key)
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	if err := makeTarget(target, info.IsDir()); err != nil {
		return "", err
	}
	if is, err := m.cfg.Mounter.IsMount(target); err != nil || is {
		return target, err
	}
	return target, m.cfg.Mounter.Bind(f.Fd(), target)
}

// openSub opens a path within a volume for nothing but binding it; a folder that is missing is made, like the volume's own.
func openSub(volume, sub string) (*os.File, error) {
	f, err := openBeneath(volume, sub)
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return f, err
	}
	root, err := os.OpenRoot(volume)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	if err := makeSub(root, sub); err != nil {
		return nil, err
	}
	return openBeneath(volume, sub)
}

// openBeneath follows links only as long as they stay within the volume; the kernel sees to it.
func openBeneath(volume, sub string) (*os.File, error) {
	dir, err := unix.Open(volume, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(dir) }()
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS}
	fd, err := unix.Openat2(dir, sub, &how)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), sub), nil
}

func makeSub(root *os.Root, sub string) error {
	info, err := root.Stat(".")
	if err != nil {
		return err
	}
	made := ""
	for _, part := range strings.Split(filepath.Clean(sub), "/") {
		made = filepath.Join(made, part)
		if err := root.Mkdir(made, 0o750); err != nil {
			if errors.Is(err, fs.ErrExist) {
				continue
			}
			return err
		}
		if err := root.Chmod(made, info.Mode()&(fs.ModePerm|fs.ModeSetgid)); err != nil {
			return err
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			if err := root.Lchown(made, int(st.Uid), int(st.Gid)); err != nil && !errors.Is(err, fs.ErrPermission) {
				return err
			}
		}
	}
	return nil
}

// Forget unmounts and removes the subPath mounts of a container that is gone.
func (m *Manager) Forget(uid types.UID, container string, attempt int) error {
	found, err := filepath.Glob(filepath.Join(m.podDir(uid), "volume-subpaths", "*", container, strconv.Itoa(attempt)+"-*"))
	if err != nil {
		return err
	}
	for _, path := range found {
		if err := m.removeTree(path); err != nil {
			return err
		}
	}
	return nil
}

// plain drops the path of an error: it may tell of the host's folders.
func plain(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

func makeTarget(path string, dir bool) error {
	if dir {
		return os.MkdirAll(path, 0o750)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE, 0o640)
	if err != nil {
		return err
	}
	return f.Close()
}
