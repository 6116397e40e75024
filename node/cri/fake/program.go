package fake

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"
)

// Process is what a program sees of its container.
type Process struct {
	ID, Name, Pod, Image string
	Command, Args        []string
	Env                  map[string]string
	Config               *runtimeapi.ContainerConfig
	// Stop is closed when the container is asked to end.
	Stop           <-chan struct{}
	Stdout, Stderr io.Writer
	Clock          clock.Clock
}

// Program is what a container runs; it returns the exit code. ctx ends when the container is killed.
type Program func(ctx context.Context, p *Process) int

// Program registers what containers of an image run.
func (r *Runtime) Program(image string, p Program) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.programs[image] = p
}

func newProcess(c *container, clk clock.Clock) *Process {
	env := map[string]string{}
	for _, kv := range c.config.Envs {
		env[kv.Key] = string(kv.Value)
	}
	return &Process{ID: c.status.Id, Name: c.config.Metadata.Name, Pod: c.sandbox.config.Metadata.Name, Image: c.status.Image.Image,
		Command: c.config.Command, Args: c.config.Args, Env: env, Config: c.config, Stop: c.stop,
		Stdout: c.log.writer("stdout"), Stderr: c.log.writer("stderr"), Clock: clk}
}

// Shell is the default program. It carries out "true", "false", "exit N", "sleep N" (or "inf") and "echo ...", alone or as a list in
// `sh -c`, separated by ";" or "&&"; any other command runs until it is stopped, and then ends with 143, as for SIGTERM.
func Shell(ctx context.Context, p *Process) int {
	words := append(append([]string{}, p.Command...), p.Args...)
	if len(words) == 0 {
		return wait(ctx, p, -1)
	}
	if (filepath.Base(words[0]) == "sh" || filepath.Base(words[0]) == "bash") && len(words) >= 3 && words[1] == "-c" {
		code := 0
		for _, line := range strings.FieldsFunc(strings.ReplaceAll(words[2], "&&", ";"), func(c rune) bool { return c == ';' || c == '\n' }) {
			var end bool
			if code, end = command(ctx, p, strings.Fields(line)); end {
				return code
			}
		}
		return code
	}
	code, _ := command(ctx, p, words)
	return code
}

func command(ctx context.Context, p *Process, words []string) (code int, end bool) {
	if len(words) == 0 {
		return 0, false
	}
	switch filepath.Base(words[0]) {
	case "true":
		return 0, false
	case "false":
		return 1, false
	case "exit":
		n, _ := strconv.Atoi(strings.Join(words[1:], ""))
		return n, true
	case "echo":
		fmt.Fprintln(p.Stdout, os.Expand(strings.Join(words[1:], " "), func(k string) string { return p.Env[k] }))
		return 0, false
	case "sleep":
		seconds := -1.0
		if len(words) > 1 {
			if f, err := strconv.ParseFloat(words[1], 64); err == nil {
				seconds = f
			}
		}
		code = wait(ctx, p, seconds)
		return code, code != 0
	}
	return wait(ctx, p, -1), true
}

func wait(ctx context.Context, p *Process, seconds float64) int {
	var after <-chan time.Time
	if seconds >= 0 {
		after = p.Clock.After(time.Duration(seconds * float64(time.Second)))
	}
	select {
	case <-after:
		return 0
	case <-p.Stop:
		return 143
	case <-ctx.Done():
		return 137
	}
}

// logFile writes lines in the CRI log format: time, stream, tag, text.
type logFile struct {
	mu    sync.Mutex
	path  string
	file  *os.File
	clock clock.Clock
}

func openLog(path string, clk clock.Clock) (*logFile, error) {
	l := &logFile{path: path, clock: clk}
	if path == "" {
		return l, nil
	}
	return l, l.reopen()
}

func (l *logFile) reopen() error {
	if err := os.MkdirAll(filepath.Dir(l.path), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(l.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file != nil {
		_ = l.file.Close()
	}
	l.file = f
	return nil
}

func (l *logFile) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file != nil {
		_ = l.file.Close()
		l.file = nil
	}
}

type logWriter struct {
	log    *logFile
	stream string
}

func (l *logFile) writer(stream string) io.Writer { return logWriter{l, stream} }

func (w logWriter) Write(b []byte) (int, error) {
	w.log.mu.Lock()
	defer w.log.mu.Unlock()
	if w.log.file == nil {
		return len(b), nil
	}
	for _, line := range strings.Split(strings.TrimSuffix(string(b), "\n"), "\n") {
		if _, err := fmt.Fprintf(w.log.file, "%s %s F %s\n", w.log.clock.Now().UTC().Format(time.RFC3339Nano), w.stream, line); err != nil {
			return 0, err
		}
	}
	return len(b), nil
}
