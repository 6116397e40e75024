package bench

import (
	"bytes"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// ticks is how many clock ticks of /proc/<pid>/stat make a second: USER_HZ is 100 on every Linux that Go runs on.
const ticks = 100

// process looks at the server's processes.
type process struct {
	proc string
	pids []int
}

// cpu is the processor time that they have had so far.
func (p *process) cpu() time.Duration {
	var total time.Duration
	for _, pid := range p.pids {
		stat, err := os.ReadFile(filepath.Join(p.proc, strconv.Itoa(pid), "stat"))
		if err != nil {
			continue // gone: what it spent is lost, as is the measurement
		}
		// The name, in brackets, may hold anything; the fields after it are counted from 3 (proc_pid_stat(5)).
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if len(fields) < 13 {
			continue
		}
		user, _ := strconv.ParseInt(fields[11], 10, 64)
		system, _ := strconv.ParseInt(fields[12], 10, 64)
		total += time.Duration(user+system) * time.Second / ticks
	}
	return total
}

// memory is what they hold in RAM, in MiB.
func (p *process) memory() float64 {
	total := 0.0
	for _, pid := range p.pids {
		status, err := os.ReadFile(filepath.Join(p.proc, strconv.Itoa(pid), "status"))
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(status)) {
			if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
				if fields := strings.Fields(rest); len(fields) > 0 {
					kib, _ := strconv.ParseFloat(fields[0], 64)
					total += kib / 1024
				}
			}
		}
	}
	return total
}

// Listener finds the process of this machine that listens at a URL's port, below proc (/proc). It finds none, without an error, if the URL is of another
// machine, or nobody is found, or what is found may not be looked at.
func Listener(proc, server string) (pid int, err error) {
	u, err := url.Parse(server)
	if err != nil {
		return 0, err
	}
	if !local(u.Hostname()) {
		return 0, nil
	}
	port, err := strconv.ParseUint(u.Port(), 10, 16)
	if err != nil {
		return 0, fmt.Errorf("server %q has no port", server)
	}
	sockets := map[string]bool{}
	for _, table := range []string{"tcp", "tcp6"} {
		data, err := os.ReadFile(filepath.Join(proc, "net", table))
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(data)) {
			// sl local_address rem_address st ... inode; state 0A is LISTEN.
			f := strings.Fields(line)
			if len(f) > 9 && f[3] == "0A" && strings.HasSuffix(f[1], fmt.Sprintf(":%04X", port)) {
				sockets["socket:["+f[9]+"]"] = true
			}
		}
	}
	links, err := filepath.Glob(filepath.Join(proc, "[0-9]*", "fd", "*"))
	if err != nil {
		return 0, err
	}
	for _, link := range links {
		if to, err := os.Readlink(link); err == nil && sockets[to] {
			return strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(link))))
		}
	}
	return 0, nil
}

// local tells whether a host is this machine.
func local(host string) bool {
	ip := net.ParseIP(host)
	if host == "localhost" || ip.IsLoopback() {
		return true
	}
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return false
	}
	for _, a := range addresses {
		if n, ok := a.(*net.IPNet); ok && n.IP.Equal(ip) {
			return true
		}
	}
	return false
}
