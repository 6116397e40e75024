package fairness

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"
)

// stage drives a queueSet by hand.
type stage struct {
	t    testing.TB
	set  queueSet
	flow *flow
	now  int64
	woke []*Ticket
}

const ms = int64(time.Millisecond)

func newStage(t testing.TB, c queueing, limit int) *stage {
	s := &stage{t: t, flow: &flow{stats: &stats{}}}
	s.set.wake = func(k *Ticket) { s.woke = append(s.woke, k) }
	s.set.configure(0, c, limit)
	return s
}

func (s *stage) arrive(hash uint64, w width) (*Ticket, verdict) {
	k := &Ticket{flow: s.flow, width: w}
	v, _ := s.set.arrive(s.now, k, hash)
	s.check()
	return k, v
}

func (s *stage) finish(k *Ticket) {
	s.set.finish(s.now, k)
	s.check()
}

// check holds what must always hold: seats are neither lost nor found, and nobody waits who could be served.
func (s *stage) check() {
	s.t.Helper()
	q := &s.set
	seats, waits, waitSeats, runs := 0, 0, 0, 0
	for k := q.running.first; k != nil; k = k.next {
		seats += k.width.seats()
		runs++
	}
	for _, l := range q.lingering {
		seats += l.seats
	}
	for _, a := range q.active {
		n := 0
		for k := a.requests.first; k != nil; k = k.next {
			n++
			waitSeats += k.width.seats()
			if k.state != waiting || k.queue != a {
				s.t.Fatalf("a request in queue %d does not wait in it", a.index)
			}
		}
		if n != a.waiting || (n > 0) != (a.headAt >= 0) || n == 0 && a.executing == 0 {
			s.t.Fatalf("queue %d: %d in it, counted %d, head at %d, %d executing", a.index, n, a.waiting, a.headAt, a.executing)
		}
		waits += n
	}
	if seats != q.inUse || runs != q.executing || waits != q.waiting || waitSeats != q.waitingSeats {
		s.t.Fatalf("seats %d (counted %d), executing %d (%d), waiting %d (%d), seats awaited %d (%d)", seats, q.inUse, runs, q.executing, waits, q.waiting, waitSeats, q.waitingSeats)
	}
	if q.inUse > q.limit && q.executing > 1 && !q.exempt {
		s.t.Fatalf("%d seats of %d are in use by %d requests", q.inUse, q.limit, q.executing)
	}
	if q.waiting > 0 && q.fits(q.heads[0].requests.first) {
		s.t.Fatalf("somebody waits although %d of %d seats are free", q.limit-q.inUse, q.limit)
	}
	for i := 1; i < len(q.heads); i++ {
		if q.heads.before(q.heads[i], q.heads[(i-1)/2]) || q.heads[i].headAt != i {
			s.t.Fatal("the heap of queues is out of order")
		}
	}
}

var one = width{initial: 1}

func TestFreeSeatsAreTakenAtOnceAndTheRestWaitsInOrder(t *testing.T) {
	s := newStage(t, queueing{queues: 8, hand: 2, length: 10}, 2)
	a, va := s.arrive(1, one)
	_, vb := s.arrive(1, one)
	c, vc := s.arrive(1, one)
	if va != execute || vb != execute || vc != enqueued {
		t.Fatalf("verdicts %v %v %v", va, vb, vc)
	}
	s.finish(a)
	if len(s.woke) != 1 || s.woke[0] != c || c.state != executing {
		t.Fatalf("woke %v", s.woke)
	}
}

func TestAFullQueueRefusesOnlyItsOwnFlow(t *testing.T) {
	s := newStage(t, queueing{queues: 64, hand: 1, length: 3}, 1)
	s.arrive(0, one)
	full := 0
	for range 10 {
		if _, v := s.arrive(16, one); v == refused {
			full++
		}
	}
	if full != 7 {
		t.Errorf("of ten, %d were refused, want all but the three that fit the queue", full)
	}
	if _, v := s.arrive(32, one); v != enqueued {
		t.Errorf("another flow was answered %v", v)
	}
	if got := s.flow.stats.rejected[queueFull]; got != 7 {
		t.Errorf("counted %d", got)
	}
}

func TestWithoutQueuesWhoFindsNoSeatIsRefused(t *testing.T) {
	s := newStage(t, queueing{}, 1)
	a, _ := s.arrive(0, one)
	if _, v := s.arrive(0, one); v != refused || s.flow.stats.rejected[noSeat] != 1 {
		t.Errorf("answered %v", v)
	}
	s.finish(a)
	if _, v := s.arrive(0, one); v != execute {
		t.Errorf("then %v", v)
	}
}

func TestExemptRequestsNeverWait(t *testing.T) {
	s := newStage(t, queueing{exempt: true}, 0)
	for range 100 {
		if _, v := s.arrive(0, width{initial: 10}); v != execute {
			t.Fatal("an exempt request waits")
		}
	}
}

func TestALevelWithoutSeatsServesNobody(t *testing.T) {
	s := newStage(t, queueing{queues: 2, hand: 1, length: 5}, 0)
	if _, v := s.arrive(0, one); v != enqueued {
		t.Fatalf("answered %v", v)
	}
	s.set.configure(1, s.set.queueing, 1)
	if len(s.woke) != 1 {
		t.Error("seats that came did not serve it")
	}
}

// The flood came first, and is many. What it holds is settled as it ends; then the one request of somebody else goes before the rest of it.
func TestAFloodDoesNotHoldUpAnotherFlow(t *testing.T) {
	s := newStage(t, queueing{queues: 64, hand: 1, length: 1000}, 4)
	var running []*Ticket
	for range 500 {
		if k, v := s.arrive(16, one); v == execute {
			running = append(running, k)
		}
	}
	s.now = 50 * ms
	lone, _ := s.arrive(32, one)
	for i, k := range running {
		s.now += ms
		s.finish(k)
		if lone.state == executing {
			t.Logf("after %d of the four that ran", i+1)
			return
		}
	}
	t.Fatalf("the freed seats all went to the flood, which waits with %d", s.set.waiting)
}

// A request that needs more seats than there are runs alone; it is not overtaken for ever.
func TestAWideRequestGetsItsTurn(t *testing.T) {
	s := newStage(t, queueing{queues: 64, hand: 1, length: 1000}, 4)
	a, _ := s.arrive(16, one)
	wide, v := s.arrive(32, width{initial: 9})
	if v != enqueued {
		t.Fatalf("answered %v", v)
	}
	for i := 0; wide.state != executing; i++ {
		if i > 50 {
			t.Fatal("it starves")
		}
		s.arrive(16, one)
		s.now += ms
		s.finish(a)
		a = s.woke[len(s.woke)-1]
	}
	if s.set.executing != 1 {
		t.Errorf("%d run beside it", s.set.executing-1)
	}
}

func TestSeatsLingerForTheWatchersAndComeBackInTime(t *testing.T) {
	s := newStage(t, queueing{queues: 8, hand: 1, length: 10}, 3)
	a, _ := s.arrive(16, width{initial: 1, final: 2, after: 7 * ms})
	if s.set.inUse != 2 {
		t.Fatalf("%d seats reserved, want the wider part", s.set.inUse)
	}
	s.now = ms
	s.finish(a)
	b, v := s.arrive(32, width{initial: 3})
	due, needed := s.set.due()
	if v != enqueued || !needed || due != 8*ms {
		t.Fatalf("answered %v, due %d %v", v, due, needed)
	}
	s.set.advance(8*ms - 1)
	if b.state != waiting {
		t.Fatal("seats came back too early")
	}
	s.set.advance(20 * ms)
	if b.state != executing || b.started != 8*ms {
		t.Fatalf("state %v, started at %d, want when the seats were due", b.state, b.started)
	}
	s.check()
}

func TestAWaitingRequestCanGiveUp(t *testing.T) {
	s := newStage(t, queueing{queues: 8, hand: 1, length: 10}, 1)
	a, _ := s.arrive(16, one)
	b, _ := s.arrive(16, one)
	c, _ := s.arrive(16, one)
	if !s.set.abandon(ms, b, timeOut) {
		t.Fatal("it was let in")
	}
	s.check()
	s.now = 2 * ms
	s.finish(a)
	if c.state != executing || s.set.abandon(3*ms, c, timeOut) {
		t.Error("the next one was not let in, or gave up after it was")
	}
	if s.set.timedOut != 1 || s.flow.stats.rejected[timeOut] != 1 {
		t.Error("not counted")
	}
}

func TestFewerQueuesDrainTheOthers(t *testing.T) {
	s := newStage(t, queueing{queues: 1000, hand: 1, length: 10}, 1)
	a, _ := s.arrive(999<<4, one)
	b, _ := s.arrive(999<<4, one)
	s.set.configure(ms, queueing{queues: 2, hand: 1, length: 10}, 1)
	s.check()
	s.now = 2 * ms
	s.finish(a)
	s.finish(b)
	if len(s.set.active) != 0 || s.set.table.pages[999/pageSize] != nil {
		t.Error("an empty queue takes space")
	}
}

func seed(t *testing.T) uint64 {
	t.Helper()
	n := uint64(time.Now().UnixNano())
	if text := os.Getenv("FAIRNESS_SEED"); text != "" {
		n, _ = strconv.ParseUint(text, 10, 64)
	}
	t.Logf("replay with FAIRNESS_SEED=%d go test -run '^%s$' ./apiserver/fairness", n, t.Name())
	return n
}

// Whatever happens in whatever order: seats are conserved, nobody waits beside a free seat, and everybody who does not give up is served.
func TestRandomLives(t *testing.T) {
	n := seed(t)
	for round := range 40 {
		rnd := rand.New(rand.NewPCG(n, uint64(round)))
		c := queueing{queues: 1 + rnd.IntN(200), hand: 1, length: 1 + rnd.IntN(20)}
		c.hand = 1 + rnd.IntN(min(6, c.queues))
		s := newStage(t, c, 1+rnd.IntN(12))
		var in crowd
		for range 600 {
			s.now += rnd.Int64N(3 * ms)
			switch rnd.IntN(10) {
			case 0, 1, 2, 3, 4:
				w := width{initial: 1 + rnd.IntN(4)}
				if rnd.IntN(3) == 0 {
					w.final, w.after = 1+rnd.IntN(6), 1+rnd.Int64N(5*ms)
				}
				if k, v := s.arrive(rnd.Uint64N(8)<<4, w); v != refused {
					in = append(in, k)
				}
			case 5, 6, 7, 8:
				if k := in.pick(rnd, executing); k != nil {
					s.finish(k)
					in.drop(k)
				}
			default:
				if k := in.pick(rnd, waiting); k != nil && rnd.IntN(2) == 0 {
					if s.set.abandon(s.now, k, cancelled) {
						in.drop(k)
					}
				} else if rnd.IntN(4) == 0 {
					c.queues = max(c.hand, c.queues+rnd.IntN(5)-2)
					s.set.configure(s.now, c, s.set.limit)
				}
				s.check()
			}
		}
		for steps := 0; len(in) > 0; steps++ {
			if steps > 10_000 {
				t.Fatalf("round %d: %d requests are never served: %d wait, %d execute, %d of %d seats in use, %d linger, now %d", round, len(in), s.set.waiting, s.set.executing, s.set.inUse, s.set.limit, len(s.set.lingering), s.set.now)
			}
			s.now += ms
			if k := in.pick(rnd, executing); k != nil {
				s.finish(k)
				in.drop(k)
			} else {
				s.set.advance(s.now)
			}
		}
		s.set.advance(s.now + 1e9)
		if s.set.inUse != 0 || s.set.virtual != 0 || len(s.set.active) != 0 || s.flow.stats.executingSeats != 0 || s.flow.stats.waitingSeats != 0 {
			t.Fatalf("round %d: an idle level holds %+v", round, s.set)
		}
	}
}

// crowd is those who are in, in the order of their arrival.
type crowd []*Ticket

// pick takes a random one of those in a state; nil if there is none.
func (c *crowd) pick(rnd *rand.Rand, want state) *Ticket {
	var of []*Ticket
	for _, k := range *c {
		if k.state == want {
			of = append(of, k)
		}
	}
	if len(of) == 0 {
		return nil
	}
	return of[rnd.IntN(len(of))]
}

func (c *crowd) drop(k *Ticket) { *c = slices.DeleteFunc(*c, func(o *Ticket) bool { return o == k }) }

// Flows that always have something waiting get the same seat-time each, whatever their number of requests, their width and their length.
func TestBusyFlowsShareTheSeatTimeEqually(t *testing.T) {
	n := seed(t)
	for round := range 4 {
		rnd := rand.New(rand.NewPCG(n, uint64(round)))
		s := newStage(t, queueing{queues: 64, hand: 1, length: 100_000}, 8+rnd.IntN(8))
		kinds := []struct {
			width int
			took  int64
		}{{1, 1 * ms}, {1, 9 * ms}, {4, 2 * ms}, {2, 5 * ms}}
		used := make([]float64, len(kinds))
		ends := map[*Ticket]int64{}
		of := map[*Ticket]int{}
		feed := func(i int) {
			k, v := s.arrive(uint64(i)<<4, width{initial: kinds[i].width})
			of[k] = i
			if v == execute {
				ends[k] = s.now + kinds[i].took
			}
		}
		for i := range kinds {
			for range 40 * (i + 1) {
				feed(i)
			}
		}
		for range 6000 {
			var next *Ticket
			for k, at := range ends {
				if next == nil || at < ends[next] {
					next = k
				}
			}
			s.now = max(s.now, ends[next])
			delete(ends, next)
			s.woke = nil
			used[of[next]] += float64(s.now-next.started) * float64(next.width.initial)
			s.finish(next)
			i := of[next]
			delete(of, next)
			for _, k := range s.woke {
				ends[k] = s.now + kinds[of[k]].took
			}
			feed(i)
		}
		mean := 0.0
		for _, u := range used {
			mean += u / float64(len(used))
		}
		for i, u := range used {
			if u < 0.8*mean || u > 1.2*mean {
				t.Errorf("round %d: flow %d of %d seats for %d ms got %.0f %% of an equal share", round, i, kinds[i].width, kinds[i].took/ms, 100*u/mean)
			}
		}
	}
}

func TestVirtualTimeStaysExactOnALevelThatIsNeverIdle(t *testing.T) {
	s := newStage(t, queueing{queues: 4, hand: 1, length: 10}, 2)
	a, _ := s.arrive(0, one)
	b, _ := s.arrive(16, one)
	for i := range 40 {
		s.now += 200 * 24 * int64(time.Hour) / 40 * 10 // years
		if i%2 == 0 {
			c, _ := s.arrive(32, one)
			s.finish(a)
			a = c
		} else {
			c, _ := s.arrive(48, one)
			s.finish(b)
			b = c
		}
		if s.set.virtual > 2*farAhead {
			t.Fatalf("virtual time is %g", s.set.virtual)
		}
	}
}

func TestHands(t *testing.T) {
	n := seed(t)
	rnd := rand.New(rand.NewPCG(n, 0))
	for _, c := range [][2]int{{1, 1}, {2, 2}, {15, 15}, {64, 6}, {128, 6}, {10_000_000, 2}} {
		seen := map[string]bool{}
		for range 500 {
			var cards [maxHand]int
			hash := rnd.Uint64()
			hand := deal(hash, c[0], cards[:c[1]])
			for i, card := range hand {
				if card < 0 || card >= c[0] || i > 0 && hand[i-1] >= card {
					t.Fatalf("%d of %d: dealt %v", c[1], c[0], hand)
				}
			}
			seen[fmt.Sprint(hand)] = true
		}
		if c[0] >= 64 && len(seen) < 450 {
			t.Errorf("%d of %d: only %d different hands of 500", c[1], c[0], len(seen))
		}
	}
	counts := make([]int, 64)
	for range 64_000 {
		var cards [maxHand]int
		for _, card := range deal(rnd.Uint64(), 64, cards[:6]) {
			counts[card]++
		}
	}
	for card, got := range counts {
		if got < 5400 || got > 6600 {
			t.Errorf("queue %d was dealt %d times, want about 6000", card, got)
		}
	}
}
