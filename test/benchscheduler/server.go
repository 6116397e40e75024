package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/yare-project/yare/internal/freeport"
)

const (
	startTime = 30 * time.Second
	ticks     = 100 // of the kernel's clock in a second: USER_HZ is 100 on every Linux that Go runs on
)

// server is a `yare server` of this program's own.
type server struct {
	dir, kubeconfig string
	cmd             *exec.Cmd
	ended           chan error
	log             bytes.Buffer
}

// start starts a server without a node on a new folder and waits until it is ready.
func start(ctx context.Context, yare string) (*server, error) {
	port, err := freeport.Find("127.0.0.1")
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "yare-benchscheduler-")
	if err != nil {
		return nil, err
	}
	s := &server{dir: dir, kubeconfig: filepath.Join(dir, "kubeconfig"), ended: make(chan error, 1)}
	s.cmd = exec.Command(yare, "server", "--disable-agent", "--data-dir", filepath.Join(dir, "data"), "--bind-address", "127.0.0.1", "--https-listen-port", strconv.Itoa(port),
		"--write-kubeconfig", s.kubeconfig)
	s.cmd.Stdout, s.cmd.Stderr = &s.log, &s.log
	if err := s.cmd.Start(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	go func() { s.ended <- s.cmd.Wait() }()
	if err := s.ready(ctx, port); err != nil {
		err = errors.Join(err, s.stop())
		return nil, fmt.Errorf("%w\n%s", err, s.lastWords())
	}
	return s, nil
}

func (s *server) ready(ctx context.Context, port int) error {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	// The server's own loopback address, before its CA is known.
	probe := &http.Client{Timeout: time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case err := <-s.ended:
			s.ended <- err
			return fmt.Errorf("the server ended: %w", err)
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		if _, err := os.Stat(s.kubeconfig); err != nil {
			continue
		}
		res, err := probe.Get(fmt.Sprintf("https://127.0.0.1:%d/readyz", port))
		if err != nil {
			continue
		}
		res.Body.Close()
		if res.StatusCode == http.StatusOK {
			return nil
		}
	}
}

// stop ends the server and removes its folder.
func (s *server) stop() error {
	_ = s.cmd.Process.Signal(os.Interrupt) // it may have ended by itself
	select {
	case <-s.ended:
	case <-time.After(startTime):
		_ = s.cmd.Process.Kill()
		<-s.ended
	}
	return os.RemoveAll(s.dir)
}

// lastWords is the end of the log of a server that has ended.
func (s *server) lastWords() []byte {
	text := s.log.Bytes()
	return text[max(0, len(text)-4096):]
}

// cpu is the processor time that the server has had so far.
func (s *server) cpu() time.Duration {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	// The name, in brackets, may hold anything; the fields after it are counted from 3 (proc_pid_stat(5)).
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.ParseInt(fields[11], 10, 64)
	system, _ := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * time.Second / ticks
}

// resident is what the server holds in RAM, in MiB.
func (s *server) resident() float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			if fields := strings.Fields(rest); len(fields) > 0 {
				kib, _ := strconv.ParseFloat(fields[0], 64)
				return kib / 1024
			}
		}
	}
	return 0
}
