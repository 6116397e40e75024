package framework

// Column is a number of each node on which verdicts of plugins that look at the cluster depend.
type Column struct {
	// At is the number of the node in a slot.
	At      func(slot int) int64
	changed *journal[int32] // the slots whose number changed; nil: it changes only with the node's object
}

// Tally counts pods by node and by the nodes' domains of a topology label, and follows what changes: keeping it up to date costs as much as there are changes.
type Tally struct {
	n       *Nodes
	label   *LabelColumn
	times   func(*Pod) int64
	include func(slot int) bool

	counted Bits // the slots that count
	byNode  []int64
	domain  []int32       // by slot: the label's value under which it counts
	sum     []int64       // by value
	nodes   []int32       // by value: how many nodes count
	some    int           // how many values have a sum
	sums    map[int64]int // how many values at which nodes count have which sum; nil until somebody asks
	domains int           // at how many values nodes count

	objects, pods uint64
	fresh         bool
	changed       journal[int32]
	column        Column
	journals      bool
}

// NewTally counts each pod on a node as often as times says, which must say the same of a pod for as long as it is on the node, by the domains of a label; with no label only
// by node. Nodes that include refuses, which must judge by the node object, do not count; nil includes all.
func (n *Nodes) NewTally(label string, times func(*Pod) int64, include func(slot int) bool) *Tally {
	t := &Tally{n: n, times: times, include: include}
	if label != "" {
		t.label = n.Label(label)
	}
	t.column.changed = &t.changed
	if t.label == nil {
		t.column.At = func(i int) int64 { return t.byNode[i] }
	} else {
		t.column.At = func(i int) int64 {
			if v := t.label.Value[i]; v != 0 {
				return t.sum[v] + 1
			}
			return 0
		}
	}
	return t
}

// Column tells nodes apart by what is counted in their domain, or by the domain where that is the same and cheaper.
func (t *Tally) Column() *Column {
	if t.label != nil && t.label.coarse() {
		return t.label.Column()
	}
	t.journals = true
	return &t.column
}

// OnNode is the count on a node.
func (t *Tally) OnNode(slot int) int64 { return t.byNode[slot] }

// In is the count in the domain of a node; 0 if it is in none.
func (t *Tally) In(slot int) int64 { return t.sum[t.label.Value[slot]] }

// Domain numbers the domain of a node; 0 is none. Count is the count in a domain, Nodes how many nodes count there, Domains one more than the largest number.
func (t *Tally) Domain(slot int) int32    { return t.label.Value[slot] }
func (t *Tally) Count(domain int32) int64 { return t.sum[domain] }
func (t *Tally) Nodes(domain int32) int32 { return t.nodes[domain] }
func (t *Tally) Domains() int             { return len(t.sum) }

// Empty tells whether nothing is counted in any domain.
func (t *Tally) Empty() bool { return t.some == 0 }

// Least is the smallest count among the domains in which nodes count, and how many of these there are.
func (t *Tally) Least() (count int64, domains int) {
	if t.sums == nil {
		t.sums, t.domains = map[int64]int{}, 0
		for v, n := range t.nodes {
			if n > 0 {
				t.sums[t.sum[v]]++
				t.domains++
			}
		}
	}
	first := true
	for sum := range t.sums {
		if first || sum < count {
			count, first = sum, false
		}
	}
	return count, t.domains
}

// exists follows a domain's beginning or ceasing to have nodes that count.
func (t *Tally) exists(v int32, by int) {
	if t.sums == nil {
		return
	}
	t.domains += by
	t.atSum(t.sum[v], by)
}

func (t *Tally) atSum(sum int64, by int) {
	if t.sums[sum] += by; t.sums[sum] == 0 {
		delete(t.sums, sum)
	}
}

// Sync takes in what changed since the last time.
func (t *Tally) Sync() {
	n := t.n
	shifts, known := n.pods.since(t.pods)
	objects, known2 := n.objects.since(t.objects)
	t.grow()
	if !t.fresh || !known || !known2 {
		t.fresh = true
		for i := range n.Name {
			t.recount(i)
		}
	} else {
		for _, s := range shifts {
			if i := int(s.slot); s.sign != 0 && t.counted.Has(i) { // others are counted once their node is
				if k := t.times(s.pod); k != 0 {
					t.add(i, k*int64(s.sign))
				}
			}
		}
		for _, i := range objects {
			t.recount(int(i))
		}
	}
	t.pods, t.objects = n.pods.end(), n.objects.end()
}

func (t *Tally) grow() {
	if more := t.n.Slots() - len(t.byNode); more > 0 {
		t.counted = t.counted.Grow(t.n.Slots() - 1)
		t.byNode, t.domain = append(t.byNode, make([]int64, more)...), append(t.domain, make([]int32, more)...)
	}
	if t.label == nil {
		return
	}
	if more := t.label.Values() - len(t.sum); more > 0 {
		t.sum, t.nodes = append(t.sum, make([]int64, more)...), append(t.nodes, make([]int32, more)...)
	}
}

// recount counts a slot anew.
func (t *Tally) recount(i int) {
	if t.counted.Has(i) {
		t.add(i, -t.byNode[i])
		t.counted.Clear(i)
		if v := t.domain[i]; v != 0 {
			if t.nodes[v]--; t.nodes[v] == 0 {
				t.exists(v, -1)
			}
			t.domain[i] = 0
		}
	}
	if !t.n.Valid.Has(i) || t.include != nil && !t.include(i) {
		return
	}
	t.counted.Set(i)
	if t.label != nil {
		if v := t.label.Value[i]; v != 0 {
			t.domain[i] = v
			if t.nodes[v]++; t.nodes[v] == 1 {
				t.exists(v, 1)
			}
		}
	}
	var sum int64
	for _, p := range t.n.Pods[i] {
		sum += t.times(p)
	}
	t.add(i, sum)
}

func (t *Tally) add(i int, by int64) {
	if by == 0 {
		return
	}
	t.byNode[i] += by
	if t.label == nil {
		if t.journals {
			t.changed.add(int32(i))
		}
		return
	}
	v := t.domain[i]
	if v == 0 {
		return
	}
	before := t.sum[v]
	t.sum[v] += by
	if t.sums != nil && t.nodes[v] > 0 {
		t.atSum(before, -1)
		t.atSum(t.sum[v], 1)
	}
	switch {
	case before == 0:
		t.some++
	case t.sum[v] == 0:
		t.some--
	}
	if t.journals {
		for _, m := range t.label.members[v] {
			t.changed.add(m)
		}
	}
}
