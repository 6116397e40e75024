package main

import (
	"context"
	"log/slog"
	"net"
	"strings"
)

// libraryLog passes on what libraries of Kubernetes log. That a client closed its stream, as every exec and port-forward ends, is an error to them; here it is none.
type libraryLog struct{ slog.Handler }

// Handle implements slog.Handler.
func (l libraryLog) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == "Error on socket receive" && mentions(r, net.ErrClosed.Error()) {
		r.Level = slog.LevelDebug
		if !l.Enabled(ctx, r.Level) {
			return nil
		}
	}
	return l.Handler.Handle(ctx, r)
}

func mentions(r slog.Record, text string) (found bool) {
	r.Attrs(func(a slog.Attr) bool {
		found = strings.Contains(a.Value.String(), text)
		return !found
	})
	return found
}

// WithAttrs implements slog.Handler.
func (l libraryLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	return libraryLog{l.Handler.WithAttrs(attrs)}
}

// WithGroup implements slog.Handler.
func (l libraryLog) WithGroup(name string) slog.Handler { return libraryLog{l.Handler.WithGroup(name)} }
