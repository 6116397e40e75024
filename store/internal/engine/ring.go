package engine

import (
	"unsafe"

	"github.com/yare-project/yare/store"
)

// ring is the publisher's end of a table's retained events. The slices are only appended to and cut at the front, so that a state
// that was handed out keeps its view; when they outgrow their arrays, only what is retained is copied.
type ring struct {
	budget int
	bytes  int
	events []store.Event
	sizes  []int
	floor  store.Revision
}

func (r *ring) add(ev store.Event) {
	size := ev.Value.Size() + len(ev.Key) + int(unsafe.Sizeof(ev))
	r.events = append(r.events, ev)
	r.sizes = append(r.sizes, size)
	r.bytes += size
}

// trim drops the oldest events while the budget is exceeded, but none of the newest keep: a watcher that had read everything must
// never fall out because of one large batch.
func (r *ring) trim(keep int, dropped func(store.Event)) {
	for r.bytes > r.budget && len(r.events) > keep {
		dropped(r.events[0])
		r.floor = r.events[0].Revision
		r.bytes -= r.sizes[0]
		r.events, r.sizes = r.events[1:], r.sizes[1:]
	}
}
