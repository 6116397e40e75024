package fairness

// serviceTime is how long a request is taken to need until it is known, in nanoseconds. What it really took is settled when it ends.
const serviceTime = 1e6

// queueing says how a level treats requests that find no seat.
type queueing struct {
	exempt bool // nobody ever waits
	// queues is how many queues there are; 0: who finds no seat is turned away. hand is how many of them a flow may use, length how many
	// requests wait in one.
	queues, hand, length int
}

// queueSet is the state of one level: who holds seats, who waits, and whose turn is next. It is a pure state machine: each call brings the
// time, in nanoseconds, which never goes back. The rules are KEP-1040's "fair queuing for server requests": a queue is served in the order of
// arrival; among queues, the one whose first request would end first in virtual time, in which every queue that has requests gets an equal
// share of the seats.
type queueSet struct {
	queueing
	limit int
	// wake hears of each waiting request that gets its seats.
	wake func(*Ticket)

	now     int64
	virtual float64 // seat-nanoseconds that an active queue has been entitled to
	turn    uint64

	waiting, waitingSeats int
	executing, inUse      int
	running               list // those that execute
	active                []*queue
	heads                 heap // the queues where somebody waits
	lingering             lingers
	table                 table
	demand                integral
	dispatched, rejected  uint64
	timedOut, cancelled   uint64
}

// queue is a queue while it has requests; it is forgotten when it has none.
type queue struct {
	index    int
	activeAt int     // place in queueSet.active
	headAt   int     // place in queueSet.heads; -1 if nobody waits
	start    float64 // virtual time at which its next request begins
	served   uint64  // the turn in which it was last served: among equals, who waited longest goes first

	requests     list
	waiting      int
	waitingSeats int
	work         float64 // of those who wait
	executing    int
	seats        int
}

type verdict uint8

const (
	execute verdict = iota
	enqueued
	refused
)

// arrive takes in a request whose width is set; hash is its flow's. The reason is set where it is refused.
func (s *queueSet) arrive(now int64, t *Ticket, hash uint64) (verdict, reason) {
	s.advance(now)
	t.arrived, t.arrivedAt = now, s.virtual
	if s.exempt || s.queues == 0 {
		if !s.exempt && !s.fits(t) {
			return s.refuse(t, noSeat), noSeat
		}
		s.begin(nil, t)
		return execute, 0
	}
	q, index := s.shortest(hash)
	if q == nil {
		q = s.open(index)
	} else if q.waiting >= s.length && s.inUse >= s.limit {
		return s.refuse(t, queueFull), queueFull
	}
	if s.waiting == 0 && s.fits(t) {
		t.flow.stats.queueLength.observe(queueLengths, 0)
		s.begin(q, t)
		return execute, 0
	}
	s.enqueue(q, t)
	s.dispatch()
	if t.state == executing {
		return execute, 0
	}
	return enqueued, 0
}

func (s *queueSet) refuse(t *Ticket, why reason) verdict {
	s.rejected++
	t.flow.stats.rejected[why]++
	return refused
}

// shortest deals the flow's hand and finds in it the queue with the least work; nil where that one has no requests at all.
func (s *queueSet) shortest(hash uint64) (best *queue, index int) {
	var cards [maxHand]int
	least := 0.0
	for i, card := range deal(hash, s.queues, cards[:s.hand]) {
		q := s.table.get(card)
		if q == nil {
			return nil, card
		}
		if work := q.work + float64(q.seats)*serviceTime; i == 0 || work < least {
			best, index, least = q, card, work
		}
	}
	return best, index
}

func (s *queueSet) open(index int) *queue {
	q := s.table.open(index)
	q.start, q.served, q.headAt, q.activeAt = s.virtual, s.turn, -1, len(s.active)
	s.active = append(s.active, q)
	return q
}

// enqueue adds a request at the end of a queue.
func (s *queueSet) enqueue(q *queue, t *Ticket) {
	t.queue, t.state = q, waiting
	q.requests.push(t)
	q.waiting++
	q.waitingSeats += t.width.seats()
	q.work += t.width.work()
	s.waiting++
	s.waitingSeats += t.width.seats()
	t.flow.stats.enqueue(t, q.waiting)
	s.settle(q)
}

// dequeue takes a waiting request out, from wherever it stands.
func (s *queueSet) dequeue(t *Ticket) {
	q := t.queue
	q.requests.remove(t)
	t.state = outside
	q.waiting--
	q.waitingSeats -= t.width.seats()
	q.work -= t.width.work()
	if q.waiting == 0 {
		q.work = 0 // rounding
	}
	s.waiting--
	s.waitingSeats -= t.width.seats()
	t.flow.stats.waiting--
	t.flow.stats.waitingSeats -= t.width.seats()
}

// settle puts a queue where it belongs after its first request or its start changed. Nothing begins before it arrived: a queue that could not
// use its share does not save it up.
func (s *queueSet) settle(q *queue) {
	switch head := q.requests.first; {
	case head != nil:
		q.start = max(q.start, head.arrivedAt)
		s.heads.put(q)
	case q.headAt >= 0:
		s.heads.remove(q)
	}
	if q.waiting == 0 && q.executing == 0 {
		s.close(q)
	}
}

func (s *queueSet) close(q *queue) {
	last := len(s.active) - 1
	s.active[q.activeAt] = s.active[last]
	s.active[q.activeAt].activeAt = q.activeAt
	s.active[last] = nil
	s.active = s.active[:last]
	s.table.close(q)
	if last == 0 {
		s.virtual = 0 // nothing refers to it now, and small numbers are exact
	}
}

// fits tells whether the seats are free that a request needs. One that is wider than the level runs alone.
func (s *queueSet) fits(t *Ticket) bool {
	n := t.width.seats()
	if n > s.limit {
		return s.limit > 0 && s.inUse == 0
	}
	return s.inUse+n <= s.limit
}

// dispatch gives seats to those whose turn it is, until the next one does not fit.
func (s *queueSet) dispatch() {
	for s.waiting > 0 {
		q := s.heads[0]
		t := q.requests.first
		if !s.fits(t) {
			t.flow.stats.noRoom++
			return
		}
		s.turn++
		q.served = s.turn
		s.dequeue(t)
		s.begin(q, t)
		s.settle(q)
		s.wake(t)
	}
}

// begin gives a request its seats.
func (s *queueSet) begin(q *queue, t *Ticket) {
	if s.limit > 0 && !s.exempt {
		t.width.narrow(s.limit)
	}
	t.queue, t.state, t.started = q, executing, s.now
	s.dispatched++
	s.executing++
	s.inUse += t.width.seats()
	s.running.push(t)
	t.flow.stats.begin(t)
	if q != nil {
		q.executing++
		q.seats += t.width.seats()
		q.start += t.width.work()
	}
}

// finish takes back the seats of a request that executed; some of them a while later, if it leaves work behind.
func (s *queueSet) finish(now int64, t *Ticket) {
	s.advance(now)
	s.running.remove(t)
	t.state = outside
	s.executing--
	stays := 0
	if t.width.after > 0 {
		stays = t.width.final
		s.lingering.push(linger{due: now + t.width.after, seats: stays, stats: t.flow.stats})
	}
	s.inUse -= t.width.seats() - stays
	t.flow.stats.finish(t, now, stays)
	if q := t.queue; q != nil {
		q.executing--
		q.seats -= t.width.seats()
		q.start += float64(t.width.initial) * (float64(now-t.started) - serviceTime)
		s.settle(q)
	}
	t.queue = nil
	s.dispatch()
}

// abandon gives up on a request that waits; false if it got its seats already.
func (s *queueSet) abandon(now int64, t *Ticket, why reason) bool {
	s.advance(now)
	if t.state != waiting {
		return false
	}
	q := t.queue
	s.dequeue(t)
	s.settle(q)
	t.queue = nil
	s.rejected++
	if why == timeOut {
		s.timedOut++
	} else {
		s.cancelled++
	}
	t.flow.stats.abandon(t, now, why)
	s.dispatch() // the one that blocked the way may be gone
	return true
}

// configure changes the rules for those who come; who waits keeps the queue that they are in.
func (s *queueSet) configure(now int64, c queueing, limit int) {
	s.advance(now)
	s.queueing, s.limit = c, limit
	s.dispatch()
}

// advance brings time up to now: seats that lingered are free when they were due, and virtual time moves on.
func (s *queueSet) advance(now int64) {
	now = max(now, s.now)
	for len(s.lingering) > 0 && s.lingering[0].due <= now {
		l := s.lingering.pop()
		s.pass(max(l.due, s.now))
		s.inUse -= l.seats
		l.stats.executingSeats -= l.seats
		s.dispatch()
	}
	s.pass(now)
}

func (s *queueSet) pass(now int64) {
	elapsed := float64(now - s.now)
	s.now = now
	s.demand.pass(elapsed, s.inUse+s.waitingSeats)
	if n := len(s.active); n > 0 {
		// By the seats that are in use, not by those that could be: seats that are kept free for a wide request serve nobody.
		s.virtual += elapsed * float64(s.inUse) / float64(n)
		if s.virtual > farAhead {
			s.rebase()
		}
	}
}

// farAhead is where numbers begin to lose nanoseconds.
const farAhead = 1 << 52

// rebase shifts virtual time back to zero for a level that was never idle for long.
func (s *queueSet) rebase() {
	by := s.virtual
	s.virtual = 0
	for _, q := range s.active {
		q.start -= by
		for t := q.requests.first; t != nil; t = t.next {
			t.arrivedAt -= by
		}
	}
}

// due is when advance is to be called for those who wait, at the latest; false if there is no need.
func (s *queueSet) due() (int64, bool) {
	if s.waiting == 0 || len(s.lingering) == 0 {
		return 0, false
	}
	return s.lingering[0].due, true
}

func (s *queueSet) idle() bool { return s.waiting == 0 && s.executing == 0 }
