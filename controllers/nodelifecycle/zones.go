package nodelifecycle

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
)

// zones bounds how fast nodes lose their pods, by zone: when much of a zone is down at once, the network is suspected before the nodes.
type zones struct {
	config Config
	census *census

	mu       sync.Mutex
	limiters map[string]*rate.Limiter
}

func newZones(config Config, census *census) *zones {
	return &zones{config: config, census: census, limiters: map[string]*rate.Limiter{}}
}

type verdict int

const (
	evict verdict = iota
	hold          // not yet, because of the rate
	stop          // not while no other node in the cluster is known to be alive
)

// again is when a node in a stopped zone is looked at anew, though a change would wake it.
const again = time.Minute

// mayEvict decides whether a node that is not ready may have a NoExecute taint. tainted says that it has one; that costs nothing from the rate.
// A node that was not heard of for half its grace period is no proof that others are alive, so that nodes which fall silent together are not evicted
// one by one until the last is found silent too.
func (z *zones) mayEvict(n *corev1.Node, tainted bool, now time.Time) (verdict, time.Duration) {
	switch {
	case !z.census.otherAlive(n.Name, now.Add(-z.config.Grace/2)):
		return stop, z.config.Grace / 5
	case tainted:
		return evict, 0
	}
	zone := z.census.othersOf(n)
	limit := z.rate(zone)
	if limit == 0 {
		return hold, again
	}
	return z.take(zoneOf(n), limit, now)
}

// matters tells whether a change of a zone may change the verdict about its nodes, or, with all, about those of every zone.
func (z *zones) matters(s shift) (zone, all bool) {
	return z.rate(s.before) != z.rate(s.after), s.first
}

func (z *zones) rate(c count) rate.Limit {
	down := c.size - c.ready
	partial := down < c.size && down > 2 && float64(down)/float64(c.size) >= z.config.Unhealthy
	switch {
	case !partial:
		return rate.Limit(z.config.Rate)
	case c.size > z.config.LargeZone:
		return rate.Limit(z.config.SlowRate)
	}
	return 0
}

func (z *zones) take(zone string, limit rate.Limit, now time.Time) (verdict, time.Duration) {
	z.mu.Lock()
	defer z.mu.Unlock()
	l := z.limiters[zone]
	if l == nil {
		l = rate.NewLimiter(limit, 1)
		z.limiters[zone] = l
	}
	if l.Limit() != limit {
		l.SetLimitAt(now, limit)
	}
	if l.AllowN(now, 1) {
		return evict, 0
	}
	missing := 1 - l.TokensAt(now)
	return hold, time.Duration(missing/float64(limit)*float64(time.Second)) + time.Millisecond
}
