package gang

import (
	"cmp"
	"maps"
	"slices"

	"github.com/yare-project/yare/scheduler/framework"
)

// fit is the plugin that refuses nodes without room; without it, room says nothing.
const fit = "NodeResourcesFit"

// domain is a set of nodes that share the value of a label.
type domain struct {
	nodes    framework.Bits // nil stands for all nodes
	short    bool           // there is no room for all members
	spare    float64        // how often their requests fit
	noRoom   bool           // not even for as many as must go
	tooSmall bool           // nor would there be if everybody left
}

// hopeless tells that a domain need not be tried.
func (d *domain) hopeless(preempt bool) bool { return d.noRoom && !preempt || d.tooSmall }

// domains are the sets of nodes that the group may go to, those with the least room to spare first, so that large ones stay free for large groups. One without room for
// all members together comes last. Where pods of the group are placed already, only their domain is left, and none if their nodes lack the label.
func (d *Decider) domains(w *Want) []domain {
	if w.Topology == "" {
		return []domain{{}}
	}
	n := d.Nodes
	by := map[string]framework.Bits{}
	for i := range n.Valid.All() {
		if value, ok := n.Object[i].Labels[w.Topology]; ok {
			by[value] = by[value].Grow(n.Slots() - 1)
			by[value].Set(i)
		}
	}
	for _, p := range w.Placed {
		if i := p.Node(); i >= 0 && n.Valid.Has(i) {
			value, ok := n.Object[i].Labels[w.Topology]
			if !ok {
				return nil
			}
			return []domain{{nodes: by[value]}}
		}
	}
	need := demandOf(w)
	var list []domain
	for _, name := range slices.Sorted(maps.Keys(by)) {
		list = append(list, need.of(n, by[name]))
	}
	slices.SortStableFunc(list, func(a, b domain) int {
		if a.short != b.short {
			if b.short {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.spare, b.spare)
	})
	return list
}

// demand is what a group asks for: all members, and the least that must go.
type demand struct {
	all, least map[int]int64
	certain    bool // no pod goes where it has no room
}

func demandOf(w *Want) demand {
	d := demand{all: map[int]int64{}, least: map[int]int64{}, certain: true}
	each := map[int][]int64{}
	for _, m := range w.Members {
		for _, a := range m.Pod.Requests {
			d.all[a.Resource] += a.Value
			each[a.Resource] = append(each[a.Resource], a.Value)
		}
		d.certain = d.certain && slices.ContainsFunc(m.Profile.Filter, func(f framework.FilterPlugin) bool { return f.Name() == fit })
	}
	// Other resources may come from devices, or be none of the filter's business.
	for _, r := range []int{framework.CPU, framework.Memory} {
		values := each[r]
		slices.Sort(values)
		without := len(w.Members) - len(values) // members that ask for none
		for k := range max(w.Least, 1) - without {
			if k < len(values) {
				d.least[r] += values[k]
			}
		}
	}
	return d
}

func (d demand) of(n *framework.Nodes, in framework.Bits) domain {
	out := domain{nodes: in}
	for resource, want := range d.all {
		var has, free int64
		for i := range in.All() {
			has += n.Allocatable[resource][i]
			free += max(0, n.Allocatable[resource][i]-n.Used[resource][i])
		}
		out.short = out.short || free < want
		if want > 0 {
			out.spare = max(out.spare, float64(free)/float64(want))
		}
		if least := d.least[resource]; d.certain {
			out.noRoom, out.tooSmall = out.noRoom || free < least, out.tooSmall || has < least
		}
	}
	return out
}

// inOrder is the members' own order.
func inOrder(w *Want) []int {
	out := make([]int, len(w.Members))
	for i := range out {
		out[i] = i
	}
	return out
}

// largestFirst orders the members by the largest share of all there is of a resource that they ask for; nil if they all ask for the same.
func largestFirst(n *framework.Nodes, w *Want) []int {
	alike := true
	for _, m := range w.Members[1:] {
		alike = alike && slices.Equal(m.Pod.Requests, w.Members[0].Pod.Requests)
	}
	if alike {
		return nil
	}
	there := map[int]float64{}
	share := make([]float64, len(w.Members))
	for i, m := range w.Members {
		for _, a := range m.Pod.Requests {
			all, known := there[a.Resource]
			if !known {
				for slot := range n.Valid.All() {
					all += float64(n.Allocatable[a.Resource][slot])
				}
				there[a.Resource] = all
			}
			if all > 0 {
				share[i] = max(share[i], float64(a.Value)/all)
			}
		}
	}
	out := inOrder(w)
	slices.SortStableFunc(out, func(a, b int) int { return cmp.Compare(share[b], share[a]) })
	return out
}
