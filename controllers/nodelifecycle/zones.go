package nodelifecycle

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"

	"github.com/yare-project/yare/client"
)

// zones bounds how fast nodes lose their pods, by zone: when much of a zone is down at once, the network is suspected before the nodes.
type zones struct {
	config Config
	nodes  client.Cache[*corev1.Node]

	mu       sync.Mutex
	limiters map[string]*rate.Limiter
}

func newZones(config Config, nodes client.Cache[*corev1.Node]) *zones {
	return &zones{config: config, nodes: nodes, limiters: map[string]*rate.Limiter{}}
}

type verdict int

const (
	evict verdict = iota
	hold          // not yet, because of the rate
	stop          // not while no other node in the cluster is known to be alive
)

// again is when a node in a stopped zone is looked at anew, though a change would wake it.
const again = time.Minute

func zoneOf(n *corev1.Node) string {
	return n.Labels[corev1.LabelTopologyRegion] + "/" + n.Labels[corev1.LabelTopologyZone]
}

// mayEvict decides whether a node that is not ready may have a NoExecute taint. tainted says that it has one; that costs nothing from the rate.
// heard is when a node was last heard of: one that was not for half its grace period is no proof that others are alive, so that nodes which
// fall silent together are not evicted one by one until the last is found silent too.
func (z *zones) mayEvict(n *corev1.Node, tainted bool, heard func(string) time.Time, now time.Time) (verdict, time.Duration) {
	var anyAlive bool
	var size, down int
	zone := zoneOf(n)
	for _, other := range z.nodes.List("") {
		ready := other.Name != n.Name && readyStatus(other) == corev1.ConditionTrue
		anyAlive = anyAlive || ready && now.Sub(heard(other.Name)) < z.config.Grace/2
		if zoneOf(other) == zone {
			size++
			if !ready {
				down++
			}
		}
	}
	switch {
	case !anyAlive:
		return stop, z.config.Grace / 5
	case tainted:
		return evict, 0
	}
	limit := z.rate(size, down)
	if limit == 0 {
		return hold, again
	}
	return z.take(zone, limit, now)
}

func (z *zones) rate(size, down int) rate.Limit {
	partial := down < size && down > 2 && float64(down)/float64(size) >= z.config.Unhealthy
	switch {
	case !partial:
		return rate.Limit(z.config.Rate)
	case size > z.config.LargeZone:
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
