// Package workers runs short jobs on goroutines that outlive them: a goroutine that has done such a job has a stack of the right size already, where a
// new one grows its own step by step.
//
// A Pool starts as many goroutines as there are jobs at once, and keeps some of those that are idle. It is safe for concurrent use. It does not
// recover from a job's panic.
package workers

import "sync"

// Pool runs jobs.
type Pool[T any] struct {
	do  func(T)
	max int

	mu   sync.Mutex
	idle []chan T
}

// New makes a pool that does each job with do, and keeps at most max goroutines that have none.
func New[T any](max int, do func(T)) *Pool[T] { return &Pool[T]{do: do, max: max} }

// Run does a job on a goroutine of its own. The one that was idle last comes first: its stack and its cache lines are warm.
func (p *Pool[T]) Run(job T) {
	p.mu.Lock()
	if n := len(p.idle); n > 0 {
		next := p.idle[n-1]
		p.idle = p.idle[:n-1]
		p.mu.Unlock()
		next <- job
		return
	}
	p.mu.Unlock()
	go p.work(job)
}

func (p *Pool[T]) work(job T) {
	next := make(chan T, 1)
	for {
		p.do(job)
		var none T
		job = none // an idle worker holds no job in memory
		if !p.park(next) {
			return
		}
		var open bool
		if job, open = <-next; !open {
			return
		}
	}
}

// park offers the worker for later; false tells it to end.
func (p *Pool[T]) park(next chan T) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.idle) >= p.max {
		return false
	}
	p.idle = append(p.idle, next)
	return true
}

// Release ends the goroutines that are idle now. The pool goes on.
func (p *Pool[T]) Release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, next := range p.idle {
		close(next)
	}
	p.idle = nil
}
