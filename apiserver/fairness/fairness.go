// Package fairness decides which requests are worked on now, which wait for their turn, and which are sent away, so that no client can take
// the server from the others: API Priority and Fairness (KEP-1040) by the objects of flowcontrol.apiserver.k8s.io/v1.
//
// A FlowSchema puts a request into a priority level and, within that, into a flow. A level has seats; levels lend idle seats to each other.
// Who finds no seat waits in one of a few queues that belong to the flow (shuffle sharding), and queues take turns by virtual time: a flow
// that asked for much waits behind one that asked for little. Nobody waits longer than a quarter of the request's own time.
//
// Guarantees: a level never has more seats taken than its limit, but for a single request that is wider than all of it; a request that was let
// in holds its seats until Leave; the levels "exempt" and "catch-all" are always there. A request that finds its seat free costs a few
// hundred nanoseconds and allocates nothing.
//
// [Controller] is safe for concurrent use. The decisions are pure (queueset.go, matching.go, sharing.go): time and chance come in from outside.
// [InFlight] is the plain limit of how many requests run at once, for servers without priorities. The package neither stores objects nor
// writes their status.
package fairness

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"
)

// Request is what a request is classified by, and how much work it is.
type Request struct {
	User user.Info
	Verb string // as RBAC names it; the lower-case method of a path that is no resource
	Path string
	// Resource tells a request about objects; the fields below are for those.
	Resource                                             bool
	Group, Version, Name, Namespace, Plural, SubResource string
	Work                                                 Work
}

// Turns hands out turns. Enter lets the request in, perhaps after a while, or says why not; who was let in must Leave.
type Turns interface {
	Enter(ctx context.Context, t *Ticket) error
	Leave(t *Ticket)
}

// Ticket is one request's way through Enter and Leave. Fill in Request; the zero value of the rest is right. It must not be copied or used
// again while it is in.
type Ticket struct {
	Request

	level *level
	flow  *flow // the schema that it matched
	queue *queue
	// next and prev are its neighbours among those who wait in its queue, or those who execute in its level.
	next, prev *Ticket
	state      state
	width      width
	// arrivedAt is virtual time, arrived and started are the level's clock in nanoseconds.
	arrivedAt        float64
	arrived, started int64
	distinguisher    string
	ready            chan struct{}
}

type state uint8

const (
	outside state = iota
	waiting
	executing
)

// Schema and Level are the values of the response headers X-Kubernetes-PF-FlowSchema-UID and X-Kubernetes-PF-PriorityLevel-UID, ready for
// an http.Header; nil if the request was not classified. They are shared: read only.
func (t *Ticket) Schema() []string {
	if t.flow == nil {
		return nil
	}
	return t.flow.header
}

// Level is described at Schema.
func (t *Ticket) Level() []string {
	if t.flow == nil {
		return nil
	}
	return t.flow.levelHeader
}

// The reasons for which requests are turned away, as the metric apiserver_flowcontrol_rejected_requests_total names them.
type reason uint8

const (
	queueFull reason = iota
	noSeat
	timeOut
	cancelled
	reasons
)

var reasonNames = [reasons]string{"queue-full", "concurrency-limit", "time-out", "cancelled"}

var reasonTexts = [reasons]string{
	"the queue for requests like this one is full", "all the seats for requests like this one are taken", "it waited as long as it may for its turn", "it was cancelled",
}

// refusal is what a client is told, 429 with Retry-After in seconds. It does not name level or schema: those are the administrator's business.
func refusal(why reason, retryAfter int) error {
	return apierrors.NewTooManyRequests("Too many requests, please try again later: "+reasonTexts[why], retryAfter)
}
