package dra

import (
	"fmt"
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
)

// candidates are the devices that a request may get on the node.
type candidates struct {
	list   []*device
	refuse string // why the request can't be met at all
}

// candidates lists the devices that a request may get, in order, leaving out those that it can never get.
func (x *search) candidates(r *request) *candidates {
	if c, known := x.found[r]; known {
		return c
	}
	c := &candidates{}
	x.found[r] = c
	for _, p := range x.stock.on(x.node) {
		switch {
		case r.all && p.incomplete:
			c.refuse = fmt.Sprintf("request %s asks for all devices, but resource pool %s is currently being updated", r.name, p.id)
		case r.all && p.invalid != "":
			c.refuse = fmt.Sprintf("request %s asks for all devices, but resource pool %s is currently invalid: %s", r.name, p.id, p.invalid)
		case p.incomplete || p.invalid != "":
			continue
		default:
			x.gather(c, r, p)
		}
		if c.refuse != "" || x.err != nil {
			return c
		}
	}
	switch {
	case len(c.list) == 0:
		c.refuse = fmt.Sprintf("no device matches request %s", r.name)
	case len(c.list) < r.count:
		c.refuse = fmt.Sprintf("request %s wants %d devices, of %d that match", r.name, r.count, len(c.list))
	}
	return c
}

func (x *search) gather(c *candidates, r *request, p *pool) {
	for _, d := range p.devices {
		if !d.where.reaches(x.node) {
			continue
		}
		ok, err := x.matches(r, d)
		if err != nil {
			x.err = err
			return
		}
		if ok {
			c.list = append(c.list, d)
		}
	}
}

func (x *search) matches(r *request, d *device) (bool, error) {
	for i, expression := range r.selectors {
		ok, err := x.stock.match(expression, d)
		if err != nil {
			return false, fmt.Errorf("%s: device %s: %w", r.from[i], d.id, err)
		}
		if !ok {
			return false, nil
		}
	}
	take, ok := consumption(r.capacity, d.spec)
	if !ok {
		return false, nil
	}
	if r.all { // all that there is room on; whether it is taken as a whole, or tainted, is another matter
		return !d.shared() || fits(d.spec, take, takenOf(x.stock.shares[d.id])), nil
	}
	return r.tolerates(d.spec), nil
}

// class says all of a device that matters to this search: two of the same class that nothing in it has taken are as good as each other. It is worked out only once
// there is something to compare with.
func (x *search) class(d *device, tried map[string]bool) string {
	if known, ok := x.classes[d]; ok {
		return known
	}
	if tried == nil {
		return ""
	}
	if x.classes == nil {
		x.classes = map[*device]string{}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%p", d.pool)
	if d.shared() {
		fmt.Fprintf(&b, "/%d", d.at)
	}
	if x.stock.taken(d.id) {
		b.WriteString("/taken")
	}
	for ci, demand := range x.demands {
		for _, alternatives := range demand.requests {
			for _, r := range alternatives {
				_, in := slices.BinarySearchFunc(x.candidates(r).list, d, compareDevices)
				fmt.Fprintf(&b, "%t%t", in, r.tolerates(d.spec))
			}
		}
		for _, tie := range x.ties[ci] {
			fmt.Fprintf(&b, "/%q", tie.value(d))
		}
	}
	for _, use := range d.spec.ConsumesCounters {
		fmt.Fprintf(&b, "/%s", use.CounterSet)
		for _, name := range sortedNames(use.Counters) {
			v := use.Counters[name].Value
			fmt.Fprintf(&b, " %s=%s", name, v.String())
		}
	}
	x.classes[d] = b.String()
	return x.classes[d]
}

func sortedNames(m map[string]resourcev1.Counter) []string {
	out := make([]string, 0, len(m))
	for name := range m {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// compareDevices is the order of candidates.
func compareDevices(a, b *device) int {
	if a.pool != b.pool {
		return comparePools(a.pool, b.pool)
	}
	return a.at - b.at
}
