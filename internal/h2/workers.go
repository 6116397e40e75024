package h2

import "sync"

// workers keeps goroutines for the next request. The one that was idle last comes first: its stack and its cache lines are warm.
type workers struct {
	max  int
	mu   sync.Mutex
	idle []chan *stream
}

func newWorkers(max int) *workers { return &workers{max: max} }

// run serves st on a goroutine of its own.
func (w *workers) run(st *stream) {
	w.mu.Lock()
	if n := len(w.idle); n > 0 {
		next := w.idle[n-1]
		w.idle = w.idle[:n-1]
		w.mu.Unlock()
		next <- st
		return
	}
	w.mu.Unlock()
	go w.work(st)
}

func (w *workers) work(st *stream) {
	next := make(chan *stream, 1)
	for {
		st.serve()
		st = nil // an idle worker holds no request in memory
		if !w.park(next) {
			return
		}
		var open bool
		if st, open = <-next; !open {
			return
		}
	}
}

// park offers the worker for later; false tells it to end.
func (w *workers) park(next chan *stream) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.idle) >= w.max {
		return false
	}
	w.idle = append(w.idle, next)
	return true
}

// release ends the idle workers.
func (w *workers) release() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, next := range w.idle {
		close(next)
	}
	w.idle = nil
}
