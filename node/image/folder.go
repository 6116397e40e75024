package image

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// importer is the part of a Store that a Folder needs.
type importer interface {
	Import(ctx context.Context, r io.Reader, opts ImportOptions) ([]Image, error)
	Has(ctx context.Context, ref string) (bool, error)
}

// FolderConfig names a folder of archives and where their images go.
type FolderConfig struct {
	// Dir is made when it is missing. Files named *.tar, *.tar.gz, *.tgz, *.tar.zst
	// and *.tzst are archives; others are left alone.
	Dir   string
	Store *Store
	Log   *slog.Logger
}

// Folder imports the archives of a folder. Its images are pinned: an image that
// was brought in by hand can't be pulled again after a garbage collection.
type Folder struct {
	dir   string
	store importer
	log   *slog.Logger
	// failed are archives that can't be imported, so that each is reported once.
	failed map[string]fileID
}

// NewFolder returns one that has not looked yet.
func NewFolder(c FolderConfig) *Folder {
	f := &Folder{dir: c.Dir, store: c.Store, log: c.Log, failed: map[string]fileID{}}
	if f.log == nil {
		f.log = slog.New(slog.DiscardHandler)
	}
	return f
}

// fileID tells whether a file changed.
type fileID struct {
	Size int64     `json:"size"`
	Time time.Time `json:"time"`
}

// known is what was imported from one file.
type known struct {
	fileID
	Images []string `json:"images"`
}

// recordName is a file in the folder that remembers what was imported, so that a
// restart doesn't read large archives again.
const recordName = ".imported.json"

// Sync imports every archive that is new, has changed, or whose images are gone.
// An archive that can't be imported is logged and skipped; the error is for the
// folder itself.
func (f *Folder) Sync(ctx context.Context) error {
	if err := os.MkdirAll(f.dir, 0o755); err != nil {
		return fmt.Errorf("image folder: %w", err)
	}
	entries, err := os.ReadDir(f.dir)
	if err != nil {
		return fmt.Errorf("image folder: %w", err)
	}
	record := f.readRecord()
	present := map[string]known{}
	for _, e := range entries {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if isArchive(e.Name()) {
			f.take(ctx, e.Name(), record, present)
		}
	}
	return f.writeRecord(record, present)
}

// syncNamed does the same for some files only, and leaves alone what others are
// still writing.
func (f *Folder) syncNamed(ctx context.Context, names []string) error {
	record := f.readRecord()
	next := maps.Clone(record)
	for _, n := range names {
		delete(next, n)
		f.take(ctx, n, record, next)
	}
	return f.writeRecord(record, next)
}

// take imports one archive and notes it, or logs why not.
func (f *Folder) take(ctx context.Context, name string, before, after map[string]known) {
	k, err := f.syncFile(ctx, name, before[name])
	if err != nil {
		f.log.Error("image archive not imported", "file", filepath.Join(f.dir, name), "err", err)
		return
	}
	if k.Images != nil {
		after[name] = k
	}
}

func (f *Folder) syncFile(ctx context.Context, name string, before known) (known, error) {
	file, err := os.Open(filepath.Join(f.dir, name))
	if errors.Is(err, os.ErrNotExist) {
		return known{}, nil
	}
	if err != nil {
		return known{}, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return known{}, err
	}
	id := fileID{info.Size(), info.ModTime().UTC().Round(0)}
	if before.same(id) && f.allPresent(ctx, before.Images) {
		return before, nil
	}
	if bad, ok := f.failed[name]; ok && bad.same(id) {
		return known{}, nil
	}
	began := time.Now()
	images, err := f.store.Import(ctx, file, ImportOptions{Pin: true})
	if err != nil {
		if ctx.Err() == nil {
			f.failed[name] = id
		}
		return known{}, err
	}
	delete(f.failed, name)
	k := known{fileID: id}
	for _, img := range images {
		k.Images = append(k.Images, img.Name)
	}
	f.log.Info("image archive imported", "file", name, "images", k.Images, "took", time.Since(began).Round(time.Millisecond))
	return k, nil
}

func (id fileID) same(other fileID) bool { return id.Size == other.Size && id.Time.Equal(other.Time) }

func (f *Folder) allPresent(ctx context.Context, refs []string) bool {
	for _, r := range refs {
		if has, err := f.store.Has(ctx, r); err != nil || !has {
			return false
		}
	}
	return true
}

// Run keeps the store up with the folder until ctx ends. An archive is read when
// its writer has closed it, or it was moved in.
func (f *Folder) Run(ctx context.Context) error {
	if err := os.MkdirAll(f.dir, 0o755); err != nil {
		return fmt.Errorf("image folder: %w", err)
	}
	changed, err := watchFolder(ctx, f.dir)
	if err != nil {
		return fmt.Errorf("watch image folder: %w", err)
	}
	err = f.Sync(ctx)
	for {
		if err != nil && ctx.Err() == nil {
			f.log.Error("image folder not read", "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case batch, ok := <-changed:
			switch {
			case ctx.Err() != nil:
				return nil
			case !ok:
				return errors.New("watch image folder: the kernel stopped telling changes")
			case batch.all:
				err = f.Sync(ctx)
			default:
				err = f.syncNamed(ctx, batch.names)
			}
		}
	}
}

func isArchive(name string) bool {
	if strings.HasPrefix(name, ".") {
		return false
	}
	for _, end := range []string{".tar", ".tar.gz", ".tgz", ".tar.zst", ".tzst"} {
		if strings.HasSuffix(name, end) {
			return true
		}
	}
	return false
}

// readRecord forgets everything when the record is missing or damaged: importing
// again is slow but right.
func (f *Folder) readRecord() map[string]known {
	out := map[string]known{}
	if b, err := os.ReadFile(filepath.Join(f.dir, recordName)); err == nil {
		if json.Unmarshal(b, &out) != nil {
			return map[string]known{}
		}
	}
	return out
}

func (f *Folder) writeRecord(before, now map[string]known) error {
	old, err := json.Marshal(before)
	if err != nil {
		return fmt.Errorf("image folder: %w", err)
	}
	b, err := json.Marshal(now)
	if err != nil || string(old) == string(b) {
		return err
	}
	tmp := filepath.Join(f.dir, recordName+".new")
	if err := os.WriteFile(tmp, b, 0o644); err != nil {
		return fmt.Errorf("image folder: %w", err)
	}
	if err := os.Rename(tmp, filepath.Join(f.dir, recordName)); err != nil {
		return fmt.Errorf("image folder: %w", err)
	}
	return nil
}
