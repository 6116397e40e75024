package disk

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// failure is the first thing that went wrong with a database.
type failure struct {
	once sync.Once
	done chan struct{} // closed once err is set
	err  error
}

func newFailure() *failure { return &failure{done: make(chan struct{})} }

func (f *failure) set(err error) {
	f.once.Do(func() {
		f.err = err
		close(f.done)
	})
}

// get returns nil while nothing is wrong.
func (f *failure) get() error {
	select {
	case <-f.done:
		return f.err
	default:
		return nil
	}
}

// freezer is a file system for one open database. The first write operation that fails never returns, and neither does any that
// starts after it. Reads go through.
//
// It also knows how much of the manifest is synced, and the number of the log that is.
type freezer struct {
	vfs.FS
	failed   *failure
	manifest atomic.Pointer[manifestMark]
	log      atomic.Uint64
}

// manifestMark says that the manifest of this name was synced when it had this size.
type manifestMark struct {
	name string
	size int64
}

func (f *freezer) isManifest(name string) bool {
	return strings.HasPrefix(f.FS.PathBase(name), "MANIFEST-")
}

// guard runs a write operation.
func (f *freezer) guard(op, name string, run func() error) {
	if f.failed.get() != nil {
		park()
	}
	if err := run(); err != nil {
		f.failed.set(fmt.Errorf("%s %s: %w", op, name, err))
		park()
	}
}

func park() { select {} }

func (f *freezer) Create(name string, category vfs.DiskWriteCategory) (out vfs.File, _ error) {
	f.guard("create", name, func() (err error) {
		if out, err = f.FS.Create(name, category); err == nil && f.isManifest(name) {
			return f.syncDir(f.FS.PathDir(name))
		}
		return err
	})
	return f.wrap(name, out), nil
}

// syncDir makes sure that a new manifest is found before anything names it: Pebble syncs the folder only once, for the manifest and for
// the marker that names it, and no rule says in which order a file system keeps the two.
func (f *freezer) syncDir(name string) error {
	dir, err := f.FS.OpenDir(name)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

func (f *freezer) OpenReadWrite(name string, category vfs.DiskWriteCategory, opts ...vfs.OpenOption) (out vfs.File, _ error) {
	f.guard("open", name, func() (err error) { out, err = f.FS.OpenReadWrite(name, category, opts...); return err })
	return f.wrap(name, out), nil
}

func (f *freezer) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (out vfs.File, _ error) {
	f.guard("reuse", oldname, func() (err error) { out, err = f.FS.ReuseForWrite(oldname, newname, category); return err })
	return f.wrap(newname, out), nil
}

func (f *freezer) OpenDir(name string) (vfs.File, error) {
	dir, err := f.FS.OpenDir(name)
	if err != nil {
		return nil, err
	}
	return f.wrap(name, dir), nil
}

func (f *freezer) Link(oldname, newname string) error {
	f.guard("link", newname, func() error { return f.FS.Link(oldname, newname) })
	return nil
}

func (f *freezer) Rename(oldname, newname string) error {
	f.guard("rename", oldname, func() error { return f.FS.Rename(oldname, newname) })
	return nil
}

// Remove reports that there is nothing to remove, since that harms nobody.
func (f *freezer) Remove(name string) (err error) {
	f.guard("remove", name, func() error {
		if err = f.FS.Remove(name); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	return err
}

func (f *freezer) RemoveAll(name string) error {
	f.guard("remove", name, func() error { return f.FS.RemoveAll(name) })
	return nil
}

func (f *freezer) MkdirAll(dir string, perm os.FileMode) error {
	f.guard("mkdir", dir, func() error { return f.FS.MkdirAll(dir, perm) })
	return nil
}

// Lock does nothing: the journal holds the folder's lock, across the databases that it opens.
func (f *freezer) Lock(string) (io.Closer, error) { return io.NopCloser(nil), nil }

func (f *freezer) Unwrap() vfs.FS { return f.FS }

func (f *freezer) wrap(name string, file vfs.File) vfs.File {
	return &freezerFile{File: file, name: name, fs: f}
}

// freezerFile is a file, or a directory, that can be written.
type freezerFile struct {
	vfs.File
	name    string
	fs      *freezer
	written atomic.Int64
}

func (f *freezerFile) Write(p []byte) (n int, _ error) {
	f.fs.guard("write", f.name, func() (err error) { n, err = f.File.Write(p); return err })
	f.written.Add(int64(n))
	return n, nil
}

func (f *freezerFile) WriteAt(p []byte, off int64) (n int, _ error) {
	f.fs.guard("write", f.name, func() (err error) { n, err = f.File.WriteAt(p, off); return err })
	return n, nil
}

func (f *freezerFile) Sync() error {
	size := f.written.Load()
	f.fs.guard("sync", f.name, f.File.Sync)
	if f.fs.isManifest(f.name) {
		f.fs.manifest.Store(&manifestMark{name: f.fs.PathBase(f.name), size: size})
	}
	return nil
}

func (f *freezerFile) SyncData() error {
	f.fs.guard("sync", f.name, f.File.SyncData)
	if number, ok := logNumber(f.fs.FS.PathBase(f.name)); ok && number > f.fs.log.Load() {
		f.fs.log.Store(number)
	}
	return nil
}

func (f *freezerFile) SyncTo(length int64) (full bool, _ error) {
	f.fs.guard("sync", f.name, func() (err error) { full, err = f.File.SyncTo(length); return err })
	return full, nil
}

// Preallocate is a wish: file systems that can't are no failure, but one that has no room is.
func (f *freezerFile) Preallocate(offset, length int64) (err error) {
	f.fs.guard("allocate", f.name, func() error {
		if err = f.File.Preallocate(offset, length); errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
			return err
		}
		return nil
	})
	return err
}

func (f *freezerFile) Close() error {
	f.fs.guard("close", f.name, f.File.Close)
	return nil
}
