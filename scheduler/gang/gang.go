// Package gang decides where the pods of a group go, all in one decision: enough of them find a place at once, or none is taken (KEP-4671, KEP-5732, KEP-5710).
//
// The pods are placed one by one in the nodes' state itself, each by its profile and where the earlier ones leave it room, and all are taken back unless enough of
// them found a place; so two groups never hold half of what both need. Who would have to leave for a group is worked out the same way, before anybody is told to.
// After Decide the state is as before, unless the plan is Settled.
//
// It belongs to the goroutine that owns the nodes' state, and tells nobody of anything: what a plan means is for the caller to carry out. Pods for which one order
// of placing leaves no room are tried once more, the largest first; other orders are not tried, so pods of different shapes may be refused though they would fit.
package gang

import (
	"fmt"
	"slices"

	"github.com/yare-project/yare/scheduler/framework"
)

// Member is a pod that has no node yet, and what decides about it.
type Member struct {
	Pod     *framework.Pod
	Profile *framework.Profile
}

// Want is a group to be placed.
type Want struct {
	Members []Member // in the order in which they are placed
	// Least is how many of them must find a place at once; below 1 counts as 1.
	Least int
	// Topology is the label whose value all nodes of the group must share; empty if they need not.
	Topology string
	// Placed are the group's pods that have nodes: their domain is the group's.
	Placed []*framework.Pod
	// Preempt tells whether pods of lower priority may be made to leave.
	Preempt bool
	// Final tells that no more is asked: a member about which there is a question is refused.
	Final bool
}

// Placement is a member on a node.
type Placement struct {
	Member  int // its index in Want.Members
	Cycle   *framework.Cycle
	Node    string
	Victims []*framework.Pod // who must leave the node first
}

// Plan is what was found.
type Plan struct {
	Placements []Placement
	// Settled tells that enough found a place without victims, and that they are counted on their nodes, with all that their plugins reserve.
	Settled bool
	// Open tells that there is something to ask before anything is decided; the plan then says nothing else.
	Open    bool
	Plugins []string // all who refused a member
	// Message says why a member found no place, for its user; Refused is that member's index, below 0 if none was refused.
	Message string
	Refused int

	least int
	why   *framework.Diagnosis
}

// Enough tells whether as many members found a place as must, perhaps after others have left.
func (p *Plan) Enough() bool { return len(p.Placements) > 0 && len(p.Placements) >= p.least }

// Victims are all who must leave.
func (p *Plan) Victims() []*framework.Pod {
	var out []*framework.Pod
	for k := range p.Placements {
		out = append(out, p.Placements[k].Victims...)
	}
	return out
}

// better prefers a plan that is enough, then fewer victims, then more pods placed.
func (p *Plan) better(o *Plan) bool {
	if o == nil || p.Enough() != o.Enough() {
		return o == nil || p.Enough()
	}
	if a, b := len(p.Victims()), len(o.Victims()); p.Enough() && a != b {
		return a < b
	}
	return len(p.Placements) > len(o.Placements)
}

// Decider decides about groups.
type Decider struct {
	Nodes *framework.Nodes
	// Ask makes decisions about pods of whom somebody outside must be asked; nil where there is nobody.
	Ask Asker
	// Explain turns a refusal into words, while the state is that of the plan; nil means the profile's own words.
	Explain func(member int, c *framework.Cycle, why *framework.Diagnosis, message string) string

	underway *Plan
	domain   framework.Bits
}

// Asker knows what was answered about pods, and collects what is to be asked.
type Asker interface {
	// Follow has a decision follow the answer about its pod, if there is one.
	Follow(c *framework.Cycle)
	// Open tells whether a decision ended with a question, and keeps it.
	Open(c *framework.Cycle) bool
	// Suppose has a decision go on as if the answer were favourable.
	Suppose(c *framework.Cycle)
}

// Domain are the nodes that the pods under decision must stay on; nil means that they may go anywhere.
func (d *Decider) Domain() framework.Bits { return d.domain }

// Victims are who leaves in the plan under decision: PodDisruptionBudgets must count them.
func (d *Decider) Victims() []*framework.Pod {
	if d.underway == nil {
		return nil
	}
	return d.underway.Victims()
}

// mostChoices is how many domains in which a group would fit after preemption are compared.
const mostChoices = 8

// Decide finds the best plan: where all members fit as things are, else where enough of them do, else where that would be so if the fewest others left. The error is
// of a plugin that failed.
func (d *Decider) Decide(w *Want) (*Plan, error) {
	defer func() { d.domain = nil }()
	domains := d.domains(w)
	if len(domains) == 0 {
		return &Plan{Refused: -1, least: w.Least, Message: fmt.Sprintf("no node has the label %s that its pod group must share", w.Topology)}, nil
	}
	best, in, err := d.search(w, domains)
	if err != nil || best.Settled || best.Open {
		return best, err
	}
	d.domain = in
	return best, d.finish(w, best)
}

// search tries domain after domain, at first without anybody leaving, in the order of the members and, if they are of different sizes, the largest first.
func (d *Decider) search(w *Want, domains []domain) (best *Plan, in framework.Bits, err error) {
	hope := newHope(d, w)
	for _, preempt := range []bool{false, true} {
		for k, order := range [][]int{inOrder(w), nil} {
			if k == 1 {
				if order = largestFirst(d.Nodes, w); order == nil {
					break
				}
			}
			choices := 0
			var open *Plan
			for i := range domains {
				if domains[i].hopeless(preempt) && (best != nil || i < len(domains)-1) {
					continue
				}
				if best != nil && hope.barren(&domains[i], order, preempt) {
					continue
				}
				d.domain = domains[i].nodes(d.Nodes)
				p, err := d.try(w, order, preempt)
				if err != nil {
					return nil, nil, err
				}
				if p.Settled {
					return p, d.domain, nil
				}
				if p.Open {
					open = p
					continue
				}
				if p.better(best) {
					best, in = p, d.domain
				}
				if choices += len(p.Placements) / len(w.Members); choices >= mostChoices {
					break
				}
			}
			if open != nil {
				return open, nil, nil
			}
			if best.Enough() {
				return best, in, nil
			}
		}
		if !w.Preempt {
			break
		}
	}
	return best, in, nil
}

// try places the members in this order, as long as enough of them can still find a place, and takes them back unless all found one without victims.
func (d *Decider) try(w *Want, order []int, preempt bool) (*Plan, error) {
	p := &Plan{Refused: -1, least: w.Least}
	d.underway = p
	defer func() { d.underway = nil }()
	for k, i := range order {
		if len(p.Placements)+len(order)-k < p.least {
			break
		}
		if err := d.place(w, p, i, preempt); err != nil {
			d.undo(w, p)
			return nil, err
		}
	}
	if p.Settled = len(p.Placements) == len(order) && p.Enough() && len(p.Victims()) == 0 && !p.Open; !p.Settled {
		d.undo(w, p)
	}
	return p, nil
}

// place puts a member on its best node.
func (d *Decider) place(w *Want, p *Plan, i int, preempt bool) error {
	m := w.Members[i]
	to, c, why, err := d.judge(m)
	if err == nil && d.Ask != nil && d.Ask.Open(c) && !w.Final {
		p.Open = true
		c = m.Profile.Begin(m.Pod)
		d.Ask.Suppose(c)
		to, why, err = m.Profile.Decide(c)
	}
	if err != nil {
		return err
	}
	at := Placement{Member: i, Cycle: c}
	switch {
	case to != nil:
		at.Node = to.Node
	case preempt && !p.Open && d.makeRoom(m, &at, why):
	default:
		p.refuse(i, why)
		return nil
	}
	status := d.put(m, at)
	if status.OK() {
		p.Placements = append(p.Placements, at)
		return nil
	}
	if status.Is(framework.Failed) {
		return fmt.Errorf("reserve on node %s: %w", at.Node, status.Err)
	}
	p.refuse(i, &framework.Diagnosis{Nodes: 1, Verdicts: []*framework.Status{status}, Plugins: []string{status.Plugin}})
	return nil
}

// judge asks a member's profile, with the answer from outside if there is one.
func (d *Decider) judge(m Member) (*framework.Decision, *framework.Cycle, *framework.Diagnosis, error) {
	c := m.Profile.Begin(m.Pod)
	if d.Ask != nil {
		d.Ask.Follow(c)
	}
	to, why, err := m.Profile.Decide(c)
	return to, c, why, err
}

// put counts a member on its node, without the victims; if its plugins can't reserve what it needs it takes that back.
func (d *Decider) put(m Member, at Placement) *framework.Status {
	for _, v := range at.Victims {
		d.Nodes.RemovePod(v)
	}
	d.Nodes.AddPod(m.Pod, at.Node)
	for _, r := range m.Profile.Reserve {
		if status := r.Reserve(at.Cycle, at.Node); !status.OK() {
			d.take(m, at)
			return status
		}
	}
	return nil
}

// take undoes put.
func (d *Decider) take(m Member, at Placement) {
	for k := len(m.Profile.Reserve) - 1; k >= 0; k-- {
		m.Profile.Reserve[k].Unreserve(at.Cycle, at.Node)
	}
	d.Nodes.RemovePod(m.Pod)
	for _, v := range at.Victims {
		d.Nodes.AddPod(v, at.Node)
	}
}

// undo takes all placements back; the plan still tells them.
func (d *Decider) undo(w *Want, p *Plan) {
	for k := len(p.Placements) - 1; k >= 0; k-- {
		d.take(w.Members[p.Placements[k].Member], p.Placements[k])
	}
}

// redo takes all placements again.
func (d *Decider) redo(w *Want, p *Plan) error {
	for k, at := range p.Placements {
		if status := d.put(w.Members[at.Member], at); !status.OK() {
			d.undo(w, &Plan{Placements: p.Placements[:k]})
			return fmt.Errorf("reserve what was free a moment ago on node %s: %s", at.Node, status.Message())
		}
	}
	return nil
}

// finish has a plan explained in its own state, and leaves it in force if nobody must leave for it.
func (d *Decider) finish(w *Want, p *Plan) error {
	if err := d.redo(w, p); err != nil {
		return err
	}
	d.underway = p
	d.explain(w, p)
	d.underway = nil
	if p.Settled = p.Enough() && len(p.Victims()) == 0; !p.Settled {
		d.undo(w, p)
	}
	return nil
}

// explain words why a member was refused.
func (d *Decider) explain(w *Want, p *Plan) {
	if p.Refused < 0 {
		return
	}
	p.Message = words(p.why)
	if d.Explain == nil {
		return
	}
	if to, c, why, err := d.judge(w.Members[p.Refused]); to == nil && err == nil {
		p.Message = d.Explain(p.Refused, c, why, words(why))
	}
}

func words(why *framework.Diagnosis) string {
	if why.Nodes == 0 && why.PreFilter == nil {
		return "no nodes available to schedule pods"
	}
	return why.Message()
}

func (p *Plan) refuse(i int, why *framework.Diagnosis) {
	for _, name := range why.Plugins {
		if !slices.Contains(p.Plugins, name) {
			p.Plugins = append(p.Plugins, name)
		}
	}
	if p.Refused < 0 {
		p.Refused, p.why = i, why
	}
}

// makeRoom finds pods of lower priority whose leaving would let a member go.
func (d *Decider) makeRoom(m Member, at *Placement, why *framework.Diagnosis) bool {
	for _, post := range m.Profile.PostFilter {
		chooser, ok := post.(framework.VictimChooser)
		if !ok {
			continue
		}
		choice, status := chooser.Choose(at.Cycle, why)
		if !status.OK() {
			continue
		}
		at.Node, at.Victims = choice.Node, d.present(choice)
		return true
	}
	return false
}

// present are a choice's victims as they are on the node now: a chooser may remember an earlier state of them.
func (d *Decider) present(choice framework.Choice) []*framework.Pod {
	i, ok := d.Nodes.Slot(choice.Node)
	if !ok {
		return nil
	}
	var out []*framework.Pod
	for _, v := range choice.Victims {
		if k := slices.IndexFunc(d.Nodes.Pods[i], func(p *framework.Pod) bool { return p.Object.UID == v.Object.UID }); k >= 0 {
			out = append(out, d.Nodes.Pods[i][k])
		}
	}
	return out
}
