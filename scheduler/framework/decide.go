package framework

import (
	"fmt"
	"slices"
	"strings"
)

// Decision is where a pod goes.
type Decision struct {
	Slot     int
	Node     string
	Feasible int // how many nodes would do
	Score    int64
}

// Diagnosis says why a pod can't go anywhere.
type Diagnosis struct {
	Nodes      int // how many there are
	PreFilter  *Status
	Verdicts   []*Status // by slot; nil for slots that are no nodes
	Restricted string    // why nodes outside a restriction were not judged
	Absent     int       // how many those are
	Plugins    []string  // who refused
	PostFilter string
}

// Decide finds the best node for c's pod. Exactly one of the results is set; err is for plugins that failed.
func (f *Profile) Decide(c *Cycle) (*Decision, *Diagnosis, error) {
	if s := f.preFilter(c); s != nil {
		if s.Code == Failed {
			return nil, nil, fmt.Errorf("running PreFilter plugin %q: %w", s.Plugin, s.Err)
		}
		return nil, &Diagnosis{Nodes: f.nodes.Len(), PreFilter: s, Plugins: []string{s.Plugin}}, nil
	}
	f.forgetVerdicts()
	if c.restricted {
		f.filterOnly(c)
	} else {
		class := c.classOf()
		f.renew(class, c)
		f.feasible = f.feasible.CopyFrom(class.pass)
	}
	f.filterCluster(c)
	for i := range f.nodes.WithNominated.All() {
		if f.feasible.Has(i) {
			f.refuse(i, f.fitsNominated(c, i))
		}
	}
	count := f.feasible.Count()
	if count == 0 {
		return f.diagnose(c)
	}
	d := &Decision{Feasible: count}
	if err := f.choose(c, d); err != nil {
		return nil, nil, err
	}
	d.Node = f.nodes.Name[d.Slot]
	return d, nil, nil
}

func (f *Profile) refuse(i int, s *Status) {
	if s != nil {
		f.feasible.Clear(i)
		f.verdicts[i] = s
		f.refused = append(f.refused, i)
	}
}

func (f *Profile) forgetVerdicts() {
	for _, i := range f.refused {
		f.verdicts[i] = nil
	}
	f.refused = f.refused[:0]
	if more := f.nodes.Slots() - len(f.verdicts); more > 0 {
		f.verdicts = append(f.verdicts, make([]*Status, more)...)
	}
}

// filterCluster asks the plugins that look beyond one node about those that are left.
func (f *Profile) filterCluster(c *Cycle) {
	for _, p := range f.onCluster {
		if contains(c.skipFilter, p.Name()) {
			continue
		}
		if batch, ok := p.(BatchFilter); ok {
			batch.FilterAll(c, f.feasible, f.refuse)
			continue
		}
		for i := range f.feasible.All() {
			if s := p.Filter(c, i); !s.OK() {
				f.refuse(i, s)
			}
		}
	}
}

// filterOnly judges the few nodes that a plugin restricted the pod to; what is learnt of them is not kept.
func (f *Profile) filterOnly(c *Cycle) {
	clear(f.feasible)
	if n := f.nodes.Slots(); n > 0 {
		f.feasible = f.feasible.Grow(n - 1)
	}
	for _, i := range c.only {
		f.feasible.Set(i)
		s := firstRefusal(f.onNode, c, i)
		if s == nil {
			s = firstRefusal(f.onPods, c, i)
		}
		f.refuse(i, s)
	}
}

func (f *Profile) diagnose(c *Cycle) (*Decision, *Diagnosis, error) {
	d := &Diagnosis{Nodes: f.nodes.Len(), Verdicts: make([]*Status, f.nodes.Slots())}
	for i := range f.nodes.Valid.All() {
		s := f.verdicts[i]
		if s == nil && !c.restricted {
			s = c.class.why[i]
		}
		if s != nil && s.Code == Failed {
			return nil, nil, fmt.Errorf("running Filter plugin %q: %w", s.Plugin, s.Err)
		}
		d.Verdicts[i] = s
		if s != nil && !slices.Contains(d.Plugins, s.Plugin) {
			d.Plugins = append(d.Plugins, s.Plugin)
		}
	}
	if c.restricted {
		d.Absent = d.Nodes - len(c.only)
		d.Restricted = "node(s) didn't satisfy plugin(s) [" + strings.Join(c.by, " ") + "]"
		for _, by := range c.by {
			if !slices.Contains(d.Plugins, by) {
				d.Plugins = append(d.Plugins, by)
			}
		}
	}
	return nil, d, nil
}

// Message is what users read: "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) were unschedulable. preemption: ...".
func (d *Diagnosis) Message() string {
	var b strings.Builder
	fmt.Fprintf(&b, "0/%d nodes are available:", d.Nodes)
	if d.PreFilter != nil {
		fmt.Fprintf(&b, " %s.", d.PreFilter.Message())
	} else if counts := countReasons(d.Verdicts, d.Restricted, d.Absent); counts != "" {
		fmt.Fprintf(&b, " %s.", counts)
	}
	if d.PostFilter != "" {
		fmt.Fprintf(&b, " %s", d.PostFilter)
	}
	return b.String()
}

func countReasons(verdicts []*Status, more string, times int) string {
	counts := map[string]int{}
	for _, s := range verdicts {
		if s != nil {
			for _, r := range s.Reasons {
				counts[r]++
			}
		}
	}
	if times > 0 {
		counts[more] += times
	}
	var lines []string
	for r, n := range counts {
		lines = append(lines, fmt.Sprintf("%d %s", n, r))
	}
	slices.Sort(lines)
	return strings.Join(lines, ", ")
}
