// Package pidfile remembers which process an instance is, in a way that a reused process number cannot fool: the file holds the number
// and the process's start time.
package pidfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Process is a process as the file names it.
type Process struct {
	PID int
	// Started is the start time in clock ticks since boot (field 22 of /proc/PID/stat).
	Started uint64
}

// Self is the calling process.
func Self() (Process, error) { return Of(os.Getpid()) }

// Of describes a running process.
func Of(pid int) (Process, error) {
	started, err := startTime(pid)
	if err != nil {
		return Process{}, err
	}
	return Process{PID: pid, Started: started}, nil
}

// Alive tells whether the process still runs.
func (p Process) Alive() bool {
	started, err := startTime(p.PID)
	return err == nil && started == p.Started
}

// Write stores p at path, replacing what was there in one step.
func Write(path string, p Process) error {
	tmp := path + ".new"
	if err := os.WriteFile(tmp, fmt.Appendf(nil, "%d %d\n", p.PID, p.Started), 0o644); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

// Read returns the process that path names. ok is false if there is no file, or the process that it names has ended.
func Read(path string) (p Process, ok bool, err error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Process{}, false, nil
	}
	if err != nil {
		return Process{}, false, err
	}
	if _, err := fmt.Sscanf(string(text), "%d %d", &p.PID, &p.Started); err != nil {
		return Process{}, false, fmt.Errorf("%s holds no process: %w; delete it if no Yare runs from this folder", path, err)
	}
	return p, p.Alive(), nil
}

func startTime(pid int) (uint64, error) {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0, err
	}
	// The command name, in parentheses, may hold spaces and parentheses: count fields after the last one.
	text := string(stat)
	fields := strings.Fields(text[strings.LastIndex(text, ")")+1:])
	if len(fields) < 20 || fields[0] == "Z" {
		return 0, fmt.Errorf("process %d has ended", pid)
	}
	return strconv.ParseUint(fields[19], 10, 64)
}
