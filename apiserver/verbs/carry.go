package verbs

import (
	"context"
	"runtime"
	"sync"

	"github.com/yare-project/yare/store"
)

// Delivery takes the events of a watch that is carried. Nothing else uses it meanwhile.
type Delivery interface {
	// Deliver takes events without waiting. False sends whoever called Carry on by itself, with what Deliver could not pass on.
	Deliver(events []Event) bool
	// Push sends on its way what was delivered.
	Push()
}

// Carry delivers the watch's events as long as nothing must be waited for but the next event. Then the caller needs no goroutine of its own for each: one goes
// through all watches of a resource that have the same shard. Carry returns when ctx ends, when Deliver says so, or when only Next knows what comes next (a
// bookmark, an error): the caller goes on with Next.
func (w *Watch) Carry(ctx context.Context, shard uint32, d Delivery) {
	if w.source == nil || w.ended || w.due.Load() {
		return
	}
	p := &passenger{watch: w, delivery: d, back: make(chan any, 1)}
	c := w.r.carriers.of(shard)
	if !c.board(p, w.r) {
		return
	}
	select {
	case <-w.wait(ctx).Done():
		c.leave(p)
	case panicked := <-p.back:
		if panicked != nil {
			panic(panicked) // where the request's own is caught
		}
	}
}

// ready returns what happened since, which may be nothing. Errors are for Next to tell: it will meet them again.
func (w *Watch) ready() ([]Event, error) {
	w.buffer = w.buffer[:0]
	events, err := w.source.Ready()
	for i := range events {
		w.add(&events[i])
	}
	return w.buffer, err
}

// carriers are those of one resource, by shard.
type carriers struct {
	mu   sync.Mutex
	list []*carrier
}

func (s *carriers) of(shard uint32) *carrier {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.list == nil {
		s.list = make([]*carrier, runtime.GOMAXPROCS(0))
	}
	i := int(shard % uint32(len(s.list)))
	if s.list[i] == nil {
		s.list[i] = &carrier{}
	}
	return s.list[i]
}

// dismiss sends all on by themselves.
func (s *carriers) dismiss() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.list {
		if c != nil {
			c.dismiss()
		}
	}
}

// passenger is a watch that is carried.
type passenger struct {
	watch    *Watch
	delivery Delivery
	back     chan any // told once when it must go on by itself; the value is a panic of Deliver, or nil
	place    int      // in carrier.aboard
	fresh    bool     // something was delivered and not pushed
}

// carrier delivers to its passengers. Its goroutine lives while there are any.
type carrier struct {
	mu     sync.Mutex
	aboard []*passenger
	bell   store.Watch // rings when the table has changed; nil while there are no passengers
	stop   context.CancelFunc
}

// board takes p in, unless it must go on by itself. What has happened since p last looked is delivered before that, what happens later rings the bell.
func (c *carrier) board(p *passenger, r *Resource) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bell == nil {
		bell, err := r.table.Watch(r.Store.Revision())
		if err != nil {
			return false
		}
		ctx, cancel := context.WithCancel(context.Background())
		c.bell, c.stop = bell, cancel
		go c.run(ctx, bell)
	}
	p.place = len(c.aboard)
	c.aboard = append(c.aboard, p)
	if !c.serve(p) {
		c.remove(p)
	}
	c.push(p)
	return true
}

// leave takes p out. Nothing is delivered to it afterwards.
func (c *carrier) leave(p *passenger) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p.place >= 0 {
		c.remove(p)
	}
}

// remove takes p out and sends it on by itself. The caller holds mu.
func (c *carrier) remove(p *passenger) {
	last := len(c.aboard) - 1
	c.aboard[last].place = p.place
	c.aboard[p.place] = c.aboard[last]
	c.aboard[last] = nil
	c.aboard = c.aboard[:last]
	p.place = -1
	select {
	case p.back <- nil:
	default: // it hears of a panic instead
	}
	if last == 0 {
		c.stop()
		c.bell, c.aboard = nil, nil
	}
}

func (c *carrier) dismiss() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.aboard) > 0 {
		c.remove(c.aboard[0])
	}
}

func (c *carrier) run(ctx context.Context, bell store.Watch) {
	defer bell.Close()
	for {
		_, err := bell.Next(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			c.dismiss()
			return
		}
		c.round(bell)
	}
}

// round delivers to all; what they get leaves together.
func (c *carrier) round(bell store.Watch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bell != bell {
		return
	}
	for i := 0; i < len(c.aboard); {
		if p := c.aboard[i]; c.serve(p) {
			i++
		} else {
			c.push(p)
			c.remove(p)
		}
	}
	for _, p := range c.aboard {
		c.push(p)
	}
}

// serve delivers to p what has happened. False: p must go on by itself.
func (c *carrier) serve(p *passenger) (ok bool) {
	defer func() {
		if panicked := recover(); panicked != nil {
			p.back <- panicked
			ok = false
		}
	}()
	events, err := p.watch.ready()
	if len(events) > 0 {
		p.fresh = true
		ok = p.delivery.Deliver(events)
		return ok && err == nil
	}
	return err == nil
}

func (c *carrier) push(p *passenger) {
	if p.fresh {
		p.fresh = false
		p.delivery.Push()
	}
}
