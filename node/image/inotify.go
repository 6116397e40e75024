package image

import (
	"context"
	"os"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// batch names archives that were closed by their writers or moved in.
type batch struct {
	names []string
	all   bool // the kernel lost some: look at every file
}

// watchFolder sends batches. What nobody took yet is merged. The channel closes
// when ctx ends.
func watchFolder(ctx context.Context, dir string) (<-chan batch, error) {
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
	out := make(chan batch, 1)
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
			b := archivesIn(buf[:n])
			if !b.all && len(b.names) == 0 {
				continue
			}
			select {
			case old := <-out:
				b = batch{append(old.names, b.names...), old.all || b.all}
			default:
			}
			out <- b // there is room: this is the only sender
		}
	}()
	return out, nil
}

// archivesIn reads the kernel's events.
func archivesIn(b []byte) batch {
	var out batch
	for len(b) >= unix.SizeofInotifyEvent {
		e := (*unix.InotifyEvent)(unsafe.Pointer(&b[0]))
		end := unix.SizeofInotifyEvent + int(e.Len)
		name := unix.ByteSliceToString(b[unix.SizeofInotifyEvent:end])
		switch {
		case e.Mask&unix.IN_Q_OVERFLOW != 0:
			out.all = true
		case isArchive(name) && !slices.Contains(out.names, name):
			out.names = append(out.names, name)
		}
		b = b[end:]
	}
	return out
}
