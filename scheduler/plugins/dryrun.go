package plugins

import (
	"slices"

	policyv1 "k8s.io/api/policy/v1"

	"github.com/yare-project/yare/scheduler/framework"
)

// dryRunsKept is how many templates' dry runs are remembered.
const dryRunsKept = 8

// dryRuns remembers who would have to leave each node for pods of one template, for as long as neither the node nor the pods on it change.
type dryRuns struct {
	cursor  framework.Cursor
	budgets []*policyv1.PodDisruptionBudget
	by      []dryRun // by slot
}

// dryRun is how an attempt went; not known if there is neither a candidate nor a refusal.
type dryRun struct {
	found   *candidate
	refusal *framework.Status
}

// remembered is what is known of a template's dry runs, brought up to date; nil if the attempts depend on more than the node and its pods.
func (p *preemption) remembered(c *framework.Cycle, budgets []*policyv1.PodDisruptionBudget) *dryRuns {
	if !c.Local() {
		return nil
	}
	r := c.Memo(DefaultPreemption, c.Profile.Epoch(), func() any { return new(dryRuns) }).(*dryRuns)
	if k := slices.Index(p.recent, r); k < 0 {
		if p.recent = append(p.recent, r); len(p.recent) > dryRunsKept {
			*p.recent[0] = dryRuns{}
			p.recent = slices.Delete(p.recent, 0, 1)
		}
	}
	n := c.Nodes
	if more := n.Slots() - len(r.by); more > 0 {
		r.by = append(r.by, make([]dryRun, more)...)
	}
	known := n.Changed(&r.cursor, func(slot int) { r.by[slot] = dryRun{} })
	if !known || !slices.Equal(r.budgets, budgets) {
		clear(r.by)
		r.budgets = budgets
	}
	return r
}

// attempt is victims, from memory where that is known.
func (r *dryRuns) attempt(c *framework.Cycle, i int, budgets []*policyv1.PodDisruptionBudget) (*candidate, *framework.Status) {
	if r == nil || c.Nodes.WithNominated.Has(i) { // who waits there may mind more than room
		return victims(c, i, budgets)
	}
	d := &r.by[i]
	if d.refusal == nil && d.found == nil {
		d.found, d.refusal = victims(c, i, budgets)
	}
	return d.found, d.refusal
}
