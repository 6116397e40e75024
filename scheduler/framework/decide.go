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
	if d := f.onNominated(c); d != nil {
		return d, nil, nil
	}
	f.forgetVerdicts()
	if c.restricted {
		f.filterOnly(c)
	} else if f.narrow(c) {
		c.class = f.classFor(c.Pod, false)
		f.renew(c.class, c, nil)
		f.feasible = f.feasible.CopyFrom(c.class.pass)
		f.judgeOwn(c)
		for k := range f.feasible {
			f.feasible[k] &= f.within.word(k)
		}
	} else if columns, grouped := f.columns(c); grouped {
		c.class = f.classFor(c.Pod, len(columns) == 0)
		f.renew(c.class, c, columns)
		f.gather(c.class, f.judgedApart(c, len(columns) == 0))
	} else {
		c.class = f.classFor(c.Pod, false)
		f.renew(c.class, c, nil)
		f.feasible = f.feasible.CopyFrom(c.class.pass)
		f.judgeOwn(c)
	}
	f.filterCluster(c)
	for i := range f.nodes.WithNominated.All() {
		if f.feasible.Has(i) && (!f.grouped || f.apart.Has(i)) {
			f.refuse(i, f.fitsNominated(c, i))
		}
	}
	f.collect()
	count := 0
	for _, i := range f.left {
		count += c.Weight(i)
	}
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

// fewNodes is how large a domain may be for it to be judged node by node.
const fewNodes = 64

// narrow tells whether the pod is kept within so few nodes that others need not be looked at; they are in f.within.
func (f *Profile) narrow(c *Cycle) bool {
	for _, p := range f.onCluster {
		if d, ok := p.(DomainFilter); ok && !c.skips(p.Name()) {
			if in, outside := d.Domain(c); in != nil && in.Count() <= fewNodes {
				f.within, f.outside = in, outside
				return true
			}
		}
	}
	return false
}

// judgedApart are the nodes that no other may stand for: the one where the pod itself waits for room, and those where others wait for whom, or for which pod, more counts than
// the node and its pods.
func (f *Profile) judgedApart(c *Cycle, local bool) Bits {
	clear(f.alone)
	own := f.judgeOwn(c)
	waiting := f.nodes.WithNominated
	if local {
		waiting = f.nodes.minding
	}
	f.alone = f.alone.Grow(f.nodes.Slots() - 1)
	if own >= 0 && f.verdicts[own] == nil {
		f.alone.Set(own)
	}
	for i := range waiting.All() {
		if i != own && c.class.pass.Has(i) {
			f.alone.Set(i)
		}
	}
	return f.alone
}

// judgeOwn judges the node where the pod itself waits for room, which the class counts as taken, and returns its slot; -1 if there is none.
func (f *Profile) judgeOwn(c *Cycle) int {
	own, waits := f.nodes.nominees[c.Pod.Object.UID]
	if !waits || !f.nodes.Valid.Has(own) {
		return -1
	}
	s := firstRefusal(f.onNode, c, own)
	if s == nil {
		s = firstRefusal(f.onPods, c, own)
	}
	f.feasible = f.feasible.Grow(own)
	f.feasible.Put(own, s == nil)
	f.refuse(own, s)
	return own
}

// collect lists the nodes that are left.
func (f *Profile) collect() {
	if f.grouped {
		f.left = slices.DeleteFunc(f.left, func(i int) bool { return !f.feasible.Has(i) })
		return
	}
	f.left = f.left[:0]
	for i := range f.feasible.All() {
		f.left = append(f.left, i)
	}
}

func (f *Profile) refuse(i int, s *Status) {
	if s != nil {
		f.feasible.Clear(i)
		f.verdicts[i] = s
		f.refused = append(f.refused, i)
	}
}

func (f *Profile) forgetVerdicts() {
	f.grouped, f.within, f.outside = false, nil, nil
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
		if c.skips(p.Name()) {
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
	f.feasible = f.empty()
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
	d := &Diagnosis{Nodes: f.nodes.Len(), Verdicts: f.allVerdicts(c)}
	var last *Status
	for _, s := range d.Verdicts {
		if s == nil || s == last {
			continue
		}
		last = s
		if s.Code == Failed {
			return nil, nil, fmt.Errorf("running Filter plugin %q: %w", s.Plugin, s.Err)
		}
		if !slices.Contains(d.Plugins, s.Plugin) {
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

// allVerdicts are the reasons why nodes were refused, by slot; nil where they were not, or not judged.
func (f *Profile) allVerdicts(c *Cycle) []*Status {
	if c.restricted {
		return slices.Clone(f.verdicts)
	}
	out := slices.Clone(c.class.why)
	if f.grouped {
		for _, k := range c.class.cells.live {
			if cell := &c.class.cells.list[k]; cell.rep >= 0 && f.verdicts[cell.rep] != nil {
				for _, i := range cell.slots {
					out[i] = f.verdicts[cell.rep]
				}
			}
		}
		for i := range f.apart.All() {
			out[i] = nil
		}
	}
	for _, i := range f.refused {
		out[i] = f.verdicts[i]
	}
	if f.outside != nil {
		for i := range f.nodes.Valid.All() {
			if out[i] == nil && !f.within.Has(i) {
				out[i] = f.outside
			}
		}
	}
	return out
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
