package simulate

import (
	"context"
	"time"

	"github.com/yare-project/yare/client"
)

// API is an API server in memory as far as a scheduler needs one, for programs that have their own plans for what happens in a cluster (package sim).
type API struct{ memory *memory }

// NewAPI makes an empty one. written hears of each change, after it is visible: old is nil for a new object, new for one that is gone.
func NewAPI(now time.Time, written func(old, new client.Object)) *API {
	m := newMemory(now)
	m.written = written
	return &API{m}
}

// Transport is how a scheduler reaches it.
func (a *API) Transport() client.Transport { return a.memory }

// Put stores an object, which belongs to the API from here on, as a new state.
func (a *API) Put(o client.Object) { a.memory.put(o) }

// Drop removes an object; it is no error if there is none.
func (a *API) Drop(o client.Object) { a.memory.drop(resourceOf(o), keyOf(o)) }

// Flush returns once every watcher has acted on every change so far, or ctx ended.
func (a *API) Flush(ctx context.Context) { a.memory.flush(ctx) }
