package dra

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/yare-project/yare/scheduler/framework"
)

// more says which devices a node lacks, whoever has those that it has: one remedy for each request that it has too few for.
func (t *trial) more() []framework.Remedy {
	defer t.without(t.onNode())()
	demands := tolerating(t.demands)
	x := newSearch(&t.book.stock, t.node, demands)
	var out []framework.Remedy
	for ci, d := range demands {
		for _, alternatives := range d.requests {
			var least *framework.Remedy
			for _, r := range alternatives {
				m := t.shortage(x, ci, d, r)
				if m == nil {
					least = nil
					break
				}
				if least == nil || m.Part < least.Part {
					least = m
				}
			}
			if least != nil {
				out = append(out, *least)
			}
		}
	}
	if len(out) == 0 && len(demands) > 0 { // each would be met alone
		var titles []string
		for _, d := range demands {
			for _, alternatives := range d.requests {
				titles = append(titles, t.title(d, alternatives[0]))
			}
		}
		out = append(out, deviceRemedy("", partMore, "more devices on node %s: there are enough for each, but not for all of %s", t.node.Name, strings.Join(titles, ", ")))
	}
	return out
}

// shortage says what a node lacks for one request alone; nil: nothing.
func (t *trial) shortage(x *search, ci int, d *demand, r *request) *framework.Remedy {
	title := t.title(d, r)
	for _, p := range t.book.stock.on(t.node) {
		var m framework.Remedy
		switch {
		case p.incomplete:
			m = deviceRemedy(r.name, partRepair, "resource pool %s complete, for %s: its driver is publishing it (%d of its slices are there)", p.id, title, len(t.book.stock.byPool[p.id]))
		case p.invalid != "":
			m = deviceRemedy(r.name, partRepair, "resource pool %s in order, for %s: its driver published %s", p.id, title, p.invalid)
		default:
			continue
		}
		if x.lack(ci, r) != "" {
			return &m
		}
	}
	if x.lack(ci, r) == "" && x.err == nil {
		return nil
	}
	matching, _ := x.count(ci, r)
	missing := max(r.least()-matching, 1)
	m := framework.Remedy{Kind: framework.Device, Plugin: Name, Name: r.name, Resource: r.class.Name, Amount: int64(missing), Part: partMore + float64(missing)}
	what := fmt.Sprintf("a device of class %s", r.class.Name)
	if missing > 1 || matching > 0 {
		what = fmt.Sprintf("%d more %s of class %s", missing, verb(missing, "device", "devices"), r.class.Name)
	}
	m.Do = fmt.Sprintf("%s on node %s for %s (%s)", what, t.node.Name, title, t.because(x, ci, r))
	return &m
}

// because says why there are too few devices for a request.
func (t *trial) because(x *search, ci int, r *request) string {
	var devices []*device
	for _, p := range t.book.stock.on(t.node) {
		if p.incomplete || p.invalid != "" {
			continue
		}
		for _, d := range p.devices {
			if d.where.reaches(t.node) {
				devices = append(devices, d)
			}
		}
	}
	if len(devices) == 0 {
		return "no driver publishes devices there"
	}
	there := "the only device"
	if len(devices) > 1 {
		there = fmt.Sprintf("all %d devices", len(devices))
	}
	for i, expression := range r.selectors {
		any := false
		for _, d := range devices {
			ok, err := t.book.stock.match(expression, d)
			if err != nil {
				return fmt.Sprintf("%s: device %s: %v", r.from[i], d.id, err)
			}
			any = any || ok
		}
		if !any {
			return fmt.Sprintf("%s is false for %s there: %s", r.from[i], there, brief(expression))
		}
	}
	matching, fitting := x.count(ci, r)
	if matching == 0 {
		if why := t.capacity(x, r, devices); why != "" {
			return why
		}
		return fmt.Sprintf("no device there meets all its selectors; each is false for some of the %d", len(devices))
	}
	if fitting < matching && matching >= r.least() {
		return fmt.Sprintf("%d of %d there match, and the counters of their pool leave room for %d", matching, len(devices), fitting)
	}
	return fmt.Sprintf("%d of %d there %s, and %s", matching, len(devices), verb(matching, "matches", "match"), wish(r))
}

// capacity says which capacity that is asked for no device has that the selectors leave; empty: it is not that.
func (t *trial) capacity(x *search, r *request, devices []*device) string {
	if r.capacity == nil {
		return ""
	}
	plain := *r
	plain.capacity = nil
	for _, name := range sortedCapacities(r.capacity.Requests) {
		want := r.capacity.Requests[name]
		var most *resource.Quantity
		for _, d := range devices {
			if ok, err := x.matches(&plain, d); err != nil || !ok {
				continue
			}
			if c, has := d.spec.Capacity[name]; has && (most == nil || c.Value.Cmp(*most) > 0) {
				most = &c.Value
			}
		}
		switch {
		case most == nil:
			return fmt.Sprintf("no device there has capacity %s", name)
		case most.Cmp(want) < 0:
			return fmt.Sprintf("it asks for %s of capacity %s, and no device there has more than %s", want.String(), name, most.String())
		}
	}
	return "no device there gives out its capacity in what is asked for"
}

func sortedCapacities(m map[resourcev1.QualifiedName]resource.Quantity) []resourcev1.QualifiedName {
	return slices.Sorted(maps.Keys(m))
}

// brief shortens an expression.
func brief(expression string) string {
	const most = 120
	line := strings.Join(strings.Fields(expression), " ")
	if len(line) > most {
		return line[:most] + "..."
	}
	return line
}
