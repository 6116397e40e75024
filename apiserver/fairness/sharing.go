package fairness

import (
	"math"
	"slices"
)

// shares are a level's bounds, in seats: what it has by its configuration, the least it keeps when it lends, the most it gets when it borrows.
type shares struct{ nominal, lowest, highest int }

// demand is what a level could use lately.
type demand struct {
	mean, deviation, smoothed float64
	peak                      int
}

// smoothing is how much of the old figure remains each period: half of it is gone after five minutes (KEP-1040).
const smoothing = 0.977

// update takes in a period's figures. A rise counts at once, a fall slowly.
func (d *demand) update(mean, deviation float64, peak int, ok bool) {
	d.peak = peak
	if !ok {
		return
	}
	envelope := mean + deviation
	d.mean, d.deviation = mean, deviation
	d.smoothed = max(envelope, smoothing*d.smoothed+(1-smoothing)*envelope)
}

// claim is one level's part in sharing: at least low, at most high, and otherwise in proportion to target.
type claim struct{ low, high, target float64 }

// borrower is what sharing needs to know of a level.
type borrower struct {
	shares
	demand
	exempt bool
}

// limits says how many seats each level has for the next period, and what part of their targets the levels got where no bound held. total is
// the sum of all nominal seats (KEP-1040, "dispatching": seats not used by exempt requests go to the others, each within its bounds).
func limits(total int, levels []borrower) (out []int, fair float64) {
	out = make([]int, len(levels))
	var claims []claim
	var lowest, wanted int
	for i, l := range levels {
		if l.exempt {
			out[i] = max(l.lowest, l.peak)
			total -= out[i]
			continue
		}
		c := l.claim()
		claims = append(claims, c)
		lowest += l.lowest
		wanted += int(c.low)
	}
	part := func(l borrower, c claim) float64 { return float64(l.lowest) }
	switch {
	case total <= lowest:
	case total <= wanted:
		of := float64(total-lowest) / float64(wanted-lowest)
		part = func(l borrower, c claim) float64 { return float64(l.lowest) + (c.low-float64(l.lowest))*of }
	default:
		fair = proportion(float64(total), claims)
		part = func(_ borrower, c claim) float64 { return c.at(fair) }
	}
	next := 0
	for i, l := range levels {
		if !l.exempt {
			out[i] = int(math.Round(part(l, claims[next])))
			if l.nominal > 0 { // rounded down to nothing, it could not even show that it needs some
				out[i] = max(out[i], 1)
			}
			next++
		}
	}
	return out, fair
}

// claim is bounded below by what the level used of its own, lent or not.
func (b borrower) claim() claim {
	low := float64(max(b.lowest, min(b.nominal, b.peak)))
	return claim{low: low, high: float64(b.highest), target: max(low, b.smoothed)}
}

// leastTarget stands for the target of a level that nobody asks for.
const leastTarget = 0.001

// at is what a claim comes to when everybody gets the proportion p of their target.
func (c claim) at(p float64) float64 { return min(c.high, max(c.low, p*max(c.target, leastTarget))) }

// proportion finds p such that what all claims come to adds up to total; where the bounds don't allow that, the nearest. The sum grows with p
// and bends only where one of the claims meets a bound, so it is enough to find the bends on both sides of total.
func proportion(total float64, claims []claim) float64 {
	var bends []float64
	for _, c := range claims {
		t := max(c.target, leastTarget)
		bends = append(bends, c.low/t, c.high/t)
	}
	slices.Sort(bends)
	sum := func(p float64) (s float64) {
		for _, c := range claims {
			s += c.at(p)
		}
		return s
	}
	before, at := 0.0, 0.0
	for _, p := range bends {
		s := sum(p)
		if s >= total {
			if s > before {
				return at + (p-at)*(total-before)/(s-before)
			}
			return p
		}
		before, at = s, p
	}
	return at
}
