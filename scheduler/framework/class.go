package framework

import "slices"

// classesKept bounds the memory that known classes take.
const classesKept = 256

// Class is what is known of all pods with the same demands: verdicts and scores of plugins that judge nodes singly.
type Class struct {
	pod      *Pod // stands for all of them
	lastUsed uint64
	judged   bool
	epochs   []uint64
	objects  uint64 // positions in the journals up to which the class is judged
	pods     uint64
	columns  []*Column
	followed []uint64 // by column: the position in its journal

	pass   Bits
	why    []*Status // by slot: verdict of all local filters
	object Bits      // slots that a filter of scope OnNode refuses
	cells  cells
}

// classFor finds or makes the class of p. Pods that plugins look at the cluster for are of one class only if they agree in namespace, labels and annotations, too.
func (f *Profile) classFor(p *Pod, alone bool) *Class {
	f.tick++
	of := p.template.full
	if alone && f.specOnly() {
		of = p.template.spec
	}
	if name := p.Object.Spec.NodeName; name != "" {
		of = f.nodes.shape([]byte(of.signature + name))
	}
	c := f.classes[of]
	if c == nil {
		if len(f.classes) >= classesKept {
			f.forgetOldest()
		}
		c = &Class{pod: p, epochs: make([]uint64, len(f.epochs))}
		f.classes[of] = c
	}
	c.lastUsed = f.tick
	return c
}

// specOnly tells whether all plugins of narrow scope judge by the spec alone at the moment.
func (f *Profile) specOnly() bool {
	for _, p := range f.local {
		if s, ok := p.(SpecPlugin); !ok || !s.SpecOnly() {
			return false
		}
	}
	return true
}

func (f *Profile) forgetOldest() {
	var oldest *shape
	at := f.tick + 1
	for s, c := range f.classes {
		if c.lastUsed < at {
			oldest, at = s, c.lastUsed
		}
	}
	delete(f.classes, oldest)
}

// renew brings the class up to the present state of the nodes, divided by columns.
func (f *Profile) renew(c *Class, cycle *Cycle, columns []*Column) {
	n := f.nodes
	voided := !c.judged
	for k, p := range f.epochs {
		if e := p.Epoch(); e != c.epochs[k] {
			c.epochs[k], voided = e, true
		}
	}
	own := *cycle
	own.Pod = c.pod
	objects, known := n.objects.since(c.objects)
	pods, known2 := n.pods.since(c.pods)
	c.fit(n.Slots())
	c.follow(columns)
	if voided || !known || !known2 {
		c.judged = true
		for i := range n.Name {
			f.judge(c, &own, i, true)
		}
	} else {
		for _, i := range objects {
			f.judge(c, &own, int(i), true)
		}
		for _, s := range pods {
			f.judge(c, &own, int(s.slot), false)
		}
	}
	c.objects, c.pods = n.objects.end(), n.pods.end()
}

// follow sorts the nodes by columns, and those anew whose numbers changed.
func (c *Class) follow(columns []*Column) {
	if !slices.Equal(c.columns, columns) {
		c.columns = slices.Clone(columns)
		c.followed = make([]uint64, len(columns))
		c.cells.regroup(c.columns)
	} else {
		for k, column := range c.columns {
			if column.changed == nil {
				continue
			}
			changed, known := column.changed.since(c.followed[k])
			if !known {
				c.cells.regroup(c.columns)
				break
			}
			for _, i := range changed {
				c.cells.again(int(i), c.columns)
			}
		}
	}
	for k, column := range c.columns {
		if column.changed != nil {
			c.followed[k] = column.changed.end()
		}
	}
}

// fit gives the class room for all slots.
func (c *Class) fit(slots int) {
	if slots == 0 || len(c.why) >= slots {
		return
	}
	c.pass, c.object = c.pass.Grow(slots-1), c.object.Grow(slots-1)
	c.why = append(c.why, make([]*Status, slots-len(c.why))...)
	c.cells.grow(slots)
}

// judge asks the local plugins about slot i; object tells whether the node object may have changed.
func (f *Profile) judge(c *Class, cycle *Cycle, i int, object bool) {
	if !f.nodes.Valid.Has(i) {
		c.pass.Clear(i)
		c.object.Clear(i)
		c.why[i] = nil
		c.cells.drop(i)
		return
	}
	switch {
	case object:
		c.why[i] = firstRefusal(f.onNode, cycle, i)
		c.object.Put(i, c.why[i] != nil)
	case !c.object.Has(i):
		c.why[i] = nil
	}
	if c.why[i] == nil {
		c.why[i] = firstRefusal(f.onPods, cycle, i)
	}
	if c.why[i] == nil && f.nodes.WithNominated.Has(i) {
		c.why[i] = f.roomBesideNominated(cycle, i)
	}
	c.pass.Put(i, c.why[i] == nil)
	if c.why[i] != nil {
		c.cells.drop(i)
		return
	}
	known := c.cells.of[i]
	f.raw = f.raw[:0]
	for k, s := range f.normalized {
		if known >= 0 && !object && s.ScoreScope() == OnNode {
			f.raw = append(f.raw, c.cells.list[known].raw[k])
		} else {
			f.raw = append(f.raw, s.Score(cycle, i))
		}
	}
	var sum int64
	for _, s := range f.plain {
		sum += s.weight * s.Score(cycle, i)
	}
	c.cells.put(i, sum, f.raw, c.columns)
}

// roomBesideNominated asks the local filters once more about a node, with the pods of at least the class's priority that wait for room there.
func (f *Profile) roomBesideNominated(cycle *Cycle, i int) *Status {
	n := f.nodes
	n.quiet = true
	defer func() { n.quiet = false }()
	var added []*Pod
	for _, p := range n.Nominated[i] {
		if p.Priority >= cycle.Pod.Priority && p.node < 0 {
			n.AddPod(p, n.Name[i])
			added = append(added, p)
		}
	}
	if len(added) == 0 {
		return nil
	}
	s := firstRefusal(f.onNode, cycle, i)
	if s == nil {
		s = firstRefusal(f.onPods, cycle, i)
	}
	for _, p := range added {
		n.RemovePod(p)
	}
	return s
}

func firstRefusal(filters []FilterPlugin, c *Cycle, i int) *Status {
	for _, p := range filters {
		if s := p.Filter(c, i); !s.OK() {
			return s
		}
	}
	return nil
}
