// Package h2 serves HTTP/2 connections to an http.Handler, at a fraction of what net/http's own server spends on a short request or a streamed
// event.
//
// It differs from net/http in where the work is done. Handlers run on goroutines that are kept, so their stacks grow once and not once a
// request. A handler writes its frames straight into its connection's output buffer, with no hand-over to a serving goroutine for each frame;
// one writer per connection sends whatever has gathered meanwhile, so two hundred watchers that wake for one event share one record and one
// system call. A small body is read before its handler starts.
//
// Guarantees: the framing rules of RFC 9113, tested by a suite that runs against net/http's server too; flow control both ways; every buffer
// bounded (see [Config]), so that a peer that sends much, reads nothing, opens and resets streams or floods control frames loses its connection
// and costs the others nothing; a dead peer is found by pings; http.Server.Shutdown lets accepted requests finish. Framing and header compression
// themselves are golang.org/x/net/http2's.
//
// It does not push, does not speak HTTP/2 without TLS negotiation of its own accord, has no priorities, no extended CONNECT and no hijacking:
// upgrades (WebSocket, SPDY) come over HTTP/1.1, which net/http serves on the same listener.
//
// All exported methods are safe for concurrent use.
package h2

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"

	"github.com/yare-project/yare/internal/workers"
)

// Config bounds what a peer may ask for. Zero fields take the defaults that are given; sizes are bytes.
type Config struct {
	// MaxStreams is how many requests one connection may have open: 1,000. One more is refused, which clients retry.
	MaxStreams uint32
	// MaxHeader bounds a request's header list: 1 MiB. A longer one is answered 431.
	MaxHeader uint32
	// MaxReadFrame is the largest frame that a peer may send: 256 KiB.
	MaxReadFrame uint32
	// StreamWindow and ConnWindow are how much of the bodies is held that handlers have not read: 1 MiB each.
	StreamWindow, ConnWindow int32
	// Idle closes a connection without requests: 3 min.
	Idle time.Duration
	// PingAfter sends a ping when nothing came for this long, 30 s, and PingTimeout ends the connection when still nothing comes: 15 s.
	PingAfter, PingTimeout time.Duration
	// WriteTimeout ends a connection whose peer takes nothing for this long: 30 s.
	WriteTimeout time.Duration
	// ReadBody and WriteAnswer bound how long a request's body may take to come, and its answer to be taken; zero is no bound. A handler that
	// streams sets its own deadlines by http.ResponseController.
	ReadBody, WriteAnswer time.Duration
	// Workers is how many goroutines are kept for later requests: 256.
	Workers int
	Clock   clock.WithDelayedExecution
	Log     *slog.Logger
}

func (c Config) withDefaults() Config {
	c.MaxStreams = cmp.Or(c.MaxStreams, 1000)
	c.MaxHeader = cmp.Or(c.MaxHeader, 1<<20)
	c.MaxReadFrame = cmp.Or(c.MaxReadFrame, 256<<10)
	c.StreamWindow = cmp.Or(c.StreamWindow, 1<<20)
	c.ConnWindow = cmp.Or(c.ConnWindow, 1<<20)
	c.Idle = cmp.Or(c.Idle, 3*time.Minute)
	c.PingAfter = cmp.Or(c.PingAfter, 30*time.Second)
	c.PingTimeout = cmp.Or(c.PingTimeout, 15*time.Second)
	c.WriteTimeout = cmp.Or(c.WriteTimeout, 30*time.Second)
	c.Workers = cmp.Or(c.Workers, 256)
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

// Server serves connections until it is shut down.
type Server struct {
	cfg     Config
	workers *workers.Pool[*stream]
	dated   atomic.Pointer[dated]

	mu      sync.Mutex
	conns   map[*conn]struct{}
	closing bool
}

// New builds a server.
func New(cfg Config) *Server {
	cfg = cfg.withDefaults()
	return &Server{cfg: cfg, workers: workers.New(cfg.Workers, (*stream).serve), conns: map[*conn]struct{}{}}
}

// Attach makes srv hand its HTTP/2 connections to s, and shut s down with it.
func (s *Server) Attach(srv *http.Server) {
	if srv.TLSNextProto == nil {
		srv.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){}
	}
	srv.TLSNextProto["h2"] = func(srv *http.Server, c *tls.Conn, h http.Handler) {
		ctx := context.WithValue(context.Background(), http.ServerContextKey, srv)
		if base, ok := h.(interface{ BaseContext() context.Context }); ok {
			ctx = context.WithValue(base.BaseContext(), http.ServerContextKey, srv)
		}
		s.ServeConn(ctx, c, h)
	}
	srv.RegisterOnShutdown(s.goAway)
}

// ServeConn serves one connection, whose TLS handshake is done, until it ends, and closes it.
func (s *Server) ServeConn(ctx context.Context, nc net.Conn, h http.Handler) {
	c := newConn(ctx, s, nc, h)
	if !s.add(c) {
		_ = nc.Close()
		return
	}
	defer s.remove(c)
	c.serve()
}

func (s *Server) add(c *conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return false
	}
	s.conns[c] = struct{}{}
	return true
}

func (s *Server) remove(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
	if len(s.conns) == 0 {
		s.workers.Release() // nobody is there to be quick for
	}
}

// goAway tells every peer to go elsewhere with new requests; connections end as their last request does.
func (s *Server) goAway() {
	s.mu.Lock()
	s.closing = true
	conns := make([]*conn, 0, len(s.conns))
	for c := range s.conns {
		conns = append(conns, c)
	}
	s.mu.Unlock()
	for _, c := range conns {
		c.retire()
	}
}

var (
	errGone  = errors.New("the client has gone")
	errReset = errors.New("the client gave up the request")
)
