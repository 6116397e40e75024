package fairness

import (
	"context"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apiserver/pkg/authentication/user"
)

// InFlight bounds how many requests are worked on at once, reads and changes apart, as servers do that know no priorities; watches don't
// count. Who finds no place is turned away at once. Administrators and the heartbeats of nodes always find one: without them nobody could mend
// an overload, and nodes would seem dead. Paths that are no resources are cheap and always let in.
type InFlight struct {
	reads, changes chan struct{} // nil: no limit
	gauges         gauges
}

var _ Turns = (*InFlight)(nil)

// NewInFlight makes a limit; below 1 means none.
func NewInFlight(reads, changes int, metrics prometheus.Registerer) *InFlight {
	f := &InFlight{}
	if reads > 0 {
		f.reads = make(chan struct{}, reads)
	}
	if changes > 0 {
		f.changes = make(chan struct{}, changes)
	}
	if metrics != nil {
		register(metrics, &f.gauges)
	}
	return f
}

// Enter takes a place or refuses with 429.
func (f *InFlight) Enter(_ context.Context, t *Ticket) error {
	if t.Work.Watch {
		return nil
	}
	if places := f.places(t); places != nil && !free(t) {
		select {
		case places <- struct{}{}:
			t.state = executing
		default:
			return refusal(noSeat, 1)
		}
	}
	f.gauges.enter(t)
	return nil
}

// Leave gives the place back.
func (f *InFlight) Leave(t *Ticket) {
	f.gauges.leave(t)
	if t.state == executing {
		t.state = outside
		<-f.places(t)
	}
}

func (f *InFlight) places(t *Ticket) chan struct{} {
	if mutates(t.Verb) {
		return f.changes
	}
	return f.reads
}

func free(t *Ticket) bool {
	if !t.Resource {
		return true
	}
	groups := t.User.GetGroups()
	if slices.Contains(groups, user.SystemPrivilegedGroup) {
		return true
	}
	return (t.Plural == "leases" || t.Plural == "nodes") && slices.Contains(groups, user.NodesGroup)
}
