package runtime

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// process is a daemon that runs on its own: a child, or one that an earlier Yare
// left behind.
type process struct {
	pid    int
	exited chan struct{} // closed when it has ended
	why    string        // set before exited closes; "" when unknown
}

// record identifies a running daemon across restarts of Yare. A process ID alone
// could have been given to another program since.
type record struct {
	PID int `json:"pid"`
	// Start is field 22 of /proc/PID/stat: clock ticks since boot.
	Start uint64 `json:"start"`
	// Fingerprint of the programs and settings it was started with.
	Fingerprint string `json:"fingerprint"`
}

// spawn starts a daemon that outlives this process and is out of reach of
// signals from the terminal. Its output goes to a file, never a pipe: a pipe
// would break when Yare ends.
func spawn(argv, env []string, output *os.File) (*process, error) {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = env
	cmd.Stdout, cmd.Stderr = output, output
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{pid: cmd.Process.Pid, exited: make(chan struct{})}
	go func() {
		err := cmd.Wait()
		p.why = "it exited by itself"
		if err != nil {
			p.why = err.Error()
		}
		close(p.exited)
	}()
	return p, nil
}

// adopt watches a process that is not a child. It fails when the process that
// the record means has gone.
func adopt(r record) (*process, error) {
	fd, err := unix.PidfdOpen(r.PID, unix.PIDFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("process %d: %w", r.PID, err)
	}
	f := os.NewFile(uintptr(fd), "pidfd")
	// With the descriptor open, the number can't change hands any more.
	if start, err := startTime(r.PID); err != nil || start != r.Start {
		f.Close()
		return nil, fmt.Errorf("process %d is another one now", r.PID)
	}
	p := &process{pid: r.PID, exited: make(chan struct{})}
	go func() {
		defer close(p.exited)
		defer f.Close()
		waitReadable(f)
	}()
	return p, nil
}

// waitReadable parks until a pidfd reports the process's end.
func waitReadable(f *os.File) {
	conn, err := f.SyscallConn()
	if err != nil {
		return
	}
	_ = conn.Read(func(fd uintptr) bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		return n > 0 || (err != nil && !errors.Is(err, unix.EINTR))
	})
}

func (p *process) signal(s syscall.Signal) error {
	err := syscall.Kill(p.pid, s)
	if errors.Is(err, syscall.ESRCH) {
		return nil
	}
	return err
}

// startTime reads when a process started. The command's name, in parentheses, may
// hold anything, so fields are counted after the last ")".
func startTime(pid int) (uint64, error) {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0, err
	}
	return parseStartTime(b)
}

func parseStartTime(stat []byte) (uint64, error) {
	end := bytes.LastIndexByte(stat, ')')
	fields := bytes.Fields(stat[end+1:])
	const startField = 22 - 3 // fields here begin with the third
	if end < 0 || len(fields) <= startField {
		return 0, errors.New("malformed stat line")
	}
	if string(fields[0]) == "Z" {
		return 0, errors.New("the process has ended")
	}
	return strconv.ParseUint(string(fields[startField]), 10, 64)
}

func readRecord(path string) (record, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return record{}, err
	}
	var r record
	if err := json.Unmarshal(b, &r); err != nil {
		return record{}, err
	}
	if r.PID <= 1 {
		return record{}, fmt.Errorf("process ID %d", r.PID)
	}
	return r, nil
}

func writeRecord(path string, p *process, fingerprint string) error {
	start, err := startTime(p.pid)
	if err != nil {
		return err
	}
	b, err := json.Marshal(record{PID: p.pid, Start: start, Fingerprint: fingerprint})
	if err != nil {
		return err
	}
	return replaceFile(path, b)
}

func replaceFile(path string, b []byte) error {
	tmp := path + ".new"
	if err := os.WriteFile(tmp, b, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}
