package fairness

import (
	"context"
	"sync"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/utils/clock"
)

// level is a priority level at work: a queueSet under a lock, and the waiting around it.
type level struct {
	name  string
	clock clock.Clock
	epoch time.Time // the set's time zero
	// idle hears that a level that is wanted no longer has become idle.
	idle func()

	mu        sync.Mutex
	set       queueSet
	armed     bool
	quiescing bool
	gone      bool // removed: look again
	drops     drops
	most      int // seats for one request; 0: no bound of its own
	object    *flowcontrolv1.PriorityLevelConfiguration
	queueing  queueing
	target    float64
	borrower
}

func newLevel(name string, c clock.Clock, epoch time.Time, idle func()) *level {
	l := &level{name: name, clock: c, epoch: epoch, idle: idle}
	l.set.wake = func(t *Ticket) {
		if t.ready != nil {
			close(t.ready)
		}
	}
	l.set.now = l.now()
	return l
}

func (l *level) now() int64 { return int64(l.clock.Since(l.epoch)) }

// enter takes a request in; ok is false if the level is gone.
func (l *level) enter(ctx context.Context, t *Ticket, hash uint64, c *Controller) (ok bool, err error) {
	now := l.now()
	l.mu.Lock()
	if l.gone {
		l.mu.Unlock()
		return false, nil
	}
	t.level = l
	t.width = estimate(t.Work, l.most)
	t.flow.stats.widths.observe(widths, float64(t.width.seats()))
	if t.Work.Watchers > 0 {
		t.flow.stats.watchers.observe(watchCounts, float64(t.Work.Watchers))
	}
	is, why := l.set.arrive(now, t, hash)
	switch is {
	case execute:
		l.mu.Unlock()
		return true, nil
	case refused:
		retry := l.drops.add(now / int64(time.Second))
		l.mu.Unlock()
		t.level = nil
		return true, refusal(why, retry)
	}
	t.ready = make(chan struct{})
	l.arm(now)
	l.mu.Unlock()
	return true, l.await(ctx, t, c.patience(ctx))
}

// await waits for the seats; when it has waited enough, it gives up.
func (l *level) await(ctx context.Context, t *Ticket, patience time.Duration) error {
	timer := l.clock.NewTimer(patience)
	defer timer.Stop()
	why := timeOut
	select {
	case <-t.ready:
		return nil
	case <-timer.C():
	case <-ctx.Done():
		why = cancelled
	}
	now := l.now()
	l.mu.Lock()
	if !l.set.abandon(now, t, why) {
		l.mu.Unlock() // it was let in just now
		if ctx.Err() != nil {
			l.finish(t)
			return ctx.Err()
		}
		return nil
	}
	retry := l.drops.add(now / int64(time.Second))
	done := l.quiescing && l.set.idle()
	l.mu.Unlock()
	t.level = nil
	if done {
		l.idle()
	}
	if why == cancelled {
		return ctx.Err()
	}
	return refusal(why, retry)
}

// finish gives the seats back.
func (l *level) finish(t *Ticket) {
	now := l.now()
	l.mu.Lock()
	l.set.finish(now, t)
	l.arm(now)
	done := l.quiescing && l.set.idle()
	l.mu.Unlock()
	t.level = nil
	if done {
		l.idle()
	}
}

// arm sees to it that those who wait for seats that linger get them in time.
func (l *level) arm(now int64) {
	due, needed := l.set.due()
	if !needed || l.armed {
		return
	}
	l.armed = true
	timer := l.clock.NewTimer(time.Duration(due - now))
	go func() { // ends with the timer, which is a matter of milliseconds
		<-timer.C()
		now := l.now()
		l.mu.Lock()
		defer l.mu.Unlock()
		l.armed = false
		l.set.advance(now)
		l.arm(now)
	}()
}

// drops decides how long those who were turned away shall stay away, in seconds: twice as long while many still come, then less again.
type drops struct {
	second, changed int64
	recent          [maxRetry + 1]int // by second, modulo its length
	retry           int64
}

const maxRetry = 32

// add counts one at a time in seconds and returns the answer for it.
func (d *drops) add(now int64) int {
	d.retry = max(d.retry, 1)
	for s := max(d.second+1, now-maxRetry); s <= now; s++ {
		d.recent[s%int64(len(d.recent))] = 0
	}
	if now > d.second {
		d.adjust(now)
		d.second = now
	}
	d.recent[now%int64(len(d.recent))]++
	return int(d.retry)
}

// adjust judges by the seconds before now, as many as the answer is long.
func (d *drops) adjust(now int64) {
	count := int64(0)
	for s := max(0, now-d.retry); s < now; s++ {
		count += int64(d.recent[s%int64(len(d.recent))])
	}
	switch {
	case count >= 3*d.retry && now-d.changed >= d.retry:
		d.retry, d.changed = min(2*d.retry, maxRetry), now
	case count < d.retry && d.retry > 1:
		d.retry--
	}
}
