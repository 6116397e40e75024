// Package claims keeps account of the values that objects of one kind hold exclusively (addresses, ports).
//
// A value has one holder at a time, an object's uid. Each state of an object that is stored, or about to be, reserves its values on its own and
// gives them back when it is replaced, deleted or refused; a value is free when the last state that reserved it has gone. The index is
// therefore never behind the store. It lives in memory and is rebuilt from the objects at start. It is safe for concurrent use; [Index.Lock]
// lets a caller look and reserve in one step.
package claims

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/yare-project/yare/kind"
)

// Index maps held values to their holders.
type Index struct {
	mu sync.Mutex
	by map[kind.Claim]holding
}

type holding struct {
	holder types.UID
	states int
}

// New makes an empty index.
func New() *Index { return &Index{by: map[kind.Claim]holding{}} }

// Locked is an index held by one goroutine; Unlock ends it.
type Locked struct{ index *Index }

// Lock takes the index.
func (x *Index) Lock() Locked {
	x.mu.Lock()
	return Locked{x}
}

// Unlock gives the index back.
func (l Locked) Unlock() { l.index.mu.Unlock() }

// Taken tells whether somebody other than holder has the value.
func (l Locked) Taken(holder types.UID, c kind.Claim) bool {
	h, held := l.index.by[c]
	return held && h.holder != holder
}

// Reserve takes all claims for one state of holder, or none: then it returns the first that somebody else has.
func (l Locked) Reserve(holder types.UID, claims []kind.Claim) (taken *kind.Claim) {
	for i := range claims {
		if l.Taken(holder, claims[i]) {
			return &claims[i]
		}
	}
	for _, c := range claims {
		l.index.by[c] = holding{holder, l.index.by[c].states + 1}
	}
	return nil
}

// Release gives back what one state of holder reserved.
func (x *Index) Release(holder types.UID, claims []kind.Claim) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, c := range claims {
		h, held := x.by[c]
		switch {
		case !held || h.holder != holder:
		case h.states == 1:
			delete(x.by, c)
		default:
			x.by[c] = holding{holder, h.states - 1}
		}
	}
}

// Len is the number of values held.
func (x *Index) Len() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.by)
}
