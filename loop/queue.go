package loop

import (
	"container/heap"
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/utils/clock"
)

// Back-off of a failing key, and the bucket that all retries of one loop share: Kubernetes' controllers use the same numbers.
const (
	retryFirst = 5 * time.Millisecond
	retryLimit = 1000 * time.Second
	retryRate  = 10  // per second
	retryBurst = 100 // retries that may come at once
)

// queue hands out keys, each to one worker at a time, oldest first. A key added while it is worked on comes again afterwards.
// Delayed keys wait in a heap for one timer: the earliest wish for a key wins.
type queue struct {
	clock   clock.WithTicker
	metrics *queueMetrics

	mu       sync.Mutex
	wake     *sync.Cond
	ready    []Key
	since    map[Key]time.Time // of keys in ready or dirty
	dirty    map[Key]bool      // added while running
	running  map[Key]time.Time
	delayed  delays
	failures map[Key]failure
	bucket   *rate.Limiter
	closed   bool
	earlier  chan struct{} // tells run that the next due time may have come closer
}

type failure struct {
	count int
	last  error
	due   time.Time // when the retry was to come
}

func newQueue(c clock.WithTicker, m *queueMetrics) *queue {
	q := &queue{clock: c, metrics: m, since: map[Key]time.Time{}, dirty: map[Key]bool{}, running: map[Key]time.Time{},
		delayed: delays{at: map[Key]*delay{}}, failures: map[Key]failure{}, bucket: rate.NewLimiter(retryRate, retryBurst),
		earlier: make(chan struct{}, 1)}
	q.wake = sync.NewCond(&q.mu)
	return q
}

func (q *queue) add(key Key) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.addLocked(key)
}

func (q *queue) addLocked(key Key) {
	if q.closed {
		return
	}
	if _, waits := q.since[key]; waits {
		return
	}
	q.since[key] = q.clock.Now()
	q.metrics.added()
	if _, runs := q.running[key]; runs {
		q.dirty[key] = true
		return
	}
	q.push(key)
}

func (q *queue) push(key Key) {
	q.ready = append(q.ready, key)
	q.metrics.depth(len(q.ready))
	q.wake.Signal()
}

func (q *queue) addAfter(key Key, d time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.addAfterLocked(key, d)
}

func (q *queue) addAfterLocked(key Key, d time.Duration) {
	if d <= 0 {
		q.addLocked(key)
		return
	}
	if q.closed {
		return
	}
	q.delayed.put(key, q.clock.Now().Add(d))
	if q.delayed.heap[0].key == key {
		select {
		case q.earlier <- struct{}{}:
		default:
		}
	}
}

// retry adds a failed key after its back-off, jittered by up to a tenth so that keys which failed together do not return together. A pass that a change
// brought before the retry was due does not lengthen the back-off: else a few changes in a row would make a key wait for minutes.
func (q *queue) retry(key Key, err error) time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.clock.Now()
	f := q.failures[key]
	if early := now.Before(f.due); f.count == 0 || !early {
		f.count++
	}
	wait := retryLimit
	if f.count <= 18 {
		wait = min(retryFirst<<(f.count-1), retryLimit)
	}
	wait += rand.N(wait/10 + 1)
	wait = max(wait, q.bucket.ReserveN(now, 1).DelayFrom(now))
	f.last, f.due = err, now.Add(wait)
	q.failures[key] = f
	q.metrics.retried()
	q.addAfterLocked(key, wait)
	return wait
}

func (q *queue) forget(key Key) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.failures, key)
}

// take waits for a key; false when the queue is closed.
func (q *queue) take() (Key, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.ready) == 0 && !q.closed {
		q.wake.Wait()
	}
	if q.closed {
		return Key{}, false
	}
	key := q.ready[0]
	q.ready = q.ready[1:]
	if len(q.ready) == 0 {
		q.ready = nil // lets go of the array that the slice has walked through
	}
	now := q.clock.Now()
	q.metrics.depth(len(q.ready))
	q.metrics.waited(now.Sub(q.since[key]))
	delete(q.since, key)
	q.running[key] = now
	return key, true
}

func (q *queue) done(key Key) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.metrics.worked(q.clock.Since(q.running[key]))
	delete(q.running, key)
	if q.dirty[key] {
		delete(q.dirty, key)
		q.push(key)
	}
}

func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.wake.Broadcast()
}

// run releases delayed keys as they fall due, until ctx ends.
func (q *queue) run(ctx context.Context) {
	for {
		wait, any := q.release()
		var due <-chan time.Time
		var timer clock.Timer
		if any {
			timer = q.clock.NewTimer(wait)
			due = timer.C()
		}
		select {
		case <-due:
		case <-q.earlier:
		case <-ctx.Done():
		}
		if timer != nil {
			timer.Stop()
		}
		if ctx.Err() != nil {
			return
		}
	}
}

// release adds what is due and returns how long the next delayed key has to wait, if there is any.
func (q *queue) release() (wait time.Duration, any bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.clock.Now()
	for len(q.delayed.heap) > 0 {
		if due := q.delayed.heap[0].due; due.After(now) {
			return due.Sub(now), true
		}
		q.addLocked(q.delayed.pop())
	}
	return 0, false
}

// delays is a heap of keys by due time that finds a key in O(1).
type delays struct {
	heap delayHeap
	at   map[Key]*delay
}

type delay struct {
	key   Key
	due   time.Time
	place int
}

func (d *delays) put(key Key, due time.Time) {
	if x, ok := d.at[key]; ok {
		if due.Before(x.due) {
			x.due = due
			heap.Fix(&d.heap, x.place)
		}
		return
	}
	x := &delay{key: key, due: due}
	d.at[key] = x
	heap.Push(&d.heap, x)
}

func (d *delays) pop() Key {
	x := heap.Pop(&d.heap).(*delay)
	delete(d.at, x.key)
	return x.key
}

type delayHeap []*delay

func (h delayHeap) Len() int           { return len(h) }
func (h delayHeap) Less(i, j int) bool { return h[i].due.Before(h[j].due) }
func (h delayHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}
func (h *delayHeap) Push(x any) {
	d := x.(*delay)
	d.place = len(*h)
	*h = append(*h, d)
}
func (h *delayHeap) Pop() any {
	old := *h
	x := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return x
}
