package pluginregistry

import (
	"context"
	"os"

	"golang.org/x/sys/unix"
)

// watch wakes when something comes to a folder or goes.
type watch struct {
	file  *os.File
	woken chan struct{}
}

func newWatch(ctx context.Context) (*watch, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("inotify_init", err)
	}
	w := &watch{file: os.NewFile(uintptr(fd), "inotify"), woken: make(chan struct{}, 1)}
	context.AfterFunc(ctx, func() { w.file.Close() })
	go w.read()
	return w, nil
}

// add watches a folder; one that is watched already costs nothing.
func (w *watch) add(dir string) {
	raw, err := w.file.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) { // a folder that is not there is looked for again
		_, _ = unix.InotifyAddWatch(int(fd), dir, unix.IN_CREATE|unix.IN_MOVED_TO|unix.IN_DELETE|unix.IN_MOVED_FROM)
	})
}

// read ends when the file is closed. What happened is looked up in the folder.
func (w *watch) read() {
	buf := make([]byte, 16<<10)
	for {
		if _, err := w.file.Read(buf); err != nil {
			return
		}
		select {
		case w.woken <- struct{}{}:
		default:
		}
	}
}
