package nodelifecycle

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// census counts nodes as they change, so that what a zone's state means for one node needs no look at all others.
type census struct {
	mu    sync.Mutex
	nodes map[string]*person
	zones map[string]*count
	ready int

	// witnesses are nodes last found alive. If there are less than two, no other was when changes was searched.
	witnesses []string
	changes   uint64
	searched  uint64
}

type person struct {
	zone  string
	ready bool
	heard time.Time
}

// count is of the nodes of a zone.
type count struct{ size, ready int }

func newCensus() *census {
	return &census{nodes: map[string]*person{}, zones: map[string]*count{}}
}

func zoneOf(n *corev1.Node) string {
	return n.Labels[corev1.LabelTopologyRegion] + "/" + n.Labels[corev1.LabelTopologyZone]
}

// shift is what a change of one node did to a zone.
type shift struct {
	zone          string
	before, after count
	first         bool // no node of the cluster was ready before
}

// enter takes in a node's present state.
func (c *census) enter(n *corev1.Node) []shift {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.nodes[n.Name]
	zone, ready := zoneOf(n), readyStatus(n) == corev1.ConditionTrue
	switch {
	case p == nil:
		p = &person{}
		c.nodes[n.Name] = p
	case p.zone == zone && p.ready == ready:
		return nil
	}
	first := ready && c.ready == 0
	var out []shift
	if p.zone != "" {
		out = append(out, c.move(p, -1))
	}
	p.zone, p.ready = zone, ready
	arrived := c.move(p, 1)
	if len(out) > 0 && out[0].zone == zone {
		arrived.before = out[0].before
		out = out[:0]
	}
	arrived.first = first
	c.changes++
	return append(out, arrived)
}

// move adds p to its zone, or takes it out. The caller holds mu.
func (c *census) move(p *person, sign int) shift {
	z := c.zones[p.zone]
	if z == nil {
		z = &count{}
		c.zones[p.zone] = z
	}
	s := shift{zone: p.zone, before: *z}
	z.size += sign
	if p.ready {
		z.ready += sign
		c.ready += sign
	}
	if s.after = *z; z.size == 0 {
		delete(c.zones, p.zone)
	}
	return s
}

// leave takes out a node that is gone.
func (c *census) leave(name string) []shift {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.nodes[name]
	if p == nil {
		return nil
	}
	delete(c.nodes, name)
	if p.zone == "" { // only heard of
		return nil
	}
	return []shift{c.move(p, -1)}
}

// hear notes that a node was heard of.
func (c *census) hear(name string, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.nodes[name]
	if p == nil {
		p = &person{}
		c.nodes[name] = p
	}
	p.heard = now
	c.changes++
}

func (c *census) heard(name string) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.nodes[name]; p != nil {
		return p.heard
	}
	return time.Time{}
}

// othersOf counts the nodes of a node's zone, itself included, and those of the others that are ready.
func (c *census) othersOf(n *corev1.Node) count {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out count
	if z := c.zones[zoneOf(n)]; z != nil {
		out = *z
	}
	if p := c.nodes[n.Name]; p != nil && p.ready && p.zone == zoneOf(n) {
		out.ready--
	}
	return out
}

// otherAlive tells whether a node besides the named one is ready and was heard of after a time.
func (c *census) otherAlive(name string, after time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	alive := func(p *person) bool { return p != nil && p.ready && p.heard.After(after) }
	for _, w := range c.witnesses {
		if w != name && alive(c.nodes[w]) {
			return true
		}
	}
	if len(c.witnesses) < 2 && c.searched == c.changes {
		return false // those that were not alive then are not alive now
	}
	c.witnesses, c.searched = c.witnesses[:0], c.changes
	for n, p := range c.nodes {
		if alive(p) {
			c.witnesses = append(c.witnesses, n)
		}
		if len(c.witnesses) == 2 {
			break
		}
	}
	for _, w := range c.witnesses {
		if w != name {
			return true
		}
	}
	return false
}
