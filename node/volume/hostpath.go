package volume

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	corev1 "k8s.io/api/core/v1"
)

// hostPath checks, and where its type says so makes, a path of the host.
func (j *job) hostPath(path string, kind *corev1.HostPathType) (mounted, error) {
	want := corev1.HostPathUnset
	if kind != nil {
		want = *kind
	}
	if err := checkHostPath(path, want); err != nil {
		return mounted{}, err
	}
	return mounted{path: path, host: true}, nil
}

func checkHostPath(path string, want corev1.HostPathType) error {
	info, err := os.Stat(path)
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	missing := err != nil
	switch want {
	case corev1.HostPathUnset:
		if missing {
			// As container runtimes do for a bind mount whose source is missing.
			return os.MkdirAll(path, 0o755)
		}
		return nil
	case corev1.HostPathDirectoryOrCreate:
		if missing {
			return os.MkdirAll(path, 0o755)
		}
		return check(info.IsDir(), path, "a directory")
	case corev1.HostPathFileOrCreate:
		if missing {
			return createFile(path)
		}
		return check(info.Mode().IsRegular(), path, "a file")
	}
	if missing {
		return fmt.Errorf("hostPath type check failed: %s does not exist", path)
	}
	mode := info.Mode()
	switch want {
	case corev1.HostPathDirectory:
		return check(info.IsDir(), path, "a directory")
	case corev1.HostPathFile:
		return check(mode.IsRegular(), path, "a file")
	case corev1.HostPathSocket:
		return check(mode&os.ModeSocket != 0, path, "a socket file")
	case corev1.HostPathCharDev:
		return check(mode&os.ModeCharDevice != 0, path, "a character device")
	case corev1.HostPathBlockDev:
		return check(mode&os.ModeDevice != 0 && mode&os.ModeCharDevice == 0, path, "a block device")
	}
	return fmt.Errorf("%s is an invalid volume type", want)
}

func check(ok bool, path, what string) error {
	if ok {
		return nil
	}
	return fmt.Errorf("hostPath type check failed: %s is not %s", path, what)
}

// createFile makes an empty file; its folder must exist, as documented.
func createFile(path string) error {
	if _, err := os.Stat(filepath.Dir(path)); err != nil {
		return fmt.Errorf("hostPath type FileOrCreate: the folder must exist: %w", err)
	}
	f, err := os.OpenFile(path, os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	return f.Close()
}

// blocks is what a file occupies on disk.
func blocks(info os.FileInfo) int64 {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return s.Blocks * 512
	}
	return info.Size()
}
