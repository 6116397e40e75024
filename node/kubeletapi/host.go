package kubeletapi

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// hostUsage is what the whole machine uses.
type hostUsage struct {
	cpuNanos   uint64 // since boot
	nanoCores  *uint64
	memTotal   uint64
	memFree    uint64 // what could be had without swapping
	memUsed    uint64 // with caches
	workingSet uint64 // without what can be dropped at once
	rss        uint64
	faults     uint64
	majorFault uint64
	swapUsed   uint64
	swapFree   uint64
	bootTime   time.Time
	threads    int64
	maxPID     int64
}

// clockTick is USER_HZ, which Linux fixes at 100 for what it reports in /proc.
const clockTick = 100

func readHost(proc string) (hostUsage, error) {
	var h hostUsage
	stat, err := os.ReadFile(filepath.Join(proc, "stat"))
	if err != nil {
		return h, fmt.Errorf("machine usage: %w", err)
	}
	h.cpuNanos, h.bootTime = parseStat(stat)
	mem, err := os.ReadFile(filepath.Join(proc, "meminfo"))
	if err != nil {
		return h, fmt.Errorf("machine usage: %w", err)
	}
	h.memory(parseMeminfo(mem))
	vm, err := os.ReadFile(filepath.Join(proc, "vmstat"))
	if err != nil {
		return h, fmt.Errorf("machine usage: %w", err)
	}
	for line := range strings.Lines(string(vm)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		n, _ := strconv.ParseUint(value, 10, 64)
		switch key {
		case "pgfault":
			h.faults = n
		case "pgmajfault":
			h.majorFault = n
		}
	}
	h.threads = threads(filepath.Join(proc, "loadavg"))
	if b, err := os.ReadFile(filepath.Join(proc, "sys/kernel/pid_max")); err == nil {
		h.maxPID, _ = strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	}
	return h, nil
}

// parseStat sums the busy columns of the first line: all but idle, iowait, and
// guest time, which is part of user time already.
func parseStat(b []byte) (nanos uint64, boot time.Time) {
	for line := range bytes.Lines(b) {
		f := bytes.Fields(line)
		if len(f) < 2 {
			continue
		}
		switch string(f[0]) {
		case "cpu":
			for i, v := range f[1:] {
				n, _ := strconv.ParseUint(string(v), 10, 64)
				if i != 3 && i != 4 && i < 8 {
					nanos += n * (uint64(time.Second) / clockTick)
				}
			}
		case "btime":
			n, _ := strconv.ParseInt(string(f[1]), 10, 64)
			boot = time.Unix(n, 0)
		}
	}
	return nanos, boot
}

// parseMeminfo returns bytes by name.
func parseMeminfo(b []byte) map[string]uint64 {
	out := map[string]uint64{}
	for line := range strings.Lines(string(b)) {
		key, rest, ok := strings.Cut(line, ":")
		f := strings.Fields(rest)
		if !ok || len(f) == 0 {
			continue
		}
		n, _ := strconv.ParseUint(f[0], 10, 64)
		if len(f) > 1 && f[1] == "kB" {
			n <<= 10
		}
		out[key] = n
	}
	return out
}

func (h *hostUsage) memory(m map[string]uint64) {
	h.memTotal = m["MemTotal"]
	h.memUsed = m["MemTotal"] - m["MemFree"]
	h.workingSet = h.memUsed - min(h.memUsed, m["Inactive(file)"])
	h.memFree = h.memTotal - h.workingSet
	h.rss = m["AnonPages"]
	h.swapFree = m["SwapFree"]
	h.swapUsed = m["SwapTotal"] - m["SwapFree"]
}

// threads reads the total of "running/total" in /proc/loadavg.
func threads(path string) int64 {
	b, err := os.ReadFile(path)
	f := strings.Fields(string(b))
	if err != nil || len(f) < 4 {
		return 0
	}
	_, total, _ := strings.Cut(f[3], "/")
	n, _ := strconv.ParseInt(total, 10, 64)
	return n
}

// cpuRate turns a counter into a rate between two readings.
type cpuRate struct {
	mu    sync.Mutex
	at    time.Time
	nanos uint64
	rate  *uint64
}

// minInterval keeps two readings close together from giving a wild rate.
const minInterval = time.Second

// update returns nanoseconds of CPU a second: nil until there are two readings.
func (c *cpuRate) update(now time.Time, nanos uint64) *uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	passed := now.Sub(c.at)
	if !c.at.IsZero() && passed < minInterval {
		return c.rate
	}
	if !c.at.IsZero() && nanos >= c.nanos {
		r := uint64(float64(nanos-c.nanos) / passed.Seconds())
		c.rate = &r
	}
	c.at, c.nanos = now, nanos
	return c.rate
}

// diskUsage is a file system's.
type diskUsage struct{ total, free, used, inodes, inodesFree uint64 }

func readDisk(dir string) (diskUsage, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return diskUsage{}, fmt.Errorf("file system of %s: %w", dir, err)
	}
	size := uint64(s.Bsize)
	return diskUsage{
		total: s.Blocks * size, free: s.Bavail * size, used: (s.Blocks - s.Bfree) * size,
		inodes: s.Files, inodesFree: s.Ffree,
	}, nil
}

// treeSize adds up the files of a folder that holds only a few, such as a
// container's logs.
func treeSize(dir string) (bytes, files uint64) {
	_ = filepath.WalkDir(dir, func(_ string, d os.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		files++
		if info, err := d.Info(); err == nil && info.Mode().IsRegular() {
			bytes += uint64(info.Size())
		}
		return nil
	})
	return bytes, files
}
