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
)

// drainTime is how long requests in flight may take to finish once the server is told to stop.
const drainTime = 10 * time.Second

// Serve answers HTTPS on ln (plain HTTP if config is nil) until ctx ends; then it turns unready, ends streams, and lets the requests in flight
// finish for a bounded time. It closes ln. The background work of Run goes on beside it.
func (s *Server) Serve(ctx context.Context, ln net.Listener, config *tls.Config) error {
	srv := &http.Server{
		Handler:           s.Handler(),
		ReadHeaderTimeout: 32 * time.Second,
		IdleTimeout:       3 * time.Minute,
		MaxHeaderBytes:    1 << 20,
		ErrorLog:          log.New(debugWriter{s.cfg.Log}, "", 0),
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: 1000, MaxReadFrameSize: 256 << 10},
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
	finish, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTime)
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
		err = srv.ServeTLS(ln, "", "")
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

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
