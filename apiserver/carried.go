package apiserver

import (
	"hash/maphash"
	"slices"

	"github.com/yare-project/yare/apiserver/verbs"
)

// promptWriter is an answer to which may be added without waiting for the client. internal/h2's are such.
type promptWriter interface {
	// Offer queues p whole, or answers false.
	Offer(p []byte) bool
	// Push sends on its way what is queued.
	Push()
}

// connections tells connections apart: the watches of one are carried together.
var connections = maphash.MakeSeed()

// carried tells whether the watch may be carried: its client's connection can take events without waiting, and they need no other server to be converted.
func (e *eventWriter) carried() bool {
	if e.prompt == nil {
		e.prompt, _ = e.x.w.ResponseWriter.(promptWriter)
	}
	return e.prompt != nil && e.send == nil && e.x.route.served.Version.Many == nil
}

func (e *eventWriter) shard() uint32 { return uint32(maphash.String(connections, e.x.req.RemoteAddr)) }

// Deliver implements verbs.Delivery. What does not go at once is left to takeRest, or in the buffer, for write.
func (e *eventWriter) Deliver(events []verbs.Event) bool {
	for i := range events {
		if len(e.buffer) > maxFrames || e.append(events[i]) != nil { // write meets the error again, and tells it
			e.rest = slices.Clone(events[i:])
			return false
		}
	}
	if !e.prompt.Offer(e.buffer) {
		return false
	}
	e.x.w.bytes += int64(len(e.buffer))
	e.empty()
	e.sent.Add(float64(len(events)))
	return true
}

// Push implements verbs.Delivery.
func (e *eventWriter) Push() { e.prompt.Push() }

func (e *eventWriter) takeRest() []verbs.Event {
	rest := e.rest
	e.rest = nil
	return rest
}
