package reread_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/yare-project/yare/internal/reread"
)

// TestEachChangeIsToldOnce turns the clock: what stays the same is not told, what is bad is tried again and logged once, what is gone is no change.
func TestEachChangeIsToldOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("one")
	clock := clocktesting.NewFakeClock(time.Now())
	told := make(chan string)
	log := &buffer{}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- reread.Run(ctx, reread.Config{Path: path, Have: []byte("one"), Clock: clock, Log: slog.New(slog.NewTextHandler(log, nil)),
			Changed: func(_ context.Context, data []byte) error {
				told <- string(data)
				if string(data) == "bad" {
					return errors.New("no good")
				}
				return nil
			}})
	}()
	hears := func(want string) {
		t.Helper()
		for { // several looks may pass before the one that sees it
			select {
			case got := <-told:
				if got != want {
					t.Fatalf("told %q, want %q", got, want)
				}
				return
			case <-time.After(time.Millisecond):
				clock.Step(5 * time.Second)
			}
		}
	}
	write("two")
	hears("two")
	write("bad")
	hears("bad")
	hears("bad")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	for !strings.Contains(log.String(), "cannot be read any more") {
		clock.Step(5 * time.Second)
	}
	write("three")
	hears("three")
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if got := log.String(); strings.Count(got, "is not used; what it said before stays in force") != 1 || !strings.Contains(got, "no good") {
		t.Errorf("log: %s", got)
	}
}

func TestALargeFileIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, make([]byte, reread.MaxSize+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := reread.Read(path); err == nil {
		t.Error("a file larger than MaxSize was read")
	}
}

type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) { b.mu.Lock(); defer b.mu.Unlock(); return b.b.Write(p) }
func (b *buffer) String() string              { b.mu.Lock(); defer b.mu.Unlock(); return b.b.String() }
