package audit

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/time/rate"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/utils/clock"
)

// BatchConfig says how events are gathered.
type BatchConfig struct {
	// Buffer is how many events may wait; further ones are dropped and counted.
	Buffer int
	// Size is how many events make a batch; Wait is how long the first of them waits for the others.
	Size int
	Wait time.Duration
	// Throttle bounds the batches by QPS (a second, on average) and Burst.
	Throttle bool
	QPS      float32
	Burst    int
	// Async lets a batch be written while earlier ones are not done yet.
	Async bool
}

// maxAsync bounds the batches that are written at once: an output that hangs shall fill the buffer, not the memory.
const maxAsync = 16

// batcher gathers events and writes them in the background.
type batcher struct {
	cfg    BatchConfig
	next   *writer
	clock  clock.Clock
	buffer chan *auditv1.Event
	places chan struct{} // for batches that are being written
	limit  *rate.Limiter // nil: none

	// stopping ends the gathering; ctx what is being written.
	stopping chan struct{}
	ctx      context.Context
	cancel   context.CancelFunc
	working  sync.WaitGroup
	full     sync.Once // told that the buffer is
	closing  sync.Once
}

func newBatcher(cfg BatchConfig, next *writer, c clock.Clock) *batcher {
	b := &batcher{cfg: cfg, next: next, clock: c, buffer: make(chan *auditv1.Event, max(cfg.Buffer, 1)), places: make(chan struct{}, maxAsync), stopping: make(chan struct{})}
	if cfg.Throttle {
		b.limit = rate.NewLimiter(rate.Limit(cfg.QPS), cfg.Burst)
	}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	b.working.Go(b.run)
	return b
}

var errBufferFull = errors.New("the buffer of events is full: the output is slower than requests come")

func (b *batcher) take(e *auditv1.Event) bool {
	select {
	case b.buffer <- e:
	default:
		b.next.metrics.errors.WithLabelValues("buffered").Inc()
		// Said once, not for each event: a full log would only make the server slower still. The metric counts them all.
		b.full.Do(func() {
			b.next.log.Error("audit events are dropped", "output", b.next.sink.Name(), "error", errBufferFull)
		})
	}
	return true
}

func (b *batcher) run() {
	for {
		select {
		case e := <-b.buffer:
			b.send(b.gather(e))
		case <-b.stopping:
			for rest := b.waiting(nil); len(rest) > 0; rest = b.waiting(nil) {
				b.send(rest)
			}
			return
		}
	}
}

// gather makes a batch that begins with an event.
func (b *batcher) gather(first *auditv1.Event) []*auditv1.Event {
	batch := b.waiting([]*auditv1.Event{first})
	if len(batch) >= b.cfg.Size || b.cfg.Wait <= 0 {
		return batch
	}
	timer := b.clock.NewTimer(b.cfg.Wait)
	defer timer.Stop()
	for len(batch) < b.cfg.Size {
		select {
		case e := <-b.buffer:
			batch = append(batch, e)
		case <-timer.C():
			return batch
		case <-b.stopping:
			return batch
		}
	}
	return batch
}

// waiting adds to a batch what waits already.
func (b *batcher) waiting(batch []*auditv1.Event) []*auditv1.Event {
	for len(batch) < b.cfg.Size {
		select {
		case e := <-b.buffer:
			batch = append(batch, e)
		default:
			return batch
		}
	}
	return batch
}

func (b *batcher) send(batch []*auditv1.Event) {
	b.pause()
	if !b.cfg.Async {
		_ = b.next.write(b.ctx, batch) // the writer has counted what failed
		return
	}
	b.places <- struct{}{}
	b.working.Go(func() {
		defer func() { <-b.places }()
		_ = b.next.write(b.ctx, batch)
	})
}

// pause waits until the next batch may be written. At the end nothing waits.
func (b *batcher) pause() {
	if b.limit == nil {
		return
	}
	now := b.clock.Now()
	wait := b.limit.ReserveN(now, 1).DelayFrom(now)
	if wait <= 0 {
		return
	}
	timer := b.clock.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C():
	case <-b.stopping:
	}
}

// close writes what waits, as long as ctx lasts.
func (b *batcher) close(ctx context.Context) error {
	b.closing.Do(func() { close(b.stopping) })
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.working.Wait()
	}()
	select {
	case <-done:
	case <-ctx.Done():
		b.cancel()
		<-done
	}
	b.cancel()
	return b.next.sink.Close()
}
