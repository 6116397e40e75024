package volume

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// payload is the content of a volume: files by path.
type payload map[string]file

type file struct {
	data []byte
	mode os.FileMode
	uid  *int64
}

func (p payload) add(path string, data []byte, mode *int32, fallback *int32, uid *int64) error {
	clean := filepath.Clean(path)
	if path == "" || filepath.IsAbs(path) || clean == "." || strings.HasPrefix(clean, "..") {
		return fmt.Errorf("path %q must be relative and stay within the volume", path)
	}
	m := int32(0o644)
	if fallback != nil {
		m = *fallback
	}
	if mode != nil {
		m = *mode
	}
	p[clean] = file{data: data, mode: os.FileMode(m) & 0o777, uid: uid}
	return nil
}

// items adds the wanted keys of a config map or secret, or all if none are named.
func (p payload) items(data map[string][]byte, items []corev1.KeyToPath, mode *int32, optional *bool, missing string) error {
	if len(items) == 0 {
		for k, v := range data {
			if len(validation.IsConfigMapKey(k)) > 0 {
				return fmt.Errorf("key %q can't be a file name", k)
			}
			if err := p.add(k, v, nil, mode, nil); err != nil {
				return err
			}
		}
		return nil
	}
	for _, item := range items {
		v, ok := data[item.Key]
		if !ok {
			if optional != nil && *optional {
				continue
			}
			return fmt.Errorf(missing, item.Key)
		}
		if err := p.add(item.Path, v, item.Mode, mode, nil); err != nil {
			return err
		}
	}
	return nil
}

const (
	dataLink = "..data"
	tempLink = "..data_tmp"
)

// write makes dir hold exactly the payload, by writing all of it to a new folder and switching one symbolic link to it. It does nothing if dir
// holds it already. The layout (..data and links to it) is the one that programs which watch such volumes know.
func (j *job) write(dir string, p payload) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	old, err := os.Readlink(filepath.Join(dir, dataLink))
	if err == nil && same(filepath.Join(dir, old), p) {
		return j.link(dir, p)
	}
	fresh, err := os.MkdirTemp(dir, ".."+j.cfg.Clock.Now().UTC().Format("2006_01_02_15_04_05."))
	if err != nil {
		return err
	}
	if err := j.fill(fresh, p); err != nil {
		_ = os.RemoveAll(fresh)
		return err
	}
	temp := filepath.Join(dir, tempLink)
	if err := os.Remove(temp); err != nil && !os.IsNotExist(err) {
		return err
	}
	if err := os.Symlink(filepath.Base(fresh), temp); err != nil {
		return err
	}
	if err := os.Rename(temp, filepath.Join(dir, dataLink)); err != nil {
		return err
	}
	if err := j.link(dir, p); err != nil {
		return err
	}
	if old != "" {
		return os.RemoveAll(filepath.Join(dir, filepath.Base(old)))
	}
	return nil
}

func (j *job) fill(dir string, p payload) error {
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	for path, f := range p {
		full := filepath.Join(dir, path)
		if err := makeFolders(dir, filepath.Dir(path)); err != nil {
			return err
		}
		if err := os.WriteFile(full, f.data, f.mode); err != nil {
			return err
		}
		if err := os.Chmod(full, f.mode); err != nil {
			return err
		}
		if f.uid != nil {
			if err := os.Chown(full, int(*f.uid), -1); err != nil {
				return err
			}
		}
	}
	return j.own(dir, true)
}

// makeFolders makes the folders of a path below dir, readable for all whatever this process's umask is.
func makeFolders(dir, path string) error {
	if path == "." {
		return nil
	}
	for _, part := range strings.Split(path, "/") {
		dir = filepath.Join(dir, part)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		if err := os.Chmod(dir, 0o755); err != nil {
			return err
		}
	}
	return nil
}

// link makes the visible names: one link for each first part of a path, and none besides.
func (j *job) link(dir string, p payload) error {
	want := map[string]bool{}
	for path := range p {
		first, _, _ := strings.Cut(path, "/")
		want[first] = true
	}
	have, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range have {
		if strings.HasPrefix(e.Name(), "..") {
			continue
		}
		if want[e.Name()] {
			delete(want, e.Name())
		} else if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	for name := range want {
		if err := os.Symlink(filepath.Join(dataLink, name), filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// same answers whether a folder holds exactly the payload's bytes.
func same(dir string, p payload) bool {
	n := 0
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		n++
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		f, ok := p[rel]
		have, err := os.ReadFile(path)
		if err != nil || !ok || !bytes.Equal(have, f.data) {
			return os.ErrInvalid
		}
		return nil
	})
	return err == nil && n == len(p)
}
