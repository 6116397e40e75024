package fairness

import "math"

// stats are the figures of one schema in one level. The level's lock guards them.
type stats struct {
	dispatched                uint64
	rejected                  [reasons]uint64
	noRoom                    uint64
	waiting, waitingSeats     int
	executing, executingSeats int
	waits                     [2]histogram // of requests that were not executed, and of those that were, in seconds
	executions                [2]histogram // regular ones and watches, in seconds
	widths                    histogram
	watchers                  histogram
	queueLength               histogram
}

var (
	durations    = []float64{0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30}
	queueLengths = []float64{0, 10, 25, 50, 100, 250, 500, 1000}
	widths       = []float64{1, 2, 4, 8, 16, 32, 64, 100}
	watchCounts  = []float64{0, 1, 10, 100, 1000, 10000}
)

// histogram counts observations by the first bound that is not less.
type histogram struct {
	counts [14]uint64
	total  uint64
	sum    float64
}

func (h *histogram) observe(bounds []float64, v float64) {
	h.total++
	h.sum += v
	for i, b := range bounds {
		if v <= b {
			h.counts[i]++
			return
		}
	}
}

// cumulative is how Prometheus has it.
func (h *histogram) cumulative(bounds []float64) map[float64]uint64 {
	out := make(map[float64]uint64, len(bounds))
	sum := uint64(0)
	for i, b := range bounds {
		sum += h.counts[i]
		out[b] = sum
	}
	return out
}

func seconds(nanoseconds int64) float64 { return float64(nanoseconds) / 1e9 }

func (s *stats) enqueue(t *Ticket, length int) {
	s.waiting++
	s.waitingSeats += t.width.seats()
	s.queueLength.observe(queueLengths, float64(length))
}

func (s *stats) begin(t *Ticket) {
	s.dispatched++
	s.executing++
	s.executingSeats += t.width.seats()
	s.waits[1].observe(durations, seconds(t.started-t.arrived))
}

func (s *stats) finish(t *Ticket, now int64, stays int) {
	s.executing--
	s.executingSeats -= t.width.seats() - stays
	kind := 0
	if t.Work.Watch {
		kind = 1
	}
	s.executions[kind].observe(durations, seconds(now-t.started))
}

func (s *stats) abandon(t *Ticket, now int64, why reason) {
	s.rejected[why]++
	s.waits[0].observe(durations, seconds(now-t.arrived))
}

// integral gathers how many seats a level could use over time.
type integral struct {
	elapsed, sum, squares float64
	peak                  int
}

func (i *integral) pass(elapsed float64, seats int) {
	x := float64(seats)
	i.elapsed += elapsed
	i.sum += x * elapsed
	i.squares += x * x * elapsed
	i.peak = max(i.peak, seats)
}

// harvest returns mean, deviation and maximum, and starts anew from what is asked for now.
func (i *integral) harvest(seats int) (mean, deviation float64, peak int, ok bool) {
	peak = max(i.peak, seats)
	if ok = i.elapsed > 0; ok {
		mean = i.sum / i.elapsed
		deviation = math.Sqrt(max(0, i.squares/i.elapsed-mean*mean))
	}
	*i = integral{peak: seats}
	return mean, deviation, peak, ok
}
