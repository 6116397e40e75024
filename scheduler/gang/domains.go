package gang

import (
	"cmp"
	"slices"
	"strings"

	"github.com/yare-project/yare/scheduler/framework"
)

// minder is a filter that refuses nodes without room for what a pod requests; without one, room says nothing.
type minder interface {
	// Minds tells whether what is free of a resource on a node counts, rather than being somebody else's business.
	Minds(resource, slot int) bool
}

// domain is a set of nodes that share the value of a label.
type domain struct {
	name     string
	slots    []int32 // of its nodes, in no order; nil stands for all nodes
	short    bool    // there is no room for all members
	spare    float64 // how often their requests fit
	noRoom   bool    // not even for as many as must go
	tooSmall bool    // nor would there be if everybody left
}

// hopeless tells that a domain need not be tried.
func (d *domain) hopeless(preempt bool) bool { return d.noRoom && !preempt || d.tooSmall }

// nodes are the domain's nodes as a set; nil stands for all nodes.
func (d *domain) nodes(n *framework.Nodes) framework.Bits {
	if d.slots == nil {
		return nil
	}
	set := framework.Bits{}.Grow(n.Slots() - 1)
	for _, i := range d.slots {
		set.Set(int(i))
	}
	return set
}

// domains are the sets of nodes that the group may go to, those with the least room to spare first, so that large ones stay free for large groups. One without room for
// all members together comes last. Where pods of the group are placed already, only their domain is left, and none if their nodes lack the label.
func (d *Decider) domains(w *Want) []domain {
	if w.Topology == "" {
		return []domain{{}}
	}
	n := d.Nodes
	label := n.Label(w.Topology)
	for _, p := range w.Placed {
		if i := p.Node(); i >= 0 && n.Valid.Has(i) {
			if label.Value[i] == 0 {
				return nil
			}
			return []domain{{slots: label.Members(label.Value[i])}}
		}
	}
	need := demandOf(w)
	list := need.rooms(n, label)
	for v := range list {
		if members := label.Members(int32(v)); v > 0 && len(members) > 0 {
			list[v].slots = members
			list[v].name = n.Object[members[0]].Labels[w.Topology]
		}
	}
	list = slices.DeleteFunc(list, func(one domain) bool { return one.slots == nil })
	slices.SortFunc(list, func(a, b domain) int {
		if a.short != b.short {
			if b.short {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(a.spare, b.spare), strings.Compare(a.name, b.name))
	})
	return list
}

// demand is what a group asks for: all members, and the least that must go.
type demand struct {
	all, least map[int]int64
	minds      []minder // of the members' profiles
	certain    bool     // no pod goes where it has no room
}

func demandOf(w *Want) demand {
	d := demand{all: map[int]int64{}, least: map[int]int64{framework.PodCount: int64(max(w.Least, 1))}, certain: true}
	each := map[int][]int64{}
	for _, m := range w.Members {
		for _, a := range m.Pod.Requests {
			d.all[a.Resource] += a.Value
			each[a.Resource] = append(each[a.Resource], a.Value)
		}
		d.certain = d.mind(m.Profile) && d.certain
	}
	for r, values := range each {
		slices.Sort(values)
		d.least[r] = 0
		without := len(w.Members) - len(values) // members that ask for none
		for k := range max(w.Least, 1) - without {
			if k < len(values) {
				d.least[r] += values[k]
			}
		}
	}
	return d
}

// mind notes a profile's minder; it answers false if it has none.
func (d *demand) mind(p *framework.Profile) bool {
	for _, f := range p.Filter {
		if m, ok := f.(minder); ok {
			if !slices.Contains(d.minds, m) {
				d.minds = append(d.minds, m)
			}
			return true
		}
	}
	return false
}

// counts tells whether no member goes to a node that has no room for what it asks of a resource.
func (d *demand) counts(resource, slot int) bool {
	for _, m := range d.minds {
		if resource > framework.EphemeralStorage && !m.Minds(resource, slot) {
			return false
		}
	}
	return d.certain
}

// rooms weighs the room of each of a label's values, by number, against the demand.
func (d *demand) rooms(n *framework.Nodes, label *framework.LabelColumn) []domain {
	out := make([]domain, label.Values())
	has, free, open := make([]int64, len(out)), make([]int64, len(out)), make([]bool, len(out))
	for resource, least := range d.least {
		clear(has)
		clear(free)
		clear(open)
		all, used := n.Allocatable[resource], n.Used[resource]
		for i := range n.Valid.All() {
			v := label.Value[i]
			has[v] += all[i]
			free[v] += max(0, all[i]-used[i])
			open[v] = open[v] || !d.counts(resource, i)
		}
		want := d.all[resource]
		for v := range out {
			o := &out[v]
			if want > 0 {
				o.short = o.short || free[v] < want
				o.spare = max(o.spare, float64(free[v])/float64(want))
			}
			if !open[v] {
				o.noRoom, o.tooSmall = o.noRoom || free[v] < least, o.tooSmall || has[v] < least
			}
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
