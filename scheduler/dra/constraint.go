package dra

import (
	"strconv"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
)

// constraint ties devices of a claim together by the value of an attribute.
type constraint struct {
	attribute string
	distinct  bool // each another value; else all the same
	requests  map[string]bool
	counts    map[string]int // by value: how many chosen devices have it
	values    map[*device]string
}

func newConstraint(c *resourcev1.DeviceConstraint) (*constraint, bool) {
	out := &constraint{requests: map[string]bool{}, counts: map[string]int{}, values: map[*device]string{}}
	for _, r := range c.Requests {
		out.requests[r] = true
	}
	switch {
	case c.MatchAttribute != nil:
		out.attribute = string(*c.MatchAttribute)
	case c.DistinctAttribute != nil:
		out.attribute, out.distinct = string(*c.DistinctAttribute), true
	default:
		return nil, false
	}
	return out, true
}

// about tells whether devices of a request are tied.
func (c *constraint) about(r *request) bool {
	return len(c.requests) == 0 || c.requests[r.base] || c.requests[r.name]
}

// add notes a device, or tells that it may not be chosen beside the others.
func (c *constraint) add(r *request, d *device) bool {
	if !c.about(r) {
		return true
	}
	value := c.value(d)
	if value == "" || c.distinct && c.counts[value] > 0 || !c.distinct && len(c.counts) > 0 && c.counts[value] == 0 {
		return false
	}
	c.counts[value]++
	return true
}

func (c *constraint) remove(r *request, d *device) {
	if !c.about(r) {
		return
	}
	value := c.value(d)
	if c.counts[value]--; c.counts[value] == 0 {
		delete(c.counts, value)
	}
}

// value is a device's value of the attribute, in a form that tells types apart; empty if it has none.
func (c *constraint) value(d *device) string {
	v, known := c.values[d]
	if !known {
		v, _ = attributeOf(d, c.attribute)
		c.values[d] = v
	}
	return v
}

// attributeOf is the value of a device's attribute in a form that tells types apart. An attribute without domain is of the driver's.
func attributeOf(d *device, name string) (string, bool) {
	a, ok := d.spec.Attributes[resourcev1.QualifiedName(name)]
	if !ok {
		domain, id, qualified := strings.Cut(name, "/")
		if !qualified || domain != d.id.Driver {
			return "", false
		}
		if a, ok = d.spec.Attributes[resourcev1.QualifiedName(id)]; !ok {
			return "", false
		}
	}
	switch {
	case a.StringValue != nil:
		return "s" + *a.StringValue, true
	case a.IntValue != nil:
		return "i" + strconv.FormatInt(*a.IntValue, 10), true
	case a.BoolValue != nil:
		return "b" + strconv.FormatBool(*a.BoolValue), true
	case a.VersionValue != nil:
		return "v" + *a.VersionValue, true // the grammar has one spelling for each version
	}
	return "", false
}
