package framework

import "slices"

// onNominated decides for the node on which the pod waits for room, if it fits there by now; nil if it does not, and all nodes are to be judged. So a pod gets
// the place that others left for its sake even where a better one has come up meanwhile.
func (f *Profile) onNominated(c *Cycle) *Decision {
	i, ok := f.nodes.NominatedTo(c.Pod)
	if !ok || c.restricted && !slices.Contains(c.only, i) {
		return nil
	}
	f.forgetVerdicts()
	f.feasible = f.empty()
	f.feasible.Set(i)
	s := firstRefusal(f.onNode, c, i)
	if s == nil {
		s = firstRefusal(f.onPods, c, i)
	}
	if s != nil {
		return nil
	}
	if f.filterCluster(c); !f.feasible.Has(i) || !f.fitsNominated(c, i).OK() {
		return nil
	}
	c.direct, f.left = true, append(f.left[:0], i)
	return &Decision{Slot: i, Node: f.nodes.Name[i], Feasible: 1}
}

// NominatedTo is where a pod waits for room: where the scheduler just sent it or, if it knows of nothing, where its status says.
func (n *Nodes) NominatedTo(p *Pod) (slot int, ok bool) {
	if i, known := n.nominees[p.Object.UID]; known {
		return i, n.Valid.Has(i)
	}
	return n.Lookup(p.Object.Status.NominatedNodeName)
}
