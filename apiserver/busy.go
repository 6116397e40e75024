package apiserver

import (
	"net/http"
	"sync"
	"time"
)

// busy counts the requests that are being answered.
type busy struct {
	mu   sync.Mutex
	n    int
	idle chan struct{} // closed when n falls to 0, if somebody waits
}

func (b *busy) count(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		b.add(1)
		defer b.add(-1)
		next.ServeHTTP(w, req)
	})
}

func (b *busy) add(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.n += n; b.n == 0 && b.idle != nil {
		close(b.idle)
		b.idle = nil
	}
}

// wait returns when no request is being answered, or after a time.
func (b *busy) wait(most time.Duration) {
	b.mu.Lock()
	if b.n == 0 {
		b.mu.Unlock()
		return
	}
	idle := make(chan struct{})
	b.idle = idle
	b.mu.Unlock()
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-idle:
	case <-timer.C:
	}
}
