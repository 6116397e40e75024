package apiserver

import (
	"context"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/utils/clock"
)

// limiter bounds how many requests are worked on at once, reads and changes apart. Streams do not count. Administrators and the
// heartbeats of nodes are never kept waiting: without them nobody could mend an overload, and nodes would seem dead.
type limiter struct {
	reads, changes chan struct{}
	wait           time.Duration
	clock          clock.Clock
}

func newLimiter(l Limits, c clock.Clock) *limiter {
	return &limiter{reads: make(chan struct{}, l.ReadOnlyInFlight), changes: make(chan struct{}, l.MutatingInFlight), wait: l.Wait, clock: c}
}

// enter takes a place; release gives it back.
func (l *limiter) enter(ctx context.Context, who user.Info, r *route) (release func(), err error) {
	if r.streams() || exempt(who, r) {
		return func() {}, nil
	}
	places := l.reads
	if r.mutating() {
		places = l.changes
	}
	leave := func() { <-places }
	select {
	case places <- struct{}{}:
		return leave, nil
	default:
	}
	timer := l.clock.NewTimer(l.wait)
	defer timer.Stop()
	select {
	case places <- struct{}{}:
		return leave, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-timer.C():
		return nil, apierrors.NewTooManyRequests("the server is working on as many requests as it may: try again later", 1)
	}
}

func exempt(who user.Info, r *route) bool {
	if !r.resource {
		return true // health, discovery and the like are cheap
	}
	groups := who.GetGroups()
	if slices.Contains(groups, user.SystemPrivilegedGroup) {
		return true
	}
	heartbeat := r.ref.Resource == "leases" || r.ref.Resource == "nodes"
	return heartbeat && slices.Contains(groups, user.NodesGroup)
}
