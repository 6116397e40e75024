package audit

import (
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// FileConfig says where a log file is and what becomes of old ones.
type FileConfig struct {
	Path string
	// MaxSize is the bytes from which a new file is begun; 0: never.
	MaxSize int64
	// MaxAge and MaxBackups say how long and how many old files are kept; 0: without bound.
	MaxAge     time.Duration
	MaxBackups int
	// Compress packs old files with gzip.
	Compress bool
	Clock    clock.Clock // nil: the real one
}

// File is a log file that is set aside when it has grown, under a name with the time (name-2006-01-02T15-04-05.000.ext), as kube-apiserver's is. Only its
// owner may read it. Whoever writes waits for a file to be set aside; packing and removing old ones goes on in the background.
type File struct {
	cfg FileConfig

	mu     sync.Mutex
	file   *os.File
	size   int64
	closed bool

	// tidying lets one goroutine at a time look after old files.
	tidying sync.Mutex
	ending  sync.WaitGroup
}

// OpenFile opens a log file, making it and its folder if need be. The error says what to change.
func OpenFile(cfg FileConfig) (*File, error) {
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	f := &File{cfg: cfg}
	if err := os.MkdirAll(filepath.Dir(cfg.Path), 0o700); err != nil {
		return nil, fmt.Errorf("cannot make the folder of the audit log: %w", err)
	}
	return f, f.open()
}

func (f *File) open() error {
	file, err := os.OpenFile(f.cfg.Path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("cannot open the audit log: %w", err)
	}
	info, err := file.Stat()
	if err != nil {
		file.Close()
		return fmt.Errorf("cannot open the audit log: %w", err)
	}
	f.file, f.size = file, info.Size()
	return nil
}

// Write appends a line, in a new file if it does not fit any more.
func (f *File) Write(line []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.file != nil && f.cfg.MaxSize > 0 && f.size > 0 && f.size+int64(len(line)) > f.cfg.MaxSize {
		if err := f.setAside(); err != nil {
			return 0, err
		}
	}
	if f.closed {
		return 0, os.ErrClosed
	}
	if f.file == nil { // an earlier attempt to begin a new file failed
		if err := f.open(); err != nil {
			return 0, err
		}
	}
	n, err := f.file.Write(line)
	f.size += int64(n)
	return n, err
}

// setAside renames the file and begins a new one.
func (f *File) setAside() error {
	err := f.file.Close()
	f.file = nil
	if err == nil {
		err = os.Rename(f.cfg.Path, f.backupName())
	}
	if err != nil {
		return fmt.Errorf("set the full audit log aside: %w", err)
	}
	f.ending.Go(f.tidy)
	return f.open()
}

const backupTime = "2006-01-02T15-04-05.000"

// backupName is one that is not taken.
func (f *File) backupName() string {
	dir, prefix, ext := f.parts()
	for at := f.cfg.Clock.Now().UTC(); ; at = at.Add(time.Millisecond) {
		name := filepath.Join(dir, prefix+at.Format(backupTime)+ext)
		_, plain := os.Lstat(name)
		_, packed := os.Lstat(name + ".gz")
		if errors.Is(plain, os.ErrNotExist) && errors.Is(packed, os.ErrNotExist) {
			return name
		}
	}
}

func (f *File) parts() (dir, prefix, ext string) {
	dir, base := filepath.Split(f.cfg.Path)
	ext = filepath.Ext(base)
	return filepath.Clean(cmp.Or(dir, ".")), strings.TrimSuffix(base, ext) + "-", ext
}

// backup is an old file.
type backup struct {
	path string
	at   time.Time
}

// tidy removes what is too old or too much, and packs the rest. What cannot be removed or packed now is tried again the next time.
func (f *File) tidy() {
	f.tidying.Lock()
	defer f.tidying.Unlock()
	old := f.backups()
	for i, b := range old {
		tooOld := f.cfg.MaxAge > 0 && f.cfg.Clock.Since(b.at) > f.cfg.MaxAge
		if tooOld || f.cfg.MaxBackups > 0 && i >= f.cfg.MaxBackups {
			_ = os.Remove(b.path)
		} else if f.cfg.Compress && !strings.HasSuffix(b.path, ".gz") {
			_ = pack(b.path)
		}
	}
}

// backups are the old files, the newest first.
func (f *File) backups() []backup {
	dir, prefix, ext := f.parts()
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var out []backup
	for _, e := range entries {
		stem, ours := strings.CutPrefix(e.Name(), prefix)
		stem, fits := strings.CutSuffix(strings.TrimSuffix(stem, ".gz"), ext)
		if at, err := time.Parse(backupTime, stem); ours && fits && err == nil && e.Type().IsRegular() {
			out = append(out, backup{filepath.Join(dir, e.Name()), at})
		}
	}
	slices.SortFunc(out, func(a, b backup) int { return b.at.Compare(a.at) })
	return out
}

// pack replaces a file by its compressed form.
func pack(path string) error {
	from, err := os.Open(path)
	if err != nil {
		return err
	}
	defer from.Close()
	half := path + ".gz.part"
	to, err := os.OpenFile(half, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	z := gzip.NewWriter(to)
	_, err = io.Copy(z, from)
	if err = errors.Join(err, z.Close(), to.Close()); err == nil {
		err = os.Rename(half, path+".gz")
	}
	if err != nil {
		_ = os.Remove(half)
		return err
	}
	return os.Remove(path)
}

// Close ends the file, and waits until old ones are looked after.
func (f *File) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var err error
	f.closed = true
	if f.file != nil {
		err = f.file.Close()
		f.file = nil
	}
	f.ending.Wait()
	return err
}
