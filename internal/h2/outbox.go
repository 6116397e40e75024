package h2

import (
	"encoding/binary"
	"errors"
	"net"
	"runtime"
	"sync"
	"time"

	"golang.org/x/net/http2"
)

const (
	// outFull is how much output may gather before handlers wait: enough for a system call to be cheap, few enough to stay in the cache.
	outFull = 64 << 10
	// outFlooded is how much may gather before a peer that reads nothing but makes the server answer its control frames is let go.
	outFlooded = 2 << 20
	// outIdle is the largest buffer that a connection keeps while it has nothing to send, outKept the largest that is kept at all.
	outIdle = 8 << 10
	outKept = 256 << 10
)

// large holds buffers of outKept bytes for connections that send much at the moment.
var large = sync.Pool{New: func() any { b := make([]byte, 0, outKept); return &b }}

// roomy returns an empty buffer for a busy connection, and keep takes it back.
func roomy(b []byte) []byte {
	if cap(b) >= outKept {
		return b[:0]
	}
	return (*large.Get().(*[]byte))[:0]
}

func keep(b []byte) {
	if cap(b) == outKept {
		b = b[:0]
		large.Put(&b)
	}
}

// outbox is a connection's output. Its fields are the connection's, under its mutex.
type outbox struct {
	out, spare []byte
	sending    bool
	wake       chan struct{}
	waiting    []*stream // those that wait for room or for the peer's windows
}

const frameHeader = 9

// frame opens a frame of n bytes of payload.
func (c *conn) frame(t http2.FrameType, flags http2.Flags, id uint32, n int) {
	if need := len(c.out) + frameHeader + n; need > cap(c.out) {
		c.grow(need)
	}
	c.out = append(c.out, byte(n>>16), byte(n>>8), byte(n), byte(t), byte(flags))
	c.out = binary.BigEndian.AppendUint32(c.out, id)
}

// grow makes room for need bytes of output: a little for a connection that answers now and then, a lot at once for one that has much to say.
func (c *conn) grow(need int) {
	switch {
	case need <= outIdle/4:
		c.out = append(make([]byte, 0, outIdle/4), c.out...)
	case need <= outKept:
		old := c.out
		c.out = append(roomy(nil), old...)
		keep(old)
	}
}

// kick wakes the writer. The caller holds mu.
func (c *conn) kick() {
	if c.closed {
		return
	}
	if len(c.out) > outFlooded {
		c.fail(errFlood)
		return
	}
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// write sends what gathers until the connection ends.
func (c *conn) write() {
	for range c.wake {
		for c.writeOnce() {
		}
	}
	c.writeOnce() // a last word, such as why the connection ends
	c.finish()
}

// writeOnce sends what is there; false if nothing was, or if a handler is at it, which goes on until nothing is.
func (c *conn) writeOnce() bool {
	// Whoever is runnable now may have something for the same record.
	runtime.Gosched()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.out) == 0 || c.sending {
		return false
	}
	c.flushOut(nil)
	return true
}

// flushOut sends what is there, then more, if any. The caller holds mu, which is let go meanwhile, and has seen that nobody else is sending.
func (c *conn) flushOut(more []byte) {
	data := c.out
	c.out, c.spare = c.spare[:0], nil
	if len(data) > outIdle {
		c.out = roomy(c.out)
	}
	c.sending = true
	c.release()
	last := c.closed
	c.mu.Unlock()

	err := c.send(data, more, last)

	c.mu.Lock()
	c.sending = false
	if len(c.out) == 0 && cap(c.out) > outIdle {
		keep(c.out)
		c.out = nil
	}
	if cap(data) <= outIdle || len(c.out) > 0 && cap(data) <= outKept {
		c.spare = data
	} else {
		keep(data)
	}
	if err != nil {
		c.fail(err)
	}
	c.ended()
}

// send writes data, then more; last says that the connection ends with it.
func (c *conn) send(data, more []byte, last bool) (err error) {
	if !last {
		if err := c.nc.SetWriteDeadline(time.Now().Add(c.cfg.WriteTimeout)); err != nil {
			return err
		}
	}
	if c.cork != nil && len(data)+len(more) > outIdle { // a single record goes out in one call anyway
		c.cork.hold()
		defer func() { err = errors.Join(err, c.cork.release()) }()
	}
	if len(data) > 0 {
		if _, err := c.nc.Write(data); err != nil {
			return err
		}
	}
	if len(more) > 0 {
		_, err = c.nc.Write(more)
	}
	return err
}

// release lets all who wait look again. The caller holds mu.
func (c *conn) release() {
	for i, st := range c.waiting {
		st.signalRoom()
		c.waiting[i] = nil
	}
	c.waiting = c.waiting[:0]
}

// Gather wraps a listener whose connections will carry TLS: the records of one write then leave in one system call.
func Gather(ln net.Listener) net.Listener { return gatherer{ln} }

type gatherer struct{ net.Listener }

func (g gatherer) Accept() (net.Conn, error) {
	c, err := g.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &corked{Conn: c}, nil
}

// corked holds back writes while it is told to.
type corked struct {
	net.Conn
	mu   sync.Mutex
	held bool
	buf  []byte
}

func (c *corked) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.held {
		return c.Conn.Write(p)
	}
	if c.buf == nil {
		c.buf = roomy(nil)
	}
	c.buf = append(c.buf, p...)
	if len(c.buf) < outFull {
		return len(p), nil
	}
	return len(p), c.flush()
}

func (c *corked) hold() {
	c.mu.Lock()
	c.held = true
	c.mu.Unlock()
}

func (c *corked) release() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held = false
	err := c.flush()
	if c.buf != nil {
		keep(c.buf)
		c.buf = nil
	}
	return err
}

func (c *corked) flush() error {
	if len(c.buf) == 0 {
		return nil
	}
	_, err := c.Conn.Write(c.buf)
	c.buf = c.buf[:0]
	return err
}
