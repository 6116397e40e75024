package plugins

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/yare-project/yare/scheduler/framework"
)

// Remedies says of which driver's volumes there are too many.
func (p *volumeLimits) Remedies(c *framework.Cycle, i int, _ *framework.Status) []framework.Remedy {
	if i < 0 {
		return diskRemedies(c.Pod)
	}
	wants, ok := c.Get(NodeVolumeLimits).(attachable)
	if !ok {
		return nil
	}
	node := c.Nodes.Name[i]
	has := attachable{}
	for _, o := range c.Nodes.Pods[i] {
		p.of(o, has)
	}
	p.attached(node, has)
	count, more := map[string]int32{}, map[string]int32{}
	for _, driver := range has {
		count[driver]++
	}
	for id, driver := range wants {
		if _, shared := has[id]; !shared {
			more[driver]++
		}
	}
	limits := p.limits(node)
	var out []framework.Remedy
	for _, driver := range slices.Sorted(maps.Keys(more)) {
		limit, limited := limits[driver]
		over := count[driver] + more[driver] - limit
		if !limited || over <= 0 {
			continue
		}
		word := "volumes"
		if over == 1 {
			word = "volume"
		}
		out = append(out, framework.Remedy{Kind: framework.Storage, Plugin: NodeVolumeLimits, Name: driver, Amount: int64(over), Part: float64(over) / float64(max(limit, 1)),
			Do: fmt.Sprintf("room for %d more %s of driver %s on node %s (%d of %d attached)", over, word, driver, node, count[driver], limit)})
	}
	return out
}

// Remedies says where the pod's volumes are, and where the node is; of claims, what they lack.
func (p *volumeZone) Remedies(c *framework.Cycle, i int, refusal *framework.Status) []framework.Remedy {
	if i < 0 {
		if out := missing(p.h, c.Pod); len(out) > 0 {
			return out
		}
		return []framework.Remedy{{Kind: framework.Storage, Plugin: VolumeZone, Do: "an end to this: " + refusal.Message()}}
	}
	rules, _ := c.Get(VolumeZone).([]zoneRule)
	node := c.Nodes.Object[i].Labels
	var out []framework.Remedy
	for _, r := range rules {
		value, ok := node[r.old]
		if !ok {
			value, ok = node[r.key]
		}
		if ok && slices.Contains(r.values, value) {
			continue
		}
		is := "has no such label"
		if ok {
			is = "is in " + value
		}
		out = append(out, framework.Remedy{Kind: framework.Storage, Plugin: VolumeZone, Key: r.key, Values: r.values,
			Do: fmt.Sprintf("the pod's volume, or a copy of it, where node %s reaches it (the volume is in %s=%s, the node %s)", c.Nodes.Name[i], r.key, strings.Join(r.values, " or "), is)})
	}
	slices.SortFunc(out, func(a, b framework.Remedy) int { return strings.Compare(a.Do, b.Do) })
	return out
}
