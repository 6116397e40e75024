package image

import (
	"context"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// watchFolder sends when a visible file of a folder was closed by its writer or
// moved in. Changes that nobody took yet are merged. The channel closes when ctx
// ends.
func watchFolder(ctx context.Context, dir string) (<-chan struct{}, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("inotify_init", err)
	}
	f := os.NewFile(uintptr(fd), "inotify")
	if _, err := unix.InotifyAddWatch(fd, dir, unix.IN_CLOSE_WRITE|unix.IN_MOVED_TO); err != nil {
		f.Close()
		return nil, os.NewSyscallError("inotify_add_watch", err)
	}
	stop := context.AfterFunc(ctx, func() { f.Close() })
	out := make(chan struct{}, 1)
	go func() {
		defer close(out)
		defer func() {
			if stop() {
				f.Close()
			}
		}()
		buf := make([]byte, 64<<10)
		for {
			n, err := f.Read(buf)
			if err != nil {
				return
			}
			if !mentionsArchive(buf[:n]) {
				continue
			}
			select {
			case out <- struct{}{}:
			default:
			}
		}
	}()
	return out, nil
}

// mentionsArchive reads a batch of events. A lost one (overflow) counts.
func mentionsArchive(b []byte) bool {
	for len(b) >= unix.SizeofInotifyEvent {
		e := (*unix.InotifyEvent)(unsafe.Pointer(&b[0]))
		end := unix.SizeofInotifyEvent + int(e.Len)
		if e.Mask&unix.IN_Q_OVERFLOW != 0 || isArchive(unix.ByteSliceToString(b[unix.SizeofInotifyEvent:end])) {
			return true
		}
		b = b[end:]
	}
	return false
}
