package image

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"sort"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// Spec describes an image of one layer.
type Spec struct {
	// Files maps an absolute path in the image to a file or folder on this
	// machine; a folder is taken with all that it holds. Modes and symbolic links
	// carry over; owners become root, times zero, so that the same files always
	// make the same image.
	Files map[string]string
	// Content maps an absolute path in the image to a file's bytes, mode 0644.
	Content map[string][]byte
	// Dirs are empty folders to make, mode 0755; "/tmp" gets 1777.
	Dirs []string

	Entrypoint []string
	Cmd        []string
	Env        []string
	WorkingDir string
	// User is as in a Dockerfile: "65532", "65532:65532" or a name.
	User  string
	Ports []string // such as "8080/tcp"; documentation only, as ever
}

// Build assembles an image for this node's platform. The same spec and files
// give the same digest.
func Build(spec Spec) (v1.Image, error) {
	layer, err := buildLayer(spec)
	if err != nil {
		return nil, fmt.Errorf("build image: %w", err)
	}
	img, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		return nil, fmt.Errorf("build image: %w", err)
	}
	os, arch := platform()
	ports := map[string]struct{}{}
	for _, p := range spec.Ports {
		ports[p] = struct{}{}
	}
	file, err := img.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("build image: %w", err)
	}
	file = file.DeepCopy()
	file.OS, file.Architecture, file.Created = os, arch, v1.Time{}
	file.Config = v1.Config{
		Entrypoint: spec.Entrypoint, Cmd: spec.Cmd, Env: append([]string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}, spec.Env...),
		WorkingDir: spec.WorkingDir, User: spec.User, ExposedPorts: ports,
	}
	return mutate.ConfigFile(img, file)
}

// Save writes an image as an archive that Import and `docker load` read.
func Save(w io.Writer, ref string, img v1.Image) error {
	tag, err := name.NewTag(ref)
	if err != nil {
		return fmt.Errorf("save image: %w", err)
	}
	if err := tarball.Write(tag, img, w); err != nil {
		return fmt.Errorf("save image %s: %w", ref, err)
	}
	return nil
}

// SaveFile writes an archive beside path and moves it there, so that a watcher
// of the folder never sees half of it.
func SaveFile(path, ref string, img v1.Image) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), ".saving-*")
	if err != nil {
		return fmt.Errorf("save image %s: %w", ref, err)
	}
	defer os.Remove(tmp.Name())
	err = Save(tmp, ref, img)
	if cerr := tmp.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Chmod(tmp.Name(), 0o644)
	}
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	return err
}

func buildLayer(spec Spec) (v1.Layer, error) {
	l := &layerWriter{entries: map[string]entry{}}
	for _, d := range spec.Dirs {
		l.dir(d)
	}
	for dst, body := range spec.Content {
		if err := l.add(dst, entry{mode: 0o644, body: body}); err != nil {
			return nil, err
		}
	}
	for dst, src := range spec.Files {
		if err := l.tree(dst, src); err != nil {
			return nil, err
		}
	}
	b, err := l.tar()
	if err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil })
}

// entry is one file of a layer. Link is set for a symbolic link, dir for a folder.
type entry struct {
	mode fs.FileMode
	body []byte
	link string
	dir  bool
}

type layerWriter struct{ entries map[string]entry }

func (l *layerWriter) dir(p string) {
	p = path.Clean("/" + p)
	if p == "/" {
		return
	}
	l.dir(path.Dir(p))
	if _, ok := l.entries[p]; ok {
		return
	}
	mode := fs.FileMode(0o755)
	if p == "/tmp" {
		mode = 0o777 | fs.ModeSticky
	}
	l.entries[p] = entry{mode: mode, dir: true}
}

func (l *layerWriter) add(p string, e entry) error {
	if !strings.HasPrefix(p, "/") {
		return fmt.Errorf("path %q in the image must start with /", p)
	}
	p = path.Clean(p)
	l.dir(path.Dir(p))
	l.entries[p] = e
	return nil
}

func (l *layerWriter) tree(dst, src string) error {
	return filepath.WalkDir(src, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(src, p)
		if err != nil {
			return err
		}
		at := path.Join(dst, filepath.ToSlash(rel))
		info, err := d.Info()
		if err != nil {
			return err
		}
		e := entry{mode: info.Mode().Perm()}
		switch {
		case d.IsDir():
			e.dir = true
		case d.Type()&fs.ModeSymlink != 0:
			if e.link, err = os.Readlink(p); err != nil {
				return err
			}
		case d.Type().IsRegular():
			if e.body, err = os.ReadFile(p); err != nil {
				return err
			}
		default:
			return fmt.Errorf("%s is neither a file, a folder nor a symbolic link", p)
		}
		if at == "/" {
			return nil
		}
		return l.add(at, e)
	})
}

func (l *layerWriter) tar() ([]byte, error) {
	paths := make([]string, 0, len(l.entries))
	for p := range l.entries {
		paths = append(paths, p)
	}
	sort.Strings(paths)
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, p := range paths {
		e := l.entries[p]
		h := &tar.Header{Name: strings.TrimPrefix(p, "/"), Mode: int64(e.mode.Perm()), Typeflag: tar.TypeReg, Size: int64(len(e.body)), ModTime: time.Unix(0, 0)}
		if e.mode&fs.ModeSticky != 0 {
			h.Mode |= 0o1000
		}
		if e.dir {
			h.Typeflag, h.Name = tar.TypeDir, h.Name+"/"
		}
		if e.link != "" {
			h.Typeflag, h.Linkname = tar.TypeSymlink, e.link
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(e.body); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
