package scheduler

import (
	"cmp"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/yare-project/yare/scheduler/framework"
)

// topologyDomains are the sets of nodes that share a value of the label, those with the least room to spare first, so that large ones stay free for large groups.
// A domain without room for all of members' requests together comes last. Where pods of the group are placed already, only their domain is left.
func topologyDomains(n *framework.Nodes, key string, placed map[types.UID]*framework.Pod, members []*item) []framework.Bits {
	by := map[string]framework.Bits{}
	for i := range n.Valid.All() {
		if value, ok := n.Object[i].Labels[key]; ok {
			by[value] = by[value].Grow(n.Slots() - 1)
			by[value].Set(i)
		}
	}
	for _, p := range placed {
		if i := p.Node(); i >= 0 && n.Valid.Has(i) {
			value, ok := n.Object[i].Labels[key]
			if !ok {
				return nil
			}
			return []framework.Bits{by[value]}
		}
	}
	want := map[int]int64{}
	for _, it := range members {
		for _, a := range it.pod.Requests {
			want[a.Resource] += a.Value
		}
	}
	type domain struct {
		name  string
		in    framework.Bits
		short bool
		spare float64
	}
	var list []domain
	for _, name := range slices.Sorted(maps.Keys(by)) {
		d := domain{name: name, in: by[name]}
		for resource, value := range want {
			var free int64
			for i := range d.in.All() {
				free += n.Allocatable[resource][i] - n.Used[resource][i]
			}
			d.short = d.short || free < value
			if value > 0 {
				d.spare = max(d.spare, float64(free)/float64(value))
			}
		}
		list = append(list, d)
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
	out := make([]framework.Bits, 0, len(list))
	for _, d := range list {
		out = append(out, d.in)
	}
	return out
}
