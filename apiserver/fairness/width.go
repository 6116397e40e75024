package fairness

import "math"

// Work is what is known of a request's cost beforehand.
type Work struct {
	// Objects is how many objects a list or the start of a watch goes through.
	Objects int
	// Watchers is how many watches a change will wake.
	Watchers int
	// Watch marks a watch: it leaves once it is initialised.
	Watch bool
}

// The numbers of Kubernetes' work estimator, but for eventTime: one watcher's share of an event costs this server a tenth of what
// kube-apiserver reckons with (5 ms).
const (
	objectsPerSeat  = 100
	watchersPerSeat = 10
	maxWidth        = 10
	eventTime       = 500_000 // nanoseconds
)

// width is how many seats a request takes: initial while it executes, final for some nanoseconds after it was answered.
type width struct {
	initial, final int
	after          int64
}

// estimate says how wide a request is; no wider than most, which is the level's own bound (0: none).
func estimate(w Work, most int) width {
	if most <= 0 || most > maxWidth {
		most = maxWidth
	}
	out := width{initial: 1}
	if w.Objects > objectsPerSeat {
		out.initial = min((w.Objects+objectsPerSeat-1)/objectsPerSeat, most)
	}
	if w.Watchers >= watchersPerSeat {
		seats := (w.Watchers + watchersPerSeat - 1) / watchersPerSeat
		out.final = min(seats, most)
		out.after = int64(seats) * eventTime / int64(out.final)
	}
	return out
}

// mostSeats is the bound for one request of a level that queues: some of its seats, so that narrow requests are not starved by wide ones
// (Kubernetes: 15 %, and not more than fit a hand of queues).
func mostSeats(nominal, hand int) int {
	if hand <= 0 {
		return 0
	}
	return max(1, min(int(math.Ceil(float64(nominal)*0.15)), nominal/hand))
}

func (w *width) seats() int { return max(w.initial, w.final) }

// work is seat-nanoseconds.
func (w *width) work() float64 {
	return float64(w.initial)*serviceTime + float64(w.final)*float64(w.after)
}

// narrow reshapes the final work to what a level has, longer instead of wider.
func (w *width) narrow(limit int) {
	if w.final > limit {
		w.after = w.after * int64(w.final) / int64(limit)
		w.final = limit
	}
}
