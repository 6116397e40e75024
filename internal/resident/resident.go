// Package resident keeps the memory that a process really holds near what it needs.
//
// A Go program that was busy holds, until the next forced collection, about twice what it uses, and it holds every page of its own executable that
// was ever touched, though most of them (start-up code, tables) are never looked at again. Neither matters to a busy program; both matter to a
// small machine on which it idles.
//
// Guarantee: what the program does is not changed by any of this; pages of the executable that are needed again come back from the file.
package resident

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/utils/clock"
)

const (
	period = 2 * time.Second
	// busy and quiet are how many bytes a process that is busy, or quiet, allocates in a period.
	busy  = 16 << 20
	quiet = 2 << 20
	// rest is for how many periods it must have been quiet.
	rest = 5
	// Garbage may grow to as many percent of what is in use before it is collected: while the process is busy, and otherwise. Collecting half
	// as often saves a busy server a tenth of its processor time. But garbage also scatters what stays in use over the memory that both took, most of
	// which then can't be given back: a large heap is collected when there is as much garbage as busyGarbage, though never sooner than at largeGrowth. What a collection
	// costs grows with what is in use: from hugeHeap on it is the larger part of what an object costs, and garbage may grow again with the heap, to hugeGrowth.
	busyGrowth, largeGrowth, hugeGrowth, quietGrowth = 200, 75, 150, 75
	busyGarbage                                      = 128 << 20
	hugeHeap                                         = 256 << 20
)

// Run keeps memory in step with load until ctx ends: it has garbage collected seldom while the process is busy, and gives memory back whenever it
// has become quiet: once after the start, then once after each busy time. Whoever sets GOGC decides about collections instead.
//
// forget lets go of what is kept only to save time, before memory is given back.
func Run(ctx context.Context, c clock.WithTicker, log *slog.Logger, forget func()) error {
	ticker := c.NewTicker(period)
	defer ticker.Stop()
	total, _ := heap()
	t := trimmer{due: true, last: total}
	_, fixed := os.LookupEnv("GOGC")
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C():
		}
		total, live := heap()
		trim, growth := t.now(total, live)
		if !fixed && growth != t.growth {
			t.growth = growth
			debug.SetGCPercent(growth)
		}
		if trim {
			forget()
			if err := Release(); err != nil {
				log.Warn("memory was not given back", "error", err)
			}
			t.last, _ = heap()
		}
	}
}

// trimmer decides when it is time.
type trimmer struct {
	due    bool   // the process was busy since the last time
	last   uint64 // bytes ever allocated, at the last look
	quiet  int    // periods in which nearly nothing was
	growth int    // what is set
}

// now tells, seeing how many bytes were ever allocated and how many are in use, whether to give memory back, and how far garbage may grow.
func (t *trimmer) now(total, live uint64) (trim bool, growth int) {
	grown := total - t.last
	t.last = total
	if grown > busy {
		t.due, t.quiet = true, 0
		return false, growthOf(live)
	}
	if grown > quiet {
		t.quiet = 0
		return false, cmp.Or(t.growth, quietGrowth)
	}
	if t.quiet++; t.quiet < rest || !t.due {
		return false, quietGrowth
	}
	t.due = false
	return true, quietGrowth
}

// growthOf is how far a busy process' garbage may grow, in percent of what is in use.
func growthOf(live uint64) int {
	bounded := min(max(100*busyGarbage/max(live, 1), largeGrowth), busyGrowth)
	return int(max(bounded, min(largeGrowth*live/hugeHeap, hugeGrowth)))
}

// heap is how many bytes were ever allocated, and how many were in use at the last collection.
func heap() (total, live uint64) {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}, {Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64(), sample[1].Value.Uint64()
}

// Release collects garbage, returns free memory to the kernel, and drops the pages of the executable that nobody needs at the moment.
func Release() error {
	debug.FreeOSMemory()
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		return fmt.Errorf("release memory: %w", err)
	}
	defer f.Close()
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return fmt.Errorf("release memory: %w", err)
	}
	regions, err := clean(f, exe)
	if err != nil {
		return fmt.Errorf("release memory: %w", err)
	}
	for _, r := range regions {
		if err := drop(r); err != nil && !errors.Is(err, unix.EINVAL) { // EINVAL: a locked mapping stays
			return fmt.Errorf("release memory: %w", err)
		}
	}
	return nil
}

// region is a range of addresses.
type region struct{ from, to uint64 }

// clean finds the mappings of a file that cannot be written and were never changed: their pages are in the file, byte for byte.
func clean(smaps io.Reader, file string) ([]region, error) {
	var out []region
	var current *region
	lines := bufio.NewScanner(smaps)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) == 0 {
			continue
		}
		if from, to, ok := addresses(fields[0]); ok {
			current = nil
			if len(fields) >= 6 && !strings.Contains(fields[1], "w") && strings.Join(fields[5:], " ") == file {
				current = &region{from, to}
			}
			continue
		}
		if current != nil && fields[0] == "Private_Dirty:" && len(fields) > 1 {
			if fields[1] == "0" {
				out = append(out, *current)
			}
			current = nil
		}
	}
	return out, lines.Err()
}

// addresses reads "00400000-01c7f000".
func addresses(s string) (from, to uint64, ok bool) {
	a, b, found := strings.Cut(s, "-")
	if !found {
		return 0, 0, false
	}
	from, err := strconv.ParseUint(a, 16, 64)
	if err != nil {
		return 0, 0, false
	}
	to, err = strconv.ParseUint(b, 16, 64)
	return from, to, err == nil && to > from
}

func drop(r region) error {
	_, _, errno := unix.Syscall(unix.SYS_MADVISE, uintptr(r.from), uintptr(r.to-r.from), unix.MADV_DONTNEED)
	if errno != 0 {
		return errno
	}
	return nil
}
