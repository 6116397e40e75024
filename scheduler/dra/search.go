package dra

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Bounds of the search. Devices that look the same are tried once, so that only contrived claims come near them.
const (
	stepsPerNode     = 200_000 // a step is a look at one device for one request
	stepsPerDecision = 2_000_000
	stepsPerLook     = 512 // between two looks at the clock
)

var errTooLong = errors.New("timed out trying to allocate devices")

// stock is what a search draws from. Its lock is held by whoever searches.
type stock struct {
	*inventory
	*ledger
	selectors
}

// take counts an allocation, and give no longer does.
func (s *stock) take(a *resourcev1.AllocationResult) {
	s.add(a)
	s.note(a)
}

func (s *stock) give(a *resourcev1.AllocationResult) {
	s.remove(a)
	s.note(a)
}

// note tells the pools that an allocation is about.
func (s *stock) note(a *resourcev1.AllocationResult) {
	for _, r := range results(a) {
		if p := s.pools[poolID{r.Driver, r.Pool}]; p != nil {
			s.touch(p)
		}
	}
}

// search finds devices on one node for all demands of a pod.
type search struct {
	stock   *stock
	node    *corev1.Node
	demands []*demand
	late    func() bool // the time is over; may be nil

	found    map[*request]*candidates
	taking   map[ID][]int // which claims take a device in this search
	sharing  map[ID]*share
	left     map[*pool]counters
	ties     [][]*constraint
	picks    [][]pick // by claim
	classes  map[*device]string
	steps    int
	err      error
	refusals []string // why requests can't be met on this node whatever else is chosen
}

// pick is a chosen device.
type pick struct {
	request *request
	device  *device
	take    amounts // of a device that is shared
	counted bool    // it draws on counters
}

type counters map[string]map[string]resource.Quantity

func newSearch(s *stock, node *corev1.Node, demands []*demand) *search {
	return &search{stock: s, node: node, demands: demands, found: map[*request]*candidates{}, taking: map[ID][]int{}, sharing: map[ID]*share{}, left: map[*pool]counters{}, picks: make([][]pick, len(demands)),
		ties: make([][]*constraint, len(demands))}
}

// allocate searches. Nil picks with a nil error mean that there is no solution, and why says what is known of the reason.
func (s *stock) allocate(node *corev1.Node, demands []*demand, late func() bool) (picks [][]pick, why string, steps int, err error) {
	x := newSearch(s, node, demands)
	x.late = late
	for k, d := range demands {
		for _, c := range d.constraints {
			tie, _ := newConstraint(c)
			x.ties[k] = append(x.ties[k], tie)
		}
	}
	ok := x.claim(0)
	switch {
	case x.err != nil:
		return nil, "", x.steps, x.err
	case !ok:
		return nil, x.why(), x.steps, nil
	}
	return x.picks, "", x.steps, nil
}

func (x *search) claim(ci int) bool {
	if ci == len(x.demands) {
		return true
	}
	return x.request(ci, 0)
}

func (x *search) request(ci, ri int) bool {
	d := x.demands[ci]
	if ri == len(d.requests) {
		return x.claim(ci + 1)
	}
	for _, r := range d.requests[ri] {
		if x.devices(ci, ri, r, 0, 0) {
			return true
		}
		if x.err != nil {
			return false
		}
	}
	return false
}

// devices finds the n-th device of a request and all that come after, among the candidates from a place on: their order within a request does not matter.
func (x *search) devices(ci, ri int, r *request, n, from int) bool {
	c := x.candidates(r)
	if c.refuse != "" || x.err != nil {
		return false
	}
	want := r.count
	if r.all {
		want = len(c.list)
	}
	switch {
	case n == want:
		return x.request(ci, ri+1)
	case want-n > resourcev1.AllocationResultsMaxSize-len(x.picks[ci]):
		return false
	case r.all:
		return x.with(ci, r, c.list[n], func() bool { return x.devices(ci, ri, r, n+1, 0) })
	}
	var tried map[string]bool
	for i := from; i <= len(c.list)-(want-n); i++ {
		d := c.list[i]
		free := len(x.taking[d.id]) == 0
		if free && tried[x.class(d, tried)] {
			continue
		}
		if x.with(ci, r, d, func() bool { return x.devices(ci, ri, r, n+1, i+1) }) {
			return true
		}
		if x.err != nil {
			return false
		}
		if free {
			if tried == nil {
				tried = map[string]bool{}
			}
			tried[x.class(d, tried)] = true
		}
	}
	return false
}

func (x *search) tooLong() bool {
	x.steps++
	if x.err == nil && (x.steps > stepsPerNode || x.late != nil && x.steps%stepsPerLook == 0 && x.late()) {
		x.err = errTooLong
	}
	return x.err != nil
}

// with takes a device, goes on, and gives it back if that led nowhere.
func (x *search) with(ci int, r *request, d *device, next func() bool) bool {
	if x.tooLong() {
		return false
	}
	p, ok := x.take(ci, r, d)
	if !ok {
		return false
	}
	if next() {
		return true
	}
	x.untake(ci, p)
	return false
}

func (x *search) take(ci int, r *request, d *device) (pick, bool) {
	p := pick{request: r, device: d}
	takers := x.taking[d.id]
	if r.admin && slices.Contains(takers, ci) || !r.admin && (len(takers) > 0 || x.stock.taken(d.id)) || !r.tolerates(d.spec) {
		return p, false
	}
	inUse := false
	if d.shared() {
		p.take, _ = consumption(r.capacity, d.spec)
		here, there := x.sharing[d.id], x.stock.shares[d.id]
		if !fits(d.spec, p.take, takenOf(here), takenOf(there)) {
			return p, false
		}
		inUse = here != nil || there != nil
	}
	if len(d.spec.ConsumesCounters) > 0 && !inUse {
		if !x.draw(d) {
			return p, false
		}
		p.counted = true
	}
	for i, tie := range x.ties[ci] {
		if !tie.add(r, d) {
			for _, before := range x.ties[ci][:i] {
				before.remove(r, d)
			}
			if p.counted {
				x.giveBack(d)
			}
			return p, false
		}
	}
	if d.shared() {
		s := x.sharing[d.id]
		if s == nil {
			s = &share{taken: amounts{}}
			x.sharing[d.id] = s
		}
		s.holders++
		s.taken.add(p.take)
	} else {
		x.taking[d.id] = append(takers, ci)
	}
	x.picks[ci] = append(x.picks[ci], p)
	return p, true
}

func takenOf(s *share) amounts {
	if s == nil {
		return nil
	}
	return s.taken
}

func (x *search) untake(ci int, p pick) {
	d := p.device
	x.picks[ci] = x.picks[ci][:len(x.picks[ci])-1]
	if d.shared() {
		s := x.sharing[d.id]
		s.taken.sub(p.take)
		if s.holders--; s.holders == 0 {
			delete(x.sharing, d.id)
		}
	} else {
		x.taking[d.id] = x.taking[d.id][:len(x.taking[d.id])-1]
	}
	for _, tie := range x.ties[ci] {
		tie.remove(p.request, d)
	}
	if p.counted {
		x.giveBack(d)
	}
}

// draw takes what a device consumes from the counters of its pool, if it is there.
func (x *search) draw(d *device) bool {
	left := x.countersOf(d.pool)
	for _, use := range d.spec.ConsumesCounters {
		for name, c := range use.Counters {
			have := left[use.CounterSet][name]
			if have.Cmp(c.Value) < 0 {
				return false
			}
		}
	}
	left.change(d, (*resource.Quantity).Sub)
	return true
}

func (x *search) giveBack(d *device) { x.countersOf(d.pool).change(d, (*resource.Quantity).Add) }

// countersOf is what is left of a pool's counters beside the devices in use.
func (x *search) countersOf(p *pool) counters {
	if left, known := x.left[p]; known {
		return left
	}
	left := counters{}
	for set, all := range p.counters {
		left[set] = map[string]resource.Quantity{}
		for name, c := range all {
			left[set][name] = c.Value.DeepCopy()
		}
	}
	for _, d := range p.devices {
		if len(d.spec.ConsumesCounters) > 0 && x.stock.used(d.id) {
			left.change(d, (*resource.Quantity).Sub)
		}
	}
	x.left[p] = left
	return left
}

func (c counters) change(d *device, by func(q *resource.Quantity, y resource.Quantity)) {
	for _, use := range d.spec.ConsumesCounters {
		for name, amount := range use.Counters {
			q := c[use.CounterSet][name]
			by(&q, amount.Value)
			c[use.CounterSet][name] = q
		}
	}
}

// why says what keeps the node from being one, where that is one request's doing.
func (x *search) why() string {
	clear(x.ties) // one request alone is tied to nothing
	for ci, d := range x.demands {
		for _, alternatives := range d.requests {
			var reasons []string
			for _, r := range alternatives {
				if reason := x.lack(ci, r); reason != "" {
					reasons = append(reasons, reason)
				}
			}
			if len(reasons) == len(alternatives) {
				return strings.Join(reasons, "; ")
			}
		}
	}
	return "no combination of free devices meets all requests and constraints"
}

// lack says why a request alone can't be met.
func (x *search) lack(ci int, r *request) string {
	c := x.candidates(r)
	if c.refuse != "" {
		return c.refuse
	}
	_, free := x.count(ci, r)
	switch {
	case r.all && free < len(c.list):
		return fmt.Sprintf("request %s wants all devices, and some are in use or tainted", r.name)
	case free < r.count:
		return fmt.Sprintf("too few free devices for request %s", r.name)
	}
	return ""
}

// count says how many devices there are that a request may get, and how many of them it could get now, one by one.
func (x *search) count(ci int, r *request) (matching, free int) {
	list := x.candidates(r).list
	for _, d := range list {
		if p, ok := x.take(ci, r, d); ok {
			free++
			x.untake(ci, p)
		}
	}
	return len(list), free
}

// deadline tells whether a time is over, by a clock.
func deadline(now func() time.Time, limit time.Duration) func() bool {
	if limit <= 0 {
		return nil
	}
	end := now().Add(limit)
	return func() bool { return now().After(end) }
}
