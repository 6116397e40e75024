package disk_test

import (
	"io/fs"
	"strings"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// operation is a write operation that a brittle file system is about to perform.
type operation struct {
	name string // create, write, sync, rename, remove
	file string
	// number counts the operations of the file system from 1.
	number int
}

func (o operation) log() bool   { return strings.HasSuffix(o.file, ".log") }
func (o operation) table() bool { return strings.HasSuffix(o.file, ".sst") }

// brittle is a file system that asks before each write operation, and tells after it.
type brittle struct {
	vfs.FS
	mu     sync.Mutex
	count  int
	before func(operation) error // an error is returned in place of the operation; nil never refuses
	after  func(operation)
}

// refuse sets what happens from now on.
func (b *brittle) refuse(before func(operation) error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.before = before
}

func (b *brittle) operations() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.count
}

func (b *brittle) do(name, file string, run func() error) error {
	b.mu.Lock()
	b.count++
	op, before, after := operation{name: name, file: file, number: b.count}, b.before, b.after
	b.mu.Unlock()
	if before != nil {
		if err := before(op); err != nil {
			return &fs.PathError{Op: name, Path: file, Err: err}
		}
	}
	err := run()
	if after != nil {
		after(op)
	}
	return err
}

func (b *brittle) Create(name string, c vfs.DiskWriteCategory) (f vfs.File, err error) {
	err = b.do("create", name, func() (err error) { f, err = b.FS.Create(name, c); return err })
	return b.wrap(name, f, err)
}

func (b *brittle) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (f vfs.File, err error) {
	err = b.do("create", name, func() (err error) { f, err = b.FS.OpenReadWrite(name, c, opts...); return err })
	return b.wrap(name, f, err)
}

func (b *brittle) ReuseForWrite(from, to string, c vfs.DiskWriteCategory) (f vfs.File, err error) {
	err = b.do("rename", to, func() (err error) { f, err = b.FS.ReuseForWrite(from, to, c); return err })
	return b.wrap(to, f, err)
}

func (b *brittle) OpenDir(name string) (vfs.File, error) {
	f, err := b.FS.OpenDir(name)
	return b.wrap(name, f, err)
}

func (b *brittle) Rename(from, to string) error {
	return b.do("rename", to, func() error { return b.FS.Rename(from, to) })
}

func (b *brittle) Remove(name string) error {
	return b.do("remove", name, func() error { return b.FS.Remove(name) })
}

func (b *brittle) wrap(name string, f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return &brittleFile{File: f, name: name, fs: b}, nil
}

type brittleFile struct {
	vfs.File
	name string
	fs   *brittle
}

func (f *brittleFile) Write(p []byte) (n int, err error) {
	err = f.fs.do("write", f.name, func() (err error) { n, err = f.File.Write(p); return err })
	return n, err
}

func (f *brittleFile) Sync() error { return f.fs.do("sync", f.name, f.File.Sync) }

func (f *brittleFile) SyncData() error { return f.fs.do("sync", f.name, f.File.SyncData) }

func (f *brittleFile) SyncTo(length int64) (full bool, err error) {
	err = f.fs.do("sync", f.name, func() (err error) { full, err = f.File.SyncTo(length); return err })
	return full, err
}
