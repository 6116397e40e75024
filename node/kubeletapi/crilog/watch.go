package crilog

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// change is what happened to a watched log since the last one.
type change struct {
	// closed: a writer closed the file, as the runtime does when the container
	// has ended or the log is rotated.
	closed bool
	// idle: nothing happened for a while.
	idle bool
}

// watcher reports changes of a path, whichever file it names.
type watcher struct {
	changes chan change // holds at most one, merged
	err     error       // set before changes closes

	file      *os.File // the inotify instance
	fd        int
	path      string
	closeOnce sync.Once
	done      chan struct{}
}

const fileEvents = unix.IN_MODIFY | unix.IN_CLOSE_WRITE | unix.IN_MOVE_SELF | unix.IN_ATTRIB

func watch(path string) (*watcher, error) {
	// The name may be a symbolic link, as names under /var/log/containers are.
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, err
	}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("inotify_init", err)
	}
	w := &watcher{changes: make(chan change, 1), file: os.NewFile(uintptr(fd), "inotify"), fd: fd, path: real, done: make(chan struct{})}
	if _, err := unix.InotifyAddWatch(fd, filepath.Dir(real), unix.IN_CREATE|unix.IN_MOVED_TO); err != nil {
		w.file.Close()
		return nil, os.NewSyscallError("inotify_add_watch", err)
	}
	if err := w.watchFile(); err != nil {
		w.file.Close()
		return nil, err
	}
	go w.run()
	return w, nil
}

func (w *watcher) watchFile() error {
	_, err := unix.InotifyAddWatch(w.fd, w.path, fileEvents)
	return os.NewSyscallError("inotify_add_watch", err)
}

func (w *watcher) close() {
	w.closeOnce.Do(func() {
		close(w.done)
		w.file.Close()
	})
}

func (w *watcher) run() {
	defer close(w.changes)
	buf := make([]byte, 64<<10)
	for {
		n, err := w.file.Read(buf)
		if err != nil {
			w.err = err
			return
		}
		if !w.report(w.digest(buf[:n])) {
			return
		}
	}
}

// digest merges a batch of events, and turns to a new file under the path.
func (w *watcher) digest(b []byte) change {
	var c change
	for len(b) >= unix.SizeofInotifyEvent {
		e := (*unix.InotifyEvent)(unsafe.Pointer(&b[0]))
		if e.Mask&unix.IN_CLOSE_WRITE != 0 {
			c.closed = true
		}
		if e.Mask&(unix.IN_CREATE|unix.IN_MOVED_TO) != 0 {
			if err := w.watchFile(); err != nil && !errors.Is(err, fs.ErrNotExist) {
				c.idle = true // the periodic question still makes progress
			}
		}
		b = b[unix.SizeofInotifyEvent+int(e.Len):]
	}
	return c
}

// report leaves a change for the reader, merged with one it has not taken yet.
func (w *watcher) report(c change) bool {
	select {
	case old := <-w.changes:
		c.closed, c.idle = c.closed || old.closed, c.idle || old.idle
	default:
	}
	select {
	case w.changes <- c:
		return true
	case <-w.done:
		return false
	}
}
