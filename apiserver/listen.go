package apiserver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/yare-project/yare/internal/h2"
)

// maxHeader bounds a request's line and headers, in bytes. Selectors stand there, and what is made of them is a hundred times their size: a quarter of what
// net/http takes leaves them room for ten thousand terms.
const maxHeader = 256 << 10

// Serve answers HTTPS on ln (plain HTTP if config is nil) until ctx ends; then it turns unready, ends streams, takes no more connections, and
// answers every request that it has begun: each has the request timeout to end. It closes ln. The background work of Run goes on beside it.
func (s *Server) Serve(ctx context.Context, ln net.Listener, config *tls.Config) error {
	srv := &http.Server{
		Handler:           s.Handler(),
		ReadHeaderTimeout: 32 * time.Second,
		IdleTimeout:       3 * time.Minute,
		// Whoever sends slowly or does not read holds a goroutine and a seat; streams have bounds of their own.
		ReadTimeout:    s.cfg.Limits.Timeout + time.Second,
		WriteTimeout:   s.cfg.Limits.Timeout + grace,
		MaxHeaderBytes: maxHeader,
		ErrorLog:       log.New(debugWriter{s.cfg.Log}, "", 0),
	}
	h2.New(h2.Config{MaxStreams: 1000, MaxHeader: uint32(srv.MaxHeaderBytes), Idle: srv.IdleTimeout, ReadBody: srv.ReadTimeout, WriteAnswer: srv.WriteTimeout,
		Log: s.cfg.Log}).Attach(srv)
	if s.cfg.Hasty {
		srv.Handler = s.busy.count(srv.Handler)
	}
	background, stop := context.WithCancel(ctx)
	defer stop()
	go func() { _ = s.Run(background) }() // ends with background; its only error is the context's
	ended := make(chan error, 1)
	go func() { ended <- listen(srv, ln, config) }()
	select {
	case err := <-ended:
		return fmt.Errorf("serve %s: %w", ln.Addr(), err)
	case <-ctx.Done():
	}
	s.Drain()
	if s.cfg.Hasty {
		s.busy.wait(s.drainTime())
		err := srv.Close()
		<-ended
		return err
	}
	finish, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.drainTime())
	defer cancel()
	err := srv.Shutdown(finish)
	if err != nil {
		_ = srv.Close() // whoever is still there had their time
	}
	<-ended
	return err
}

func listen(srv *http.Server, ln net.Listener, config *tls.Config) error {
	var err error
	if config == nil {
		err = srv.Serve(ln)
	} else {
		srv.TLSConfig = config.Clone()
		if len(srv.TLSConfig.NextProtos) == 0 {
			srv.TLSConfig.NextProtos = []string{"h2", "http/1.1"}
		}
		srv.TLSConfig.DynamicRecordSizingDisabled = true // no browser waits for the first bytes of a page
		err = srv.ServeTLS(h2.Gather(ln), "", "")
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// drainTime is how long the last request may take, and be read.
func (s *Server) drainTime() time.Duration { return s.cfg.Limits.Timeout + grace }

// Unready has /readyz fail, so that whoever balances load sends new requests elsewhere; everything is still answered. It cannot be undone.
func (s *Server) Unready() { s.drain() }

// Drain turns the server unready and ends every watch and stream, over HTTP and within the process. It cannot be undone.
func (s *Server) Drain() {
	s.drain()
	s.endStreams()
	s.backends.close()
}

// debugWriter puts net/http's own complaints (handshakes of scanners, mostly) into the log where they do not disturb.
type debugWriter struct{ log *slog.Logger }

func (w debugWriter) Write(p []byte) (int, error) {
	w.log.Debug("http", "message", string(p))
	return len(p), nil
}
