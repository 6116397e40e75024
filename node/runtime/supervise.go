package runtime

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const (
	firstDelay = 100 * time.Millisecond
	maxDelay   = 30 * time.Second
	// healthyAfter is how long a daemon must run for its next failure to count as the first.
	healthyAfter = time.Minute
	maxLog       = 10 << 20
)

// fingerprint changes when a running daemon would differ from a new one.
func (r *Runtime) fingerprint() (string, error) {
	conf, err := os.ReadFile(r.paths.config)
	if err != nil {
		return "", err
	}
	h := sha256.New()
	h.Write(conf)
	info, err := os.Stat(filepath.Join(r.cfg.BinDir, "containerd"))
	if err != nil {
		return "", err
	}
	fmt.Fprintf(h, "%d %d", info.Size(), info.ModTime().UnixNano())
	return hex.EncodeToString(h.Sum(nil)), nil
}

// adoptOrSpawn takes over the daemon of an earlier run if it is the same as a
// new one, and else starts one in its place.
func (r *Runtime) adoptOrSpawn(ctx context.Context, fingerprint string) error {
	if rec, err := readRecord(r.paths.record); err == nil {
		if old, err := adopt(rec); err == nil {
			if rec.Fingerprint == fingerprint {
				r.cfg.Log.Info("containerd taken over", "pid", old.pid)
				r.setCurrent(old)
				return nil
			}
			r.cfg.Log.Info("containerd is replaced: its program or settings changed", "pid", old.pid)
			if err := end(ctx, old); err != nil {
				return err
			}
		}
	}
	p, err := r.spawn(fingerprint)
	if err != nil {
		return err
	}
	r.setCurrent(p)
	return nil
}

func (r *Runtime) spawn(fingerprint string) (*process, error) {
	rotate(r.paths.log)
	out, err := os.OpenFile(r.paths.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("container runtime: %w", err)
	}
	defer out.Close()
	bin, err := filepath.Abs(r.cfg.BinDir)
	if err != nil {
		return nil, fmt.Errorf("container runtime: %w", err)
	}
	p, err := spawn([]string{filepath.Join(bin, "containerd"), "--config", r.paths.config, "--log-level", r.cfg.LogLevel}, environment(os.Environ(), bin), out)
	if err != nil {
		return nil, fmt.Errorf("container runtime: start containerd: %w", err)
	}
	if err := writeRecord(r.paths.record, p, fingerprint); err != nil {
		byItself := ended(p.pid)
		_ = p.signal(syscall.SIGKILL)
		<-p.exited
		if byItself {
			return nil, fmt.Errorf("container runtime: containerd ended at once (%s): %s; its log is %s", p.why, lastLines(r.paths.log), r.paths.log)
		}
		return nil, fmt.Errorf("container runtime: remember containerd: %w", err)
	}
	r.cfg.Log.Info("containerd started", "pid", p.pid, "socket", r.paths.socket, "log", r.paths.log)
	return p, nil
}

// environment puts the programs' folder first in PATH, and withholds what is
// meant for Yare itself (a supervisor's notification socket, passed listeners).
func environment(env []string, bin string) []string {
	path := bin
	var out []string
	for _, kv := range env {
		k, v, _ := strings.Cut(kv, "=")
		switch k {
		case "PATH":
			path = bin + ":" + v
		case "NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC", "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "CONTAINERD_ADDRESS", "CONTAINERD_NAMESPACE":
		default:
			out = append(out, kv)
		}
	}
	return append(out, "PATH="+path)
}

// supervise starts the daemon again whenever it ends, at growing intervals, until Stop.
func (r *Runtime) supervise(fingerprint string) {
	defer close(r.done)
	delay, since := firstDelay, r.cfg.Clock.Now()
	for {
		daemon := r.current()
		select {
		case <-r.stopping:
			return
		case <-daemon.exited:
		}
		if r.cfg.Clock.Since(since) > healthyAfter {
			delay = firstDelay
		}
		r.cfg.Log.Error("containerd ended; starting it again", "why", daemon.why, "in", delay, "log", r.paths.log)
		select {
		case <-r.stopping:
			return
		case <-r.cfg.Clock.After(delay):
		}
		delay, since = min(2*delay, maxDelay), r.cfg.Clock.Now()
		p, err := r.spawn(fingerprint)
		if err != nil {
			r.cfg.Log.Error("containerd doesn't start", "err", err)
			continue // its predecessor's end still stands, so the next round waits again
		}
		if !r.setCurrent(p) {
			_ = p.signal(syscall.SIGTERM)
			return
		}
	}
}

// current is the daemon that runs, or ran last.
func (r *Runtime) current() *process {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.daemon
}

// setCurrent reports false when Stop came first.
func (r *Runtime) setCurrent(p *process) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.daemon = p
	select {
	case <-r.stopping:
		return false
	default:
		return true
	}
}

// Stop ends supervision and the daemon; containers keep running, and the next
// Start finds them. It waits for the daemon's end, at most until ctx ends.
func (r *Runtime) Stop(ctx context.Context) error {
	r.stopOnce.Do(func() { close(r.stopping) })
	if r.conn != nil {
		defer r.conn.Close()
	}
	if r.cfg.Endpoint != "" {
		return nil
	}
	if err := end(ctx, r.current()); err != nil {
		return err
	}
	select {
	case <-r.done:
	case <-ctx.Done():
	}
	// A restart may have been under way.
	if err := end(ctx, r.current()); err != nil {
		return err
	}
	for _, f := range []string{r.paths.record, r.paths.socket, r.paths.socket + ".ttrpc"} {
		_ = os.Remove(f)
	}
	return nil
}

// Detach ends supervision and leaves the daemon running, for the next Start to
// take over.
func (r *Runtime) Detach() {
	r.stopOnce.Do(func() { close(r.stopping) })
	<-r.done
	if r.conn != nil {
		r.conn.Close()
	}
}

// end asks a process to end, and insists after a while.
func end(ctx context.Context, p *process) error {
	const patience = 5 * time.Second
	if err := p.signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("container runtime: stop containerd: %w", err)
	}
	gentle, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	select {
	case <-p.exited:
		return nil
	case <-gentle.Done():
	}
	if err := p.signal(syscall.SIGKILL); err != nil {
		return fmt.Errorf("container runtime: kill containerd: %w", err)
	}
	select {
	case <-p.exited:
		return nil
	case <-time.After(patience):
		return fmt.Errorf("container runtime: containerd (process %d) doesn't end", p.pid)
	}
}

// rotate keeps one predecessor of a log that has grown large.
func rotate(path string) {
	if info, err := os.Stat(path); err == nil && info.Size() > maxLog {
		_ = os.Rename(path, path+".1")
	}
}

// lastLines is the end of a log, for an error message.
func lastLines(path string) string {
	const most = 600
	b, err := os.ReadFile(path)
	if err != nil {
		return "no log"
	}
	if len(b) > most {
		b = b[len(b)-most:]
		if i := bytes.IndexByte(b, '\n'); i >= 0 {
			b = b[i+1:]
		}
	}
	return strings.Join(strings.Split(strings.TrimSpace(string(b)), "\n"), " | ")
}
