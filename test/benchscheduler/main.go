// Command benchscheduler prints how many pods a second the scheduler places, by workload: decided in memory, where only the decision counts, and from creation to
// bound through the API of a server of its own, whose store is on disk. Client and server share the machine.
//
// Figures move with the machine: compare those of one run. docs/performance.md keeps recorded ones. What it starts it stops, and its folders go with it.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"slices"
	"strings"
	"syscall"
	"time"
)

// line is one line of the table.
const line = "%-28s %8s %12s %16s %10s %9s %8s %9s %11s %9s\n"

type options struct {
	yare, rows, profile string
	memory, api         bool
	nodes, pods         int
	clients, repeat     int
}

func main() {
	var o options
	flag.StringVar(&o.yare, "yare", "bin/yare", "the program that serves the API")
	flag.StringVar(&o.rows, "rows", "", "which workloads, by comma-separated beginnings of their names; empty: all")
	flag.BoolVar(&o.memory, "memory", true, "measure decisions in memory")
	flag.BoolVar(&o.api, "api", true, "measure from creation to bound over the API")
	flag.IntVar(&o.nodes, "nodes", 0, "nodes; 0: as each workload says")
	flag.IntVar(&o.pods, "pods", 0, "pods to measure; 0: as each workload says")
	flag.IntVar(&o.clients, "clients", 32, "clients that create pods at once")
	flag.IntVar(&o.repeat, "repeat", 1, "how often to run each; the table has the best")
	flag.StringVar(&o.profile, "cpuprofile", "", "write a processor profile to this file: of the decisions in memory or, with -memory=false, of the server")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, &o); err != nil {
		fmt.Fprintln(os.Stderr, "benchscheduler:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o *options) error {
	if o.memory && o.profile != "" {
		f, err := os.Create(o.profile)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	fmt.Printf("%s, %d processors, %s\n\n", runtime.Version(), runtime.NumCPU(), time.Now().UTC().Format(time.DateOnly))
	fmt.Printf(line, "", "", "Kubernetes'", "goal", "in memory", "CPU", "heap", "to bound", "CPU of the", "server")
	fmt.Printf(line, "workload", "nodes", "floor", "", "pods/s", "per pod", "", "pods/s", "server/pod", "resident")
	for _, w := range workloads() {
		if !o.wants(w.name) {
			continue
		}
		row, err := o.measure(ctx, &w)
		if err != nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}
		fmt.Printf(line, row...)
	}
	return nil
}

func (o *options) wants(name string) bool {
	return o.rows == "" || slices.ContainsFunc(strings.Split(o.rows, ","), func(r string) bool { return strings.HasPrefix(name, r) })
}

// measure gives a workload's line of the table.
func (o *options) measure(ctx context.Context, w *workload) ([]any, error) {
	none := []any{"-", "-", "-"}
	if o.nodes > 0 {
		w.nodes = o.nodes
	}
	if o.pods > 0 {
		w.pods = o.pods
		if w.served > 0 {
			w.served = o.pods
		}
	}
	memory, api := none, none
	for range o.repeat {
		debug.FreeOSMemory()
		if o.memory {
			f, err := inMemory(w)
			if err != nil {
				return nil, err
			}
			memory = f.better(memory)
		}
		if o.api && w.served > 0 {
			f, err := served(ctx, o, w)
			if err != nil {
				return nil, err
			}
			api = f.better(api)
		}
	}
	return slices.Concat([]any{w.name, commas(float64(w.nodes)), w.floor, w.goal}, memory, api), nil
}

// better is the cells of f, or those there are if their rate is higher.
func (f figure) better(cells []any) []any {
	var before float64
	if _, err := fmt.Sscan(strings.ReplaceAll(fmt.Sprint(cells[0]), ",", ""), &before); err == nil && before > f.rate {
		return cells
	}
	return []any{commas(f.rate), fmt.Sprintf("%.1f µs", float64(f.cpu)/float64(time.Microsecond)), fmt.Sprintf("%.0f MiB", f.mib)}
}

// commas writes a number with commas.
func commas(v float64) string {
	s := fmt.Sprintf("%.0f", v)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// processorTime is what this process has had so far.
func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
