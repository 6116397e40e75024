package workers_test

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/yare-project/yare/internal/workers"
)

func TestAllJobsAreDoneAndIdleWorkersEnd(t *testing.T) {
	before := runtime.NumGoroutine()
	var sum atomic.Int64
	var wait sync.WaitGroup
	p := workers.New(4, func(n int64) { sum.Add(n); wait.Done() })
	for round := range 10 {
		for n := range int64(100) {
			wait.Add(1)
			p.Run(n)
		}
		wait.Wait()
		if got, want := sum.Load(), int64(round+1)*4950; got != want {
			t.Fatalf("the jobs of %d rounds gave %d, want %d", round+1, got, want)
		}
	}
	p.Release()
	for runtime.NumGoroutine() > before { // they are on their way out
		runtime.Gosched()
	}
}

func TestAJobWaitsForNoOther(t *testing.T) {
	open := make(chan struct{})
	var wait sync.WaitGroup
	p := workers.New(1, func(f func()) { defer wait.Done(); f() })
	wait.Add(3)
	p.Run(func() { <-open })
	p.Run(func() { <-open })
	p.Run(func() { close(open) })
	wait.Wait()
	p.Release()
}
