package machine

import (
	"math"
	"time"
)

const (
	// FirstDelay and LastDelay bound the wait before a crashed container starts again; it doubles with each crash.
	// Kubernetes documents both (pod life cycle, "container restarts").
	FirstDelay = 10 * time.Second
	LastDelay  = 300 * time.Second
	// forget is how long a container must have run for its back-off to be forgotten.
	forget = 2 * LastDelay
)

// Backoff is how long a container waits after its next exit. The zero value: not at all.
type Backoff struct {
	Delay   time.Duration
	Updated time.Time
}

// Until answers when a container that ended at finished may start again.
func (b Backoff) Until(finished time.Time) time.Time {
	if b.Delay == 0 || finished.Sub(b.Updated) > forget {
		return finished
	}
	return finished.Add(b.Delay)
}

// Next is the back-off after one more start at now.
func (b Backoff) Next(finished, now time.Time) Backoff {
	if b.Delay == 0 || finished.Sub(b.Updated) > forget {
		return Backoff{Delay: FirstDelay, Updated: now}
	}
	return Backoff{Delay: min(2*b.Delay, LastDelay), Updated: now}
}

// Again is the next Retry after a failure: the wait starts at first and doubles up to last.
func (r Retry) Again(now time.Time, first, last time.Duration, message string) Retry {
	d := time.Duration(float64(first) * math.Pow(2, float64(min(r.Count, 16))))
	return Retry{Count: r.Count + 1, At: now.Add(min(d, last)), Message: message}
}
