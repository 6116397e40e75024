package bench

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Result is what one load gave. A field that does not apply is zero, and left out of JSON.
type Result struct {
	Load    string  `json:"load"`
	Count   int     `json:"count,omitempty"`
	Failed  int     `json:"failed,omitempty"`
	Clients int     `json:"clients,omitempty"`
	Seconds float64 `json:"seconds"`
	// PerSecond are operations, for a watch delivered events, for "schedule" pods bound.
	PerSecond float64 `json:"perSecond,omitempty"`
	P50       float64 `json:"p50Milliseconds,omitempty"`
	P99       float64 `json:"p99Milliseconds,omitempty"`
	// CPU is what the server's processes spent on one operation, in microseconds; MemoryMiB what they hold afterwards.
	CPU       float64 `json:"serverCPUMicroseconds,omitempty"`
	MemoryMiB float64 `json:"serverMemoryMiB,omitempty"`
	// IdlePercent is of one processor.
	IdlePercent float64 `json:"idlePercent,omitempty"`
	// Stages are the mean times of the stages of one request.
	Stages []Stage `json:"stages,omitempty"`
	// FirstError is of the requests that failed.
	FirstError string `json:"firstError,omitempty"`
}

// Stage is one stage of a request.
type Stage struct {
	Name         string  `json:"name"`
	Microseconds float64 `json:"microseconds"`
}

// measure does something count times by that many clients at once, and reports it.
func (r *run) measure(ctx context.Context, name string, count, clients int, do func(ctx context.Context, i int) error) error {
	var next, failed atomic.Int64
	var first atomic.Pointer[string]
	took := make([][]time.Duration, clients)
	before, start := r.cpu(), time.Now()
	var all sync.WaitGroup
	for c := range clients {
		all.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= count {
					return
				}
				began := time.Now()
				if err := do(ctx, i); err != nil {
					failed.Add(1)
					text := err.Error()
					first.CompareAndSwap(nil, &text)
				}
				took[c] = append(took[c], time.Since(began))
			}
		})
	}
	all.Wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	result := r.result(name, count, time.Since(start), r.cpu()-before, slices.Concat(took...))
	result.Clients, result.Failed = clients, int(failed.Load())
	if text := first.Load(); text != nil {
		result.FirstError = *text
	}
	r.Report(result)
	return nil
}

// result puts a measurement into figures.
func (r *run) result(name string, count int, elapsed, cpu time.Duration, took []time.Duration) Result {
	slices.Sort(took)
	return Result{
		Load: name, Count: count, Seconds: elapsed.Seconds(), PerSecond: float64(count) / elapsed.Seconds(), P50: quantile(took, 0.5), P99: quantile(took, 0.99),
		CPU: micros(cpu) / float64(max(count, 1)), MemoryMiB: r.memory(),
	}
}

// quantile of sorted times, in milliseconds.
func quantile(sorted []time.Duration, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return float64(sorted[int(q*float64(len(sorted)-1))]) / float64(time.Millisecond)
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
