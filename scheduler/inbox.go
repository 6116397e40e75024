package scheduler

import "sync"

// inbox carries news from other goroutines to Run's, in order.
type inbox struct {
	mu     sync.Mutex
	news   []func(*Scheduler)
	spare  []func(*Scheduler)
	notify chan struct{}
}

// tell adds news. It never blocks.
func (b *inbox) tell(f func(*Scheduler)) {
	b.mu.Lock()
	b.news = append(b.news, f)
	b.mu.Unlock()
	select {
	case b.notify <- struct{}{}:
	default:
	}
}

// some tells whether there is news.
func (b *inbox) some() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.news) > 0
}

// take returns the news so far. The result is valid until the next call.
func (b *inbox) take() []func(*Scheduler) {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := b.news
	clear(b.spare[:cap(b.spare)])
	b.news, b.spare = b.spare[:0], out
	return out
}

// drain applies all news to the state.
func (s *Scheduler) drain() {
	for {
		news := s.inbox.take()
		if len(news) == 0 {
			return
		}
		for _, f := range news {
			f(s)
		}
	}
}
