package crilog

import (
	"errors"
	"io"
	"time"
)

// errLimit ends a read that reached Options.LimitBytes.
var errLimit = errors.New("limit of bytes reached")

// writer passes on what the options let through.
type writer struct {
	out, err  io.Writer // nil: that stream is not wanted
	stamps    bool
	since     time.Time
	remaining int64 // < 0: no limit
	// A part is continued by the next line of its own stream.
	inLine [2]bool
}

func newWriter(o Options) *writer {
	w := &writer{out: o.Stdout, err: o.Stderr, stamps: o.Timestamps, since: o.Since, remaining: -1}
	if o.LimitBytes != nil {
		w.remaining = *o.LimitBytes
	}
	return w
}

func (w *writer) write(l line) error {
	to, which := w.out, 0
	if l.stderr {
		to, which = w.err, 1
	}
	continues := w.inLine[which]
	w.inLine[which] = l.partial
	if to == nil || l.stamp.Before(w.since) {
		return nil
	}
	b := make([]byte, 0, len(timeFormat)+2+len(l.content))
	if w.stamps && !continues {
		b = l.stamp.AppendFormat(b, timeFormat)
		b = append(b, ' ')
	}
	b = append(b, l.content...)
	if !l.partial {
		b = append(b, '\n')
	}
	return w.put(to, b)
}

func (w *writer) put(to io.Writer, b []byte) error {
	limited := w.remaining >= 0 && int64(len(b)) >= w.remaining
	if limited {
		b = b[:w.remaining]
	}
	n, err := to.Write(b)
	if w.remaining >= 0 {
		w.remaining -= int64(n)
	}
	if err == nil && limited {
		err = errLimit
	}
	return err
}
