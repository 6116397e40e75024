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
	stop          // not while no node in the cluster is ready
)

// again is when a node in a stopped zone is looked at anew, though a change would wake it.
const again = time.Minute

func zoneOf(n *corev1.Node) string {
	return n.Labels[corev1.LabelTopologyRegion] + "/" + n.Labels[corev1.LabelTopologyZone]
}

// mayEvict decides whether a node that is not ready may have a NoExecute taint. tainted says that it has one; that costs nothing from the rate.
func (z *zones) mayEvict(n *corev1.Node, tainted bool, now time.Time) (verdict, time.Duration) {
	var anyReady bool
	var size, down int
	zone := zoneOf(n)
	for _, other := range z.nodes.List("") {
		ready := readyStatus(other) == corev1.ConditionTrue
		anyReady = anyReady || ready
		if zoneOf(other) == zone {
			size++
			if !ready {
				down++
			}
		}
	}
	switch {
	case !anyReady:
		return stop, 0
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
