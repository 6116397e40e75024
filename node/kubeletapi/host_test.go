package kubeletapi_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	testingclock "k8s.io/utils/clock/testing"

	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/yare-project/yare/node/kubeletapi"
)

const meminfo = `MemTotal:       1000 kB
MemFree:         400 kB
Inactive(file):  100 kB
AnonPages:       250 kB
SwapTotal:        50 kB
SwapFree:         20 kB
HugePages_Total:   0
`

// A machine in files: its numbers come out under the right names, and CPU time
// becomes a rate between two readings.
func TestNodeStatistics(t *testing.T) {
	proc := t.TempDir()
	put := func(name, text string) {
		t.Helper()
		path := filepath.Join(proc, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	put("stat", "cpu  100 10 50 9999 8888 3 2 5 77 66\ncpu0 1 1 1 1\nbtime 1700000000\n")
	put("meminfo", meminfo)
	put("vmstat", "pgfault 7000\npgmajfault 70\n")
	put("loadavg", "0.1 0.2 0.3 2/345 6789\n")
	put("sys/kernel/pid_max", "32768\n")
	clock := testingclock.NewFakeClock(time.Unix(1800000000, 0))
	rt := fakeRuntime(t)
	a := serve(t, kubeletapi.Config{Runtime: rt, Images: rt, Proc: proc, Clock: clock})
	node := func() stats.NodeStats {
		t.Helper()
		var sum stats.Summary
		status, body := a.do("GET", "/stats/summary?only_cpu_and_memory=false")
		if err := json.Unmarshal([]byte(body), &sum); err != nil || status != 200 {
			t.Fatalf("%d %v: %s", status, err, body)
		}
		return sum.Node
	}
	first := node()
	got := map[string]uint64{
		"cpu": *first.CPU.UsageCoreNanoSeconds, "usage": *first.Memory.UsageBytes, "working set": *first.Memory.WorkingSetBytes,
		"available": *first.Memory.AvailableBytes, "rss": *first.Memory.RSSBytes, "faults": *first.Memory.PageFaults, "major": *first.Memory.MajorPageFaults,
		"swap": *first.Swap.SwapUsageBytes, "threads": uint64(*first.Rlimit.NumOfRunningProcesses), "max": uint64(*first.Rlimit.MaxPID), "start": uint64(first.StartTime.Unix()),
	}
	want := map[string]uint64{
		"cpu": 1.7e9, "usage": 600 << 10, "working set": 500 << 10, "available": 500 << 10, "rss": 250 << 10, "faults": 7000, "major": 70,
		"swap": 30 << 10, "threads": 345, "max": 32768, "start": 1700000000,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if first.CPU.UsageNanoCores != nil {
		t.Errorf("a rate without a second reading: %d", *first.CPU.UsageNanoCores)
	}
	put("stat", "cpu  400 10 50 9999 8888 3 2 5 77 66\nbtime 1700000000\n") // 3 s of CPU more
	clock.Step(2 * time.Second)
	if second := node(); second.CPU.UsageNanoCores == nil || *second.CPU.UsageNanoCores != 1.5e9 {
		t.Errorf("3 s of CPU in 2 s is 1.5 cores, got %v", second.CPU.UsageNanoCores)
	}
	put("meminfo", "")
	if err := os.Remove(filepath.Join(proc, "stat")); err != nil {
		t.Fatal(err)
	}
	if status, _ := a.do("GET", "/stats/summary"); status != 500 {
		t.Errorf("unreadable statistics: status %d", status)
	}
	if status, body := a.do("GET", "/metrics/resource"); status != 200 || !strings.Contains(body, "\nresource_scrape_error 1\n") {
		t.Errorf("a failed scrape must say so: %d %s", status, body)
	}
}
