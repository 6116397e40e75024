package crilog

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"k8s.io/utils/clock"
)

// Options say what to read. The fields mean what those of the Kubernetes API's
// PodLogOptions mean.
type Options struct {
	Path string
	// Stdout and Stderr receive the streams; nil leaves one out. Both may be one
	// writer.
	Stdout, Stderr io.Writer
	// Flush is called when everything there is has been written, before waiting for more.
	Flush func()

	Timestamps bool
	// Since leaves out earlier lines; the zero time leaves out none.
	Since time.Time
	// TailLines starts that many lines before the end; nil starts at the beginning.
	TailLines *int64
	// LimitBytes ends after that many bytes of output; nil is no limit.
	LimitBytes *int64

	// Follow waits for more until the container has ended.
	Follow bool
	// Running tells whether the container may still write. It is asked when the
	// file changed hands, and now and then. Needed for Follow.
	Running func(ctx context.Context) (bool, error)
	Clock   clock.Clock
}

// Read writes the log as the options say. It returns nil when the log ended, the
// limit was reached, or ctx ended while following.
func Read(ctx context.Context, o Options) error {
	if o.Flush == nil {
		o.Flush = func() {}
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	r := &reader{o: o, w: newWriter(o)}
	err := r.run(ctx)
	o.Flush()
	if errors.Is(err, errLimit) || (o.Follow && ctx.Err() != nil) {
		return nil
	}
	return err
}

type reader struct {
	o    Options
	w    *writer
	file *os.File
	buf  *bufio.Reader
	// rest is the beginning of a line whose end is not written yet.
	rest []byte
}

func (r *reader) run(ctx context.Context) error {
	var changes *watcher
	if r.o.Follow {
		// Watching starts before reading, so that nothing falls between.
		var err error
		if changes, err = watch(r.o.Path); err != nil {
			return fmt.Errorf("follow log: %w", err)
		}
		defer changes.close()
	}
	if err := r.open(); err != nil {
		return err
	}
	defer func() { r.file.Close() }()
	if err := r.seekTail(); err != nil {
		return fmt.Errorf("read log: %w", err)
	}
	if err := r.drain(ctx); err != nil || !r.o.Follow {
		return err
	}
	return r.follow(ctx, changes)
}

func (r *reader) open() error {
	f, err := os.Open(r.o.Path)
	if err != nil {
		return fmt.Errorf("open log: %w", err)
	}
	if r.file != nil {
		r.file.Close()
	}
	r.file, r.rest = f, nil
	r.buf = bufio.NewReaderSize(f, block)
	return nil
}

func (r *reader) seekTail() error {
	if r.o.TailLines == nil {
		return nil
	}
	info, err := r.file.Stat()
	if err != nil {
		return err
	}
	at, err := tailOffset(r.file, info.Size(), *r.o.TailLines)
	if err != nil {
		return err
	}
	_, err = r.file.Seek(at, io.SeekStart)
	return err
}

// maxLine bounds what one line may take in memory. Runtimes split lines at 16 KiB.
const maxLine = 1 << 20

// drain writes every whole line up to the end of the file.
func (r *reader) drain(ctx context.Context) error {
	for n := 0; ; n++ {
		if n%256 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		part, err := r.buf.ReadSlice('\n')
		switch {
		case err == nil:
			if err := r.emit(part); err != nil {
				return err
			}
		case errors.Is(err, bufio.ErrBufferFull), errors.Is(err, io.EOF):
			r.rest = append(r.rest, part...)
			if len(r.rest) > maxLine {
				return fmt.Errorf("read log: a line is longer than %d bytes: the file is damaged", maxLine)
			}
			if errors.Is(err, io.EOF) {
				return nil
			}
		default:
			return fmt.Errorf("read log: %w", err)
		}
	}
}

// emit writes one line. A damaged one, such as a crash of the machine leaves, is
// skipped: it must not hide what comes after.
func (r *reader) emit(part []byte) error {
	b := part
	if len(r.rest) > 0 {
		b = append(r.rest, part...)
		r.rest = r.rest[:0]
	}
	l, err := parse(bytes.TrimSuffix(b, []byte{'\n'}))
	if err != nil {
		return nil
	}
	return r.w.write(l)
}

// recheck is how often a container is asked about when the file tells nothing;
// soon after its writer closed the file, more often.
const (
	recheck     = 10 * time.Second
	recheckSoon = 50 * time.Millisecond
)

// follow alternates between draining the file and waiting for a change.
func (r *reader) follow(ctx context.Context, changes *watcher) error {
	wait := time.Duration(0) // ask about the container first
	for {
		r.o.Flush()
		c, err := r.next(ctx, changes, wait)
		if err != nil {
			return err
		}
		running := true
		if c.closed || c.idle {
			if running, err = r.o.Running(ctx); err != nil {
				return fmt.Errorf("follow log: %w", err)
			}
		}
		if err := r.drain(ctx); err != nil {
			return err
		}
		if replaced, err := r.reopen(); err != nil {
			return err
		} else if replaced {
			if err := r.drain(ctx); err != nil {
				return err
			}
		}
		if !running {
			return nil
		}
		wait = nextWait(wait, c)
	}
}

// nextWait grows the interval between questions from the moment the file was closed.
func nextWait(last time.Duration, c change) time.Duration {
	switch {
	case c.closed:
		return recheckSoon
	case c.idle && last > 0:
		return min(2*last, recheck)
	case c.idle:
		return recheck
	}
	return last
}

func (r *reader) next(ctx context.Context, changes *watcher, wait time.Duration) (change, error) {
	if wait == 0 {
		return change{idle: true}, nil
	}
	timer := r.o.Clock.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return change{}, ctx.Err()
	case c, ok := <-changes.changes:
		if !ok {
			return change{}, fmt.Errorf("follow log: %w", changes.err)
		}
		return c, nil
	case <-timer.C():
		return change{idle: true}, nil
	}
}

// reopen moves on to the file that rotation put in the old one's place, if any.
func (r *reader) reopen() (bool, error) {
	now, err := os.Stat(r.o.Path)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil // between rename and create, or removed with the container
	}
	if err != nil {
		return false, fmt.Errorf("follow log: %w", err)
	}
	have, err := r.file.Stat()
	if err != nil {
		return false, fmt.Errorf("follow log: %w", err)
	}
	if os.SameFile(now, have) {
		return false, nil
	}
	return true, r.open()
}
