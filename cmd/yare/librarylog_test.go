package main

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"
)

func TestClosedStreamsAreNoErrors(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(libraryLog{slog.NewTextHandler(&out, nil)}).With("from", "library")
	log.Error("Error on socket receive", "err", fmt.Errorf("read tcp: %w", net.ErrClosed))
	log.Error("Error on socket receive", "err", errors.New("a torn frame"))
	log.Error("something else", "err", net.ErrClosed)
	got := strings.Count(out.String(), "\n")
	if got != 2 || !strings.Contains(out.String(), "a torn frame") || !strings.Contains(out.String(), "something else") {
		t.Errorf("logged:\n%s", out.String())
	}
}
