package fairness

import (
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Watchers counts the open watches, so that a change can be charged for those that it wakes. It is safe for concurrent use.
type Watchers struct {
	mu        sync.RWMutex
	resources map[schema.GroupResource]*watched
}

// watched are the watches of one resource: by namespace and name, either of which may be empty for "all".
type watched struct {
	total  int
	scopes map[scope]int
}

type scope struct{ namespace, name string }

// Add counts a watch of a resource, in a namespace or all, of one name or all. The function that it returns takes it off again.
func (w *Watchers) Add(of schema.GroupResource, namespace, name string) (remove func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.resources == nil {
		w.resources = map[schema.GroupResource]*watched{}
	}
	r := w.resources[of]
	if r == nil {
		r = &watched{scopes: map[scope]int{}}
		w.resources[of] = r
	}
	r.total++
	r.scopes[scope{namespace, name}]++
	return func() { w.remove(of, scope{namespace, name}) }
}

func (w *Watchers) remove(of schema.GroupResource, at scope) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.resources[of]
	r.total--
	if r.scopes[at]--; r.scopes[at] == 0 {
		delete(r.scopes, at)
	}
	if r.total == 0 {
		delete(w.resources, of)
	}
}

// Count is how many watches a change of an object wakes. An empty name is one that is not known yet.
func (w *Watchers) Count(of schema.GroupResource, namespace, name string) int {
	w.mu.RLock()
	defer w.mu.RUnlock()
	r := w.resources[of]
	if r == nil || r.total < watchersPerSeat {
		return 0 // too few to matter
	}
	n := r.scopes[scope{}]
	if namespace != "" {
		n += r.scopes[scope{namespace: namespace}]
	}
	if name != "" {
		n += r.scopes[scope{name: name}]
		if namespace != "" {
			n += r.scopes[scope{namespace, name}]
		}
	}
	return n
}
