package h2

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// conn is one connection. Its reader is the goroutine in serve; everything that handlers and the writer share is under mu.
type conn struct {
	cfg     *Config
	server  *Server
	nc      net.Conn
	cork    *corked // nil if the connection cannot hold back
	handler http.Handler
	ctx     context.Context
	tls     *tls.ConnectionState
	remote  string

	framer *http2.Framer
	head   *headerBlock
	names  map[string]string // canonical forms of header names seen
	heard  atomic.Int64      // when the peer last sent something, in nanoseconds

	mu sync.Mutex
	outbox
	streams   map[uint32]*stream
	handlers  int    // running, also those whose stream the peer gave up
	last      uint32 // the newest stream accepted
	window    int64  // what the peer's connection window lets through
	peerInit  int32  // the peer's window for a new stream
	peerFrame int    // the largest frame that the peer takes
	encoder   *hpack.Encoder
	block     bytes.Buffer // what encoder writes to
	credit    int32        // bytes of bodies that the peer may still send
	owed      int32        // credit not yet given back
	held      int32        // bytes of bodies that wait whole for their handler
	leaving   leaving
	closed    bool
	finish    func() // what the writer does at its end
	idleSince time.Time
}

// leaving is how far a connection is on its way out.
type leaving uint8

const (
	staying leaving = iota
	warned          // the peer is told to open no more, those on their way are still taken
	final           // newer requests are ignored
)

var (
	errFlood    = http2.ConnectionError(http2.ErrCodeEnhanceYourCalm)
	errPreface  = errors.New("the client does not speak HTTP/2")
	retirePing  = [8]byte{'r', 'e', 't', 'i', 'r', 'e'}
	healthPing  = [8]byte{'h', 'e', 'a', 'l', 't', 'h'}
	initialConn = int32(65535) // RFC 9113, 6.9.2
)

func newConn(ctx context.Context, s *Server, nc net.Conn, h http.Handler) *conn {
	c := &conn{cfg: &s.cfg, server: s, nc: nc, handler: h, ctx: ctx, remote: nc.RemoteAddr().String(), names: map[string]string{},
		streams: map[uint32]*stream{}, window: int64(initialConn), peerInit: initialConn, peerFrame: 16 << 10, credit: s.cfg.ConnWindow,
		idleSince: s.cfg.Clock.Now()}
	if t, ok := nc.(*tls.Conn); ok {
		state := t.ConnectionState()
		c.tls = &state
		c.cork, _ = t.NetConn().(*corked)
	}
	c.ctx = context.WithValue(c.ctx, http.LocalAddrContextKey, nc.LocalAddr())
	c.wake = make(chan struct{}, 1)
	c.encoder = hpack.NewEncoder(&c.block)
	c.framer = http2.NewFramer(io.Discard, nil)
	return c
}

// serve reads until the connection ends.
func (c *conn) serve() {
	written := make(chan struct{})
	go func() { defer close(written); c.write() }()
	c.heard.Store(c.cfg.Clock.Now().UnixNano())
	c.greet()
	guard := c.watch()
	err := c.read()
	guard()
	c.mu.Lock()
	c.fail(err)
	c.mu.Unlock()
	<-written
}

// greet queues the server's preface.
func (c *conn) greet() {
	c.mu.Lock()
	defer c.mu.Unlock()
	settings := []http2.Setting{
		{ID: http2.SettingMaxConcurrentStreams, Val: c.cfg.MaxStreams},
		{ID: http2.SettingMaxHeaderListSize, Val: c.cfg.MaxHeader},
		{ID: http2.SettingMaxFrameSize, Val: c.cfg.MaxReadFrame},
		{ID: http2.SettingInitialWindowSize, Val: uint32(c.cfg.StreamWindow)},
	}
	c.frame(http2.FrameSettings, 0, 0, 6*len(settings))
	for _, s := range settings {
		c.out = binary.BigEndian.AppendUint16(c.out, uint16(s.ID))
		c.out = binary.BigEndian.AppendUint32(c.out, s.Val)
	}
	if more := c.cfg.ConnWindow - initialConn; more > 0 {
		c.update(0, uint32(more))
	} else {
		c.credit = initialConn
	}
	c.kick()
}

func (c *conn) read() error {
	in := bufio.NewReaderSize(c.nc, 8<<10)
	preface := make([]byte, len(http2.ClientPreface))
	if _, err := io.ReadFull(in, preface); err != nil || string(preface) != http2.ClientPreface {
		return errPreface
	}
	c.framer = http2.NewFramer(io.Discard, in)
	c.head = newHeaderBlock(c.cfg.MaxHeader)
	c.framer.SetMaxReadFrameSize(c.cfg.MaxReadFrame)
	c.framer.SetReuseFrames()
	for first := true; ; first = false {
		f, err := c.framer.ReadFrame()
		if c.cfg.PingAfter > 0 {
			c.heard.Store(c.cfg.Clock.Now().UnixNano())
		}
		if err == nil && first {
			if _, settings := f.(*http2.SettingsFrame); !settings {
				err = http2.ConnectionError(http2.ErrCodeProtocol)
			}
		}
		if err == nil {
			err = c.handle(f)
		}
		var of http2.StreamError
		if errors.As(err, &of) {
			c.abort(of.StreamID, of.Code)
			continue
		}
		if err != nil {
			return err
		}
	}
}

func (c *conn) handle(f http2.Frame) error {
	switch f := f.(type) {
	case *http2.HeadersFrame:
		if err := c.head.read(f, c.framer); err != nil {
			return err
		}
		return c.onHeaders(c.head)
	case *http2.DataFrame:
		return c.onData(f)
	case *http2.WindowUpdateFrame:
		return c.onWindow(f)
	case *http2.RSTStreamFrame:
		return c.onReset(f)
	case *http2.SettingsFrame:
		return c.onSettings(f)
	case *http2.PingFrame:
		return c.onPing(f)
	case *http2.GoAwayFrame:
		c.onGoAway()
	case *http2.PushPromiseFrame:
		return http2.ConnectionError(http2.ErrCodeProtocol)
	case *http2.PriorityFrame:
		if f.StreamDep == f.StreamID {
			return http2.StreamError{StreamID: f.StreamID, Code: http2.ErrCodeProtocol}
		}
	}
	return nil
}

// fail ends the connection for err, telling the peer if it broke the rules. The caller holds mu.
func (c *conn) fail(err error) {
	if c.closed {
		return
	}
	c.closed = true
	code, tell := http2.ErrCodeNo, false
	var broken http2.ConnectionError
	switch {
	case errors.As(err, &broken):
		code, tell = http2.ErrCode(broken), true
	case errors.Is(err, http2.ErrFrameTooLarge):
		code, tell = http2.ErrCodeFrameSize, true
	case errors.Is(err, errIdle):
		tell = true
	}
	if tell {
		c.cfg.Log.Debug("an HTTP/2 connection ends", "from", c.remote, "code", code.String(), "error", err)
		c.goodbye(c.last, code)
	}
	for id, st := range c.streams {
		c.drop(id, st, errGone)
	}
	c.release()
	_ = c.nc.SetWriteDeadline(time.Now().Add(lingerTime)) // a peer that takes nothing holds the writer no longer
	c.finish = func() { c.hangUp(tell) }
	close(c.wake)
}

// hangUp closes the connection. What is already sent is given a moment to arrive: closing a socket that has unread input destroys it.
func (c *conn) hangUp(lingering bool) {
	if t, ok := c.nc.(*tls.Conn); ok && lingering {
		_ = t.CloseWrite()
		_ = t.SetReadDeadline(time.Now().Add(lingerTime))
		_, _ = io.CopyN(io.Discard, t.NetConn(), outFlooded)
	}
	_ = c.nc.Close()
}

const lingerTime = 200 * time.Millisecond

// goodbye queues a GOAWAY.
func (c *conn) goodbye(last uint32, code http2.ErrCode) {
	c.frame(http2.FrameGoAway, 0, 0, 8)
	c.out = binary.BigEndian.AppendUint32(c.out, last)
	c.out = binary.BigEndian.AppendUint32(c.out, uint32(code))
}

// update gives the peer n more bytes of a stream's or, for 0, the connection's window.
func (c *conn) update(id, n uint32) {
	c.frame(http2.FrameWindowUpdate, 0, id, 4)
	c.out = binary.BigEndian.AppendUint32(c.out, n)
}

// reset queues a RST_STREAM.
func (c *conn) reset(id uint32, code http2.ErrCode) {
	c.frame(http2.FrameRSTStream, 0, id, 4)
	c.out = binary.BigEndian.AppendUint32(c.out, uint32(code))
}

// abort ends a stream by an error of the peer's.
func (c *conn) abort(id uint32, code http2.ErrCode) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	if id > c.last {
		c.last = id // the peer has used it up
	}
	if st := c.streams[id]; st != nil {
		c.drop(id, st, errReset)
	}
	c.reset(id, code)
	c.kick()
}

// repay gives the peer back n bytes of the connection's window, in few frames.
func (c *conn) repay(n int32) {
	if c.owed += n; c.owed >= c.cfg.ConnWindow/2 && !c.closed {
		c.update(0, uint32(c.owed))
		c.credit += c.owed
		c.owed = 0
		c.kick()
	}
}
