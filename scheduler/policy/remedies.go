package policy

import (
	"fmt"
	"slices"

	"github.com/yare-project/yare/scheduler/framework"
)

// Remedies implements framework.Remedier: which expressions would have to hold of the node.
func (p *plugin) Remedies(c *framework.Cycle, i int, _ *framework.Status) []framework.Remedy {
	about := p.judgements(c.Pod)
	if about == nil || i < 0 {
		return nil
	}
	in := p.book.input(c.Pod, i)
	node := p.book.nodes.Name[i]
	var out []framework.Remedy
	for _, f := range slices.Concat(about.filters, about.busy) {
		refusal := p.book.filter([]filter{f}, in)
		if refusal == nil {
			continue
		}
		do := fmt.Sprintf("node %s such that SchedulingPolicy %s lets it pass (%s)", node, f.policy, f.Text)
		if refusal != f.refusal { // it could not be evaluated
			do = fmt.Sprintf("node %s such that SchedulingPolicy %s can judge it (%s)", node, f.policy, refusal.Message())
		}
		out = append(out, framework.Remedy{Kind: framework.OtherCondition, Plugin: Name, Name: f.policy, Do: do})
	}
	if _, refusal := p.book.score(slices.Concat(about.scores, about.loaded), in); refusal != nil {
		out = append(out, framework.Remedy{Kind: framework.OtherCondition, Plugin: Name, Do: fmt.Sprintf("node %s such that it can be scored (%s)", node, refusal.Message())})
	}
	return out
}
