package crilog_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/yare-project/yare/node/kubeletapi/crilog"
)

const sample = `2026-05-01T10:00:00.1Z stdout F first
2026-05-01T10:00:01.123456789Z stderr F warn
2026-05-01T10:00:02Z stdout P half 
2026-05-01T10:00:02.5Z stderr F between
2026-05-01T10:00:03Z stdout F and half
2026-05-01T10:00:04+02:00 stdout F 
damaged line
2026-05-01T10:00:05Z stdout F last
`

func read(t *testing.T, text string, change func(*crilog.Options)) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "0.log")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	o := crilog.Options{Path: path, Stdout: &b, Stderr: &b}
	change(&o)
	if err := crilog.Read(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func n(i int64) *int64 { return &i }

func TestRead(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*crilog.Options)
		want   string
	}{
		"all":        {func(*crilog.Options) {}, "first\nwarn\nhalf between\nand half\n\nlast\n"},
		"stdout":     {func(o *crilog.Options) { o.Stderr = nil }, "first\nhalf and half\n\nlast\n"},
		"stderr":     {func(o *crilog.Options) { o.Stdout = nil }, "warn\nbetween\n"},
		"tail 0":     {func(o *crilog.Options) { o.TailLines = n(0) }, ""},
		"tail 1":     {func(o *crilog.Options) { o.TailLines = n(1) }, "last\n"},
		"tail 99":    {func(o *crilog.Options) { o.TailLines = n(99) }, "first\nwarn\nhalf between\nand half\n\nlast\n"},
		"limit":      {func(o *crilog.Options) { o.LimitBytes = n(8) }, "first\nwa"},
		"limit 6":    {func(o *crilog.Options) { o.LimitBytes = n(6) }, "first\n"},
		"since":      {func(o *crilog.Options) { o.Since = time.Date(2026, 5, 1, 10, 0, 3, 0, time.UTC) }, "and half\nlast\n"},
		"timestamps": {func(o *crilog.Options) { o.Timestamps, o.Stderr = true, nil }, "2026-05-01T10:00:00.100000000Z first\n2026-05-01T10:00:02.000000000Z half and half\n2026-05-01T10:00:04.000000000+02:00 \n2026-05-01T10:00:05.000000000Z last\n"},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, read(t, sample, c.change)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// The last n lines are the last n lines, whatever the parts and sizes.
func TestTailEqualsLastLines(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	var text strings.Builder
	var lines []string
	for i := range 300 {
		var whole strings.Builder
		for range rnd.IntN(3) {
			part := strings.Repeat("x", rnd.IntN(1<<rnd.IntN(17)))
			fmt.Fprintf(&text, "2026-05-01T10:00:00.000000001Z stdout P %s\n", part)
			whole.WriteString(part)
		}
		fmt.Fprintf(&text, "2026-05-01T10:00:00.000000001Z stdout F %d\n", i)
		fmt.Fprintf(&whole, "%d\n", i)
		lines = append(lines, whole.String())
	}
	for _, k := range []int{1, 2, 7, 50, 299, 300, 301} {
		want := strings.Join(lines[max(0, len(lines)-k):], "")
		if got := read(t, text.String(), func(o *crilog.Options) { o.TailLines = n(int64(k)) }); got != want {
			t.Fatalf("tail %d: %d bytes, want %d (seed %d)", k, len(got), len(want), seed)
		}
	}
}

// sink collects output and lets a test wait for some of it.
type sink struct {
	mu   sync.Mutex
	b    bytes.Buffer
	wake chan struct{}
}

func newSink() *sink { return &sink{wake: make(chan struct{}, 1)} }

func (s *sink) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
	return s.b.Write(p)
}

func (s *sink) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func (s *sink) await(t *testing.T, want string) {
	t.Helper()
	limit := time.After(20 * time.Second)
	for s.String() != want {
		select {
		case <-s.wake:
		case <-limit:
			t.Fatalf("output is %q, want %q", s.String(), want)
		}
	}
}

type follower struct {
	*sink
	path    string
	running atomic.Bool
	done    chan error
}

func follow(t *testing.T, ctx context.Context, initial string) *follower {
	t.Helper()
	f := &follower{sink: newSink(), path: filepath.Join(t.TempDir(), "0.log"), done: make(chan error, 1)}
	f.running.Store(true)
	if err := os.WriteFile(f.path, []byte(initial), 0o600); err != nil {
		t.Fatal(err)
	}
	go func() {
		f.done <- crilog.Read(ctx, crilog.Options{
			Path: f.path, Stdout: f, Stderr: f, Follow: true,
			Running: func(context.Context) (bool, error) { return f.running.Load(), nil },
		})
	}()
	return f
}

func (f *follower) end(t *testing.T) {
	t.Helper()
	select {
	case err := <-f.done:
		if err != nil {
			t.Errorf("follow: %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("following does not end")
	}
}

func out(s string) string { return "2026-05-01T10:00:00Z stdout F " + s + "\n" }

func TestFollowSurvivesRotationAndEndsWithTheContainer(t *testing.T) {
	f := follow(t, t.Context(), out("a"))
	f.await(t, "a\n")
	w, err := os.OpenFile(f.path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(w, out("b"))
	f.await(t, "a\nb\n")
	// A line that arrives in two writes appears once it is whole.
	fmt.Fprint(w, out("c")[:20])
	fmt.Fprint(w, out("c")[20:])
	f.await(t, "a\nb\nc\n")

	// Rotation: rename, a last line into the old file, then a new one.
	if err := os.Rename(f.path, f.path+".1"); err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(w, out("d"))
	next, err := os.OpenFile(f.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	w.Close()
	fmt.Fprint(next, out("e"))
	f.await(t, "a\nb\nc\nd\ne\n")

	fmt.Fprint(next, out("f"))
	f.running.Store(false)
	next.Close()
	f.end(t)
	if got := f.String(); got != "a\nb\nc\nd\ne\nf\n" {
		t.Errorf("after the container's end the output is %q", got)
	}
}

func TestFollowOfAnEndedContainerIsARead(t *testing.T) {
	f := follow(t, t.Context(), out("only"))
	f.running.Store(false)
	w, _ := os.OpenFile(f.path, os.O_APPEND|os.O_WRONLY, 0)
	w.Close()
	f.end(t)
	if f.String() != "only\n" {
		t.Errorf("output is %q", f.String())
	}
}

func TestFollowEndsWithItsReader(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	f := follow(t, ctx, out("a"))
	f.await(t, "a\n")
	cancel()
	f.end(t)
}

func TestMissingFile(t *testing.T) {
	err := crilog.Read(t.Context(), crilog.Options{Path: filepath.Join(t.TempDir(), "none")})
	if err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("error is %v", err)
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(sample), int64(2))
	f.Fuzz(func(t *testing.T, b []byte, tail int64) {
		path := filepath.Join(t.TempDir(), "0.log")
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		var s bytes.Buffer
		if err := crilog.Read(t.Context(), crilog.Options{Path: path, Stdout: &s, Stderr: &s, TailLines: &tail}); err == nil && s.Len() > len(b)+len(b) {
			t.Errorf("%d bytes of log gave %d bytes of output", len(b), s.Len())
		}
	})
}
