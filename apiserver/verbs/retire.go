package verbs

import "sync"

// streams are the open watches of a resource. They end with it: when its kind is served no more or is replaced by another definition, clients must
// come back and learn what holds now.
type streams struct {
	mu      sync.Mutex
	retired bool
	open    map[*Watch]struct{}
}

func (s *streams) add(w *Watch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.retired {
		w.source.Close()
		return
	}
	if s.open == nil {
		s.open = map[*Watch]struct{}{}
	}
	s.open[w] = struct{}{}
}

func (s *streams) remove(w *Watch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, w)
}

// retire ends the resource's watches, now and from now on.
func (r *Resource) retire() {
	defer r.carriers.dismiss()
	r.streams.mu.Lock()
	defer r.streams.mu.Unlock()
	r.streams.retired = true
	for w := range r.streams.open {
		w.source.Close()
	}
	r.streams.open = nil
}
