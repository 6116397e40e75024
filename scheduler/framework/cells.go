package framework

import (
	"encoding/binary"
	"slices"
)

// cell is a set of nodes that a class of pods can't tell apart: they pass its local filters, have the same local scores, and the same numbers in all columns by which
// plugins that look at the cluster judge. What holds for one of them holds for all, so that a decision looks at cells instead of nodes.
type cell struct {
	base  int64   // weighted sum of local scores that need no normalization
	raw   []int64 // by local normalized score plugin
	slots []int32
	place int32 // among those that are not empty

	// Of one decision:
	apart int32 // how many of its nodes are judged each for itself
	rep   int32 // the slot that stands for the others; -1 if there are none
}

// cells divides the nodes that pass a class's local filters.
type cells struct {
	list []cell
	live []int32 // those that are not empty
	free []int32
	of   []int32 // by slot: its cell; -1 if it is in none
	at   []int32 // by slot: its place there
	by   map[string]int32
	keys []string // by cell
	key  []byte
}

func (s *cells) grow(slots int) {
	for len(s.of) < slots {
		s.of, s.at = append(s.of, -1), append(s.at, 0)
	}
	if s.by == nil {
		s.by = map[string]int32{}
	}
}

// put sorts a slot into its cell.
func (s *cells) put(i int, base int64, raw []int64, columns []*Column) {
	s.key = binary.AppendVarint(s.key[:0], base)
	for _, v := range raw {
		s.key = binary.AppendVarint(s.key, v)
	}
	for _, c := range columns {
		s.key = binary.AppendVarint(s.key, c.At(i))
	}
	k, known := s.by[string(s.key)]
	if known && s.of[i] == k {
		return
	}
	s.drop(i)
	if !known {
		k = s.make(base, raw)
	}
	c := &s.list[k]
	s.of[i], s.at[i] = k, int32(len(c.slots))
	c.slots = append(c.slots, int32(i))
}

func (s *cells) make(base int64, raw []int64) int32 {
	var k int32
	if last := len(s.free) - 1; last >= 0 {
		k, s.free = s.free[last], s.free[:last]
	} else {
		k = int32(len(s.list))
		s.list, s.keys = append(s.list, cell{}), append(s.keys, "")
	}
	c := &s.list[k]
	c.base, c.raw, c.slots, c.place = base, append(c.raw[:0], raw...), c.slots[:0], int32(len(s.live))
	s.live = append(s.live, k)
	s.keys[k] = string(s.key)
	s.by[s.keys[k]] = k
	return k
}

// drop takes a slot out of its cell, if it is in one.
func (s *cells) drop(i int) {
	k := s.of[i]
	if k < 0 {
		return
	}
	s.of[i] = -1
	c := &s.list[k]
	last := c.slots[len(c.slots)-1]
	c.slots[s.at[i]], s.at[last] = last, s.at[i]
	c.slots = c.slots[:len(c.slots)-1]
	if len(c.slots) > 0 {
		return
	}
	end := s.live[len(s.live)-1]
	s.live[c.place], s.list[end].place = end, c.place
	s.live = s.live[:len(s.live)-1]
	delete(s.by, s.keys[k])
	s.free = append(s.free, k)
	if cap(c.slots) > 64 { // the next to use it may be small
		c.slots = nil
	}
}

// again sorts a slot by other columns.
func (s *cells) again(i int, columns []*Column) {
	if k := s.of[i]; k >= 0 {
		s.put(i, s.list[k].base, s.list[k].raw, columns)
	}
}

// regroup sorts all slots by other columns.
func (s *cells) regroup(columns []*Column) {
	for i := range s.of {
		s.again(i, columns)
	}
}

// ColumnPlugin is a plugin of scope OnCluster, whether it filters or scores, whose verdict and raw score of a node follow, within one decision, from a few numbers of the node, so
// that nodes with the same numbers need be judged only once. A plugin that is not one has every node judged.
type ColumnPlugin interface {
	// Columns adds the numbers to columns. It is asked after PreFilter, of plugins without one first, and does not depend on what PreFilter answered; ok is false if the plugin may judge any
	// two nodes differently in this decision.
	Columns(c *Cycle, columns []*Column) (all []*Column, ok bool)
}

// SpecPlugin is a plugin of narrow scope that may say that its verdicts and scores follow from the pod's spec alone, not from its namespace, labels or annotations. Where all do,
// pods that differ in nothing else share their work.
type SpecPlugin interface{ SpecOnly() bool }

// columns asks the plugins that look at the cluster by what they tell nodes apart; ok is false if one of them can't say.
func (f *Profile) columns(c *Cycle) (out []*Column, ok bool) {
	out = f.cols[:0]
	defer func() { f.cols = out[:0] }()
	if f.isWide(c) {
		return out, false
	}
	for _, p := range f.cluster {
		by, can := p.Plugin.(ColumnPlugin)
		if !can {
			if p.filters && !p.scores && c.skips(p.Name()) {
				continue
			}
			return out, false
		}
		if out, ok = by.Columns(c, out); !ok {
			return out, false
		}
	}
	return unique(out), true
}

func unique(in []*Column) []*Column {
	out := in[:0]
	for k, c := range in {
		if !slices.Contains(in[:k], c) {
			out = append(out, c)
		}
	}
	return out
}

// gather makes one node of each cell the feasible ones, and those beside them that must be judged each for itself.
func (f *Profile) gather(class *Class, apart Bits) {
	s := &class.cells
	f.grouped, f.apart = true, apart
	f.feasible, f.left = f.empty(), f.left[:0]
	if more := f.nodes.Slots() - len(f.weight); more > 0 {
		f.weight = append(f.weight, make([]int32, more)...)
	}
	for i := range apart.All() {
		f.feasible.Set(i)
		f.left = append(f.left, i)
		f.weight[i] = 1
		if k := s.of[i]; k >= 0 {
			s.list[k].apart++
		}
	}
	for _, k := range s.live {
		c := &s.list[k]
		n := int32(len(c.slots)) - c.apart
		c.apart, c.rep = 0, -1
		if n == 0 {
			continue
		}
		c.rep = c.slots[0]
		for at := 1; apart.Has(int(c.rep)); at++ {
			c.rep = c.slots[at]
		}
		f.feasible.Set(int(c.rep))
		f.left = append(f.left, int(c.rep))
		f.weight[c.rep] = n
	}
}

// empty is the set of feasible nodes, emptied, with room for all slots.
func (f *Profile) empty() Bits {
	clear(f.feasible)
	if n := f.nodes.Slots(); n > 0 {
		return f.feasible.Grow(n - 1)
	}
	return f.feasible
}

// Weight is for how many nodes a feasible node stands in this decision: itself, and those that are judged as it is.
func (c *Cycle) Weight(i int) int {
	if f := c.Profile; f.grouped {
		return int(f.weight[i])
	}
	return 1
}

// member chooses one of the nodes that i stands for, each with the same chance.
func (f *Profile) member(class *Class, i int) int {
	if !f.grouped || f.weight[i] == 1 {
		return i
	}
	slots := class.cells.list[class.cells.of[i]].slots
	for {
		if m := int(slots[f.rand.IntN(len(slots))]); !f.apart.Has(m) {
			return m
		}
	}
}
