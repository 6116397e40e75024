package framework

// Survey judges all nodes for c's pod without deciding anything: where it fits as things are, and where it may fit once pods have left. ok is false if no such answer holds for
// each node by itself: the pod is refused as a whole or restricted to some nodes, or a plugin can't say by what it tells nodes apart.
func (f *Profile) Survey(c *Cycle) (fits, maybe Bits, ok bool) {
	if f.preFilter(c) != nil || c.restricted {
		return nil, nil, false
	}
	if _, ok := f.columns(c); !ok {
		return nil, nil, false
	}
	f.forgetVerdicts()
	c.class = f.classFor(c.Pod, false)
	f.renew(c.class, c, nil)
	f.feasible = f.feasible.CopyFrom(c.class.pass)
	f.judgeOwn(c)
	f.filterCluster(c)
	for i := range f.nodes.WithNominated.All() {
		if f.feasible.Has(i) {
			f.refuse(i, f.fitsNominated(c, i))
		}
	}
	fits, maybe = Bits(nil).CopyFrom(f.feasible), Bits(nil).CopyFrom(f.feasible)
	for i, s := range f.allVerdicts(c) {
		if s.Is(Unschedulable) {
			maybe = maybe.Grow(i)
			maybe.Set(i)
		}
	}
	return fits, maybe, true
}
