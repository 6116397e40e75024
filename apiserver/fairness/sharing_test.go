package fairness

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestSeatsAreSharedInProportionWithinBounds(t *testing.T) {
	n := seed(t)
	for round := range 2000 {
		rnd := rand.New(rand.NewPCG(n, uint64(round)))
		claims := make([]claim, 1+rnd.IntN(9))
		low, high := 0.0, 0.0
		for i := range claims {
			c := claim{low: float64(rnd.IntN(20))}
			c.high = c.low + float64(rnd.IntN(60))
			c.target = c.low + rnd.Float64()*80
			claims[i] = c
			low, high = low+c.low, high+c.high
		}
		total := low + rnd.Float64()*(high-low)
		p := proportion(total, claims)
		sum := 0.0
		for _, c := range claims {
			got := c.at(p)
			if got < c.low || got > c.high {
				t.Fatalf("round %d: %v is not between %v and %v", round, got, c.low, c.high)
			}
			sum += got
		}
		if math.Abs(sum-total) > 1e-6*max(total, 1) {
			t.Fatalf("round %d: shared out %v of %v: %+v", round, sum, total, claims)
		}
	}
}

func TestLimits(t *testing.T) {
	b := func(nominal, lowest, highest, peak int, smoothed float64) borrower {
		return borrower{shares: shares{nominal, lowest, highest}, demand: demand{peak: peak, smoothed: smoothed}}
	}
	exempt := b(0, 0, 600, 40, 40)
	exempt.exempt = true
	for name, c := range map[string]struct {
		total  int
		levels []borrower
		want   []int
	}{
		"nobody asks":                           {100, []borrower{b(50, 25, 150, 0, 0), b(50, 25, 150, 0, 0)}, []int{50, 50}},
		"one asks for all":                      {100, []borrower{b(50, 25, 150, 50, 400), b(50, 25, 150, 0, 0)}, []int{75, 25}},
		"what a level uses of its own stays":    {100, []borrower{b(50, 25, 150, 50, 400), b(50, 25, 150, 40, 40)}, []int{60, 40}},
		"no more than it may borrow":            {100, []borrower{b(50, 25, 60, 50, 400), b(50, 25, 150, 0, 0)}, []int{60, 40}},
		"exempt requests come first":            {100, []borrower{exempt, b(50, 25, 150, 0, 0), b(50, 25, 150, 0, 0)}, []int{40, 30, 30}},
		"what is left is less than was used":    {100, []borrower{b(50, 30, 150, 50, 50), b(50, 30, 150, 50, 50), exempt}, []int{30, 30, 40}},
		"in between, in proportion to that use": {120, []borrower{b(60, 20, 150, 60, 60), b(60, 40, 150, 40, 40), exempt}, []int{40, 40, 40}},
	} {
		if got, _ := limits(c.total, c.levels); !cmp.Equal(c.want, got) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestDemandRisesAtOnceAndFallsSlowly(t *testing.T) {
	var i integral
	i.pass(1e9, 10)
	i.pass(3e9, 30)
	var d demand
	d.update(i.harvest(30))
	if d.mean != 25 || math.Abs(d.deviation-math.Sqrt(75)) > 1e-9 || d.peak != 30 || d.smoothed != d.mean+d.deviation {
		t.Fatalf("%+v", d)
	}
	high := d.smoothed
	for range 30 { // five minutes
		i.pass(10e9, 0)
		d.update(i.harvest(0))
	}
	if d.smoothed < 0.48*high || d.smoothed > 0.52*high {
		t.Errorf("after five minutes, %.1f of %.1f are left", d.smoothed, high)
	}
}

func TestWidths(t *testing.T) {
	for name, c := range map[string]struct {
		work Work
		most int
		want width
	}{
		"a get":                     {Work{}, 8, width{initial: 1}},
		"a short list":              {Work{Objects: 100}, 8, width{initial: 1}},
		"a long list":               {Work{Objects: 301}, 8, width{initial: 4}},
		"a list of everything":      {Work{Objects: 1e6}, 8, width{initial: 8}},
		"where the level says none": {Work{Objects: 1e6}, 0, width{initial: 10}},
		"a change that few watch":   {Work{Watchers: 9}, 8, width{initial: 1}},
		"one that many watch":       {Work{Watchers: 45}, 8, width{initial: 1, final: 5, after: eventTime}},
		"one that thousands watch":  {Work{Watchers: 1600}, 8, width{initial: 1, final: 8, after: 20 * eventTime}},
	} {
		if got := estimate(c.work, c.most); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

func TestWatchersAreCountedByWhatTheyWatch(t *testing.T) {
	var w Watchers
	pods := schema.GroupResource{Resource: "pods"}
	var gone []func()
	add := func(n int, namespace, name string) {
		for range n {
			gone = append(gone, w.Add(pods, namespace, name))
		}
	}
	add(7, "", "")
	add(5, "a", "")
	add(2, "a", "x")
	add(1, "b", "")
	for _, c := range []struct {
		namespace, name string
		want            int
	}{{"a", "x", 14}, {"a", "y", 12}, {"a", "", 12}, {"b", "x", 8}, {"c", "", 7}} {
		if got := w.Count(pods, c.namespace, c.name); got != c.want {
			t.Errorf("%s/%s wakes %d, want %d", c.namespace, c.name, got, c.want)
		}
	}
	for _, f := range gone {
		f()
	}
	if len(w.resources) != 0 {
		t.Error("nobody watches, and something is kept")
	}
}

func TestRetriesArePutOffWhileManyAreRefused(t *testing.T) {
	var d drops
	for range 10 {
		if got := d.add(100); got != 1 {
			t.Fatalf("the first second: %d", got)
		}
	}
	if got := d.add(101); got != 2 {
		t.Errorf("after ten in a second: %d", got)
	}
	for s := int64(102); s < 400; s++ {
		for range 200 {
			d.add(s)
		}
	}
	if d.retry != maxRetry {
		t.Errorf("after a long flood: %d", d.retry)
	}
	for s := int64(1000); s < 1100; s += 2 {
		d.add(s)
	}
	if d.retry > 16 {
		t.Errorf("after it: %d", d.retry)
	}
}
