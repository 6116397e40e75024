// Package explain says what the smallest change would be that lets a refused pod go.
//
// [Pod] is a function of a finished decision: the cycle, whose nodes it reads, and the diagnosis. It asks the plugins that refused (framework.Remedier) what
// would change their mind, for a bounded number of nodes: of each distinct refusal the nodes with the least missing resources. What it suggests for
// a node is all that keeps the pod from it, not only what the first filter said, so that a suggestion followed is enough as long as nothing else changes.
//
// The same state gives the same explanation. It changes nothing that outlives the call, and belongs to the goroutine that owns the nodes: what it simulates
// it undoes. It is meant for refusals only; [Cache] keeps the last explanation of each class of pods, so that a thousand identical pods cost one.
package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/yare-project/yare/scheduler/framework"
)

// Bounds of the work for one explanation.
const (
	perRefusal = 4  // nodes that are looked at for each distinct refusal
	mostNodes  = 32 // nodes that are looked at in all
	mostTold   = 3  // suggestions that are kept
)

// Change is what would let the pod onto a node: all of the remedies together. Node is empty if they concern the pod wherever it goes.
type Change struct {
	Node     string             `json:"node,omitempty"`
	Remedies []framework.Remedy `json:"remedies"`
}

// String is the change in words.
func (c Change) String() string {
	var parts []string
	for _, r := range c.Remedies {
		if !slices.Contains(parts, r.Do) {
			parts = append(parts, r.Do)
		}
	}
	return strings.Join(parts, " and ")
}

// Message puts changes behind what a diagnosis says; empty if there are none.
func Message(changes []Change) string {
	if len(changes) == 0 {
		return ""
	}
	var parts []string
	for _, c := range changes {
		parts = append(parts, c.String())
	}
	return "smallest change: " + strings.Join(parts, "; or ") + "."
}

// Pod ranks the changes that would let c's pod go, the smallest first: fewest remedies, then the order of their kinds, then how large they are beside
// the node, then the node's name. Of changes of the same kind only the smallest is kept. Empty if no change is known.
func Pod(c *framework.Cycle, d *framework.Diagnosis) []Change {
	if d.PreFilter != nil {
		return whole(c, d.PreFilter)
	}
	var all []Change
	for _, i := range candidates(c, d) {
		obstacles := c.Profile.Obstacles(c, i)
		if one, ok := onNode(c, i, obstacles); ok {
			all = append(all, one)
		}
		if one, ok := byPriority(c, i, obstacles); ok {
			all = append(all, one)
		}
	}
	slices.SortFunc(all, compare)
	return distinct(all)
}

// whole explains a pod that a PreFilter plugin refused.
func whole(c *framework.Cycle, s *framework.Status) []Change {
	for _, p := range c.Profile.PreFilter {
		if r, ok := p.(framework.Remedier); ok && p.Name() == s.Plugin {
			if remedies := r.Remedies(c, -1, s); len(remedies) > 0 {
				return []Change{{Remedies: remedies}}
			}
		}
	}
	return nil
}

// candidates are the nodes worth a closer look.
func candidates(c *framework.Cycle, d *framework.Diagnosis) []int {
	type near struct {
		slot    int
		missing float64
	}
	n := c.Nodes
	missing := shortage(c)
	nearer := func(a, b near) int {
		if a.missing != b.missing {
			return cmp.Compare(a.missing, b.missing)
		}
		return strings.Compare(n.Name[a.slot], n.Name[b.slot])
	}
	groups := map[*framework.Status][]near{}
	var order []*framework.Status
	for i := range n.Valid.All() {
		if i >= len(d.Verdicts) || d.Verdicts[i] == nil {
			continue
		}
		s := d.Verdicts[i]
		best, met := groups[s]
		if !met {
			order = append(order, s)
		}
		at := near{i, missing(i)}
		if len(best) == perRefusal && nearer(best[perRefusal-1], at) < 0 {
			continue
		}
		k, _ := slices.BinarySearchFunc(best, at, nearer)
		best = slices.Insert(best, k, at)
		groups[s] = best[:min(len(best), perRefusal)]
	}
	var out []int
	for k := 0; k < perRefusal; k++ { // the best of each refusal before the second best of any
		for _, s := range order {
			if k < len(groups[s]) && len(out) < mostNodes {
				out = append(out, groups[s][k].slot)
			}
		}
	}
	return out
}

// shortage makes the function of how much of its requests a node lacks for the pod, as a part of the node.
func shortage(c *framework.Cycle) func(node int) float64 {
	type column struct {
		wanted    int64
		all, used []int64
	}
	var columns []column
	for _, a := range c.Pod.Requests {
		columns = append(columns, column{a.Value, c.Nodes.Allocatable[a.Resource], c.Nodes.Used[a.Resource]})
	}
	return func(i int) (sum float64) {
		for _, r := range columns {
			if lacks := r.wanted - (r.all[i] - r.used[i]); lacks > 0 {
				sum += float64(lacks) / float64(max(r.all[i], 1))
			}
		}
		return sum
	}
}

// onNode is what would let the pod onto node i as the pods there are.
func onNode(c *framework.Cycle, i int, obstacles []framework.Obstacle) (Change, bool) {
	out := Change{Node: c.Nodes.Name[i]}
	for _, o := range obstacles {
		r, ok := o.Plugin.(framework.Remedier)
		if !ok {
			out.Remedies = append(out.Remedies, framework.Remedy{Kind: framework.OtherCondition, Plugin: o.Plugin.Name(),
				Do: fmt.Sprintf("what plugin %s asks of node %s (%s)", o.Plugin.Name(), c.Nodes.Name[i], o.Status.Message())})
			continue
		}
		remedies := r.Remedies(c, i, o.Status)
		if len(remedies) == 0 {
			return out, false // nothing helps on this node
		}
		for _, m := range remedies {
			if !slices.ContainsFunc(out.Remedies, func(has framework.Remedy) bool { return has.Do == m.Do }) {
				out.Remedies = append(out.Remedies, m)
			}
		}
	}
	return out, len(out.Remedies) > 0
}

// highest is the highest priority that users may give.
const highest = 1_000_000_000

// byPriority is the priority above which preemption would make room on node i.
func byPriority(c *framework.Cycle, i int, obstacles []framework.Obstacle) (Change, bool) {
	for _, o := range obstacles {
		if !o.Status.Is(framework.Unschedulable) {
			return Change{}, false
		}
	}
	var others []*framework.Pod
	for _, o := range c.Nodes.Pods[i] {
		if o.Priority < highest {
			others = append(others, o)
		}
	}
	slices.SortStableFunc(others, func(a, b *framework.Pod) int {
		return cmp.Or(cmp.Compare(a.Priority, b.Priority), strings.Compare(a.Key().String(), b.Key().String()))
	})
	sim := c.Profile.Simulate(c)
	defer sim.Undo()
	var gone []*framework.Pod
	for k := 0; k < len(others); {
		level := others[k].Priority
		for ; k < len(others) && others[k].Priority == level; k++ {
			sim.Remove(others[k])
			gone = append(gone, others[k])
		}
		if c.Profile.FitsWithNominated(c, i).OK() {
			return preempting(c, i, level, spare(c, i, sim, gone))
		}
	}
	return Change{}, false
}

// spare puts back those that need not go, the most important first.
func spare(c *framework.Cycle, i int, sim *framework.Simulation, gone []*framework.Pod) (victims []*framework.Pod) {
	for k := len(gone) - 1; k >= 0; k-- {
		sim.Add(gone[k], i)
		if !c.Profile.FitsWithNominated(c, i).OK() {
			sim.Remove(gone[k])
			victims = append(victims, gone[k])
		}
	}
	return victims
}

func preempting(c *framework.Cycle, i int, level int32, victims []*framework.Pod) (Change, bool) {
	m := framework.Remedy{Kind: framework.MorePriority, Amount: int64(level), Part: float64(level)}
	var list []string
	for _, v := range victims {
		m.Pods = append(m.Pods, v.Key())
		list = append(list, v.Key().String())
	}
	if len(list) == 0 {
		return Change{}, false
	}
	if len(list) > 2 {
		list = append(list[:2:2], fmt.Sprintf("%d more", len(m.Pods)-2))
	}
	whom := fmt.Sprintf("to preempt %s on node %s", strings.Join(list, ", "), c.Nodes.Name[i])
	never := c.Pod.Object.Spec.PreemptionPolicy != nil && *c.Pod.Object.Spec.PreemptionPolicy == corev1.PreemptNever
	switch {
	case level >= c.Pod.Priority && never:
		m.Do = fmt.Sprintf("a priority above %d that may preempt, %s", level, whom)
	case level >= c.Pod.Priority:
		m.Do = fmt.Sprintf("a priority above %d (it has %d), %s", level, c.Pod.Priority, whom)
	case never:
		m.Do = "preemptionPolicy PreemptLowerPriority, " + whom
	default:
		return Change{}, false // preemption does that by itself
	}
	return Change{Node: c.Nodes.Name[i], Remedies: []framework.Remedy{m}}, true
}

func compare(a, b Change) int {
	if d := cmp.Compare(len(a.Remedies), len(b.Remedies)); d != 0 {
		return d
	}
	var partA, partB float64
	rankA, rankB := 0, 0
	for k := range a.Remedies {
		rankA, rankB = rankA+a.Remedies[k].Kind.Rank(), rankB+b.Remedies[k].Kind.Rank()
		partA, partB = partA+a.Remedies[k].Part, partB+b.Remedies[k].Part
	}
	return cmp.Or(cmp.Compare(rankA, rankB), cmp.Compare(partA, partB), strings.Compare(a.Node, b.Node), strings.Compare(a.String(), b.String()))
}

// distinct keeps the smallest change of each sort. One that does all that a smaller one does, and more, helps nobody.
func distinct(ranked []Change) []Change {
	var out []Change
	seen := map[string]bool{}
	for _, c := range ranked {
		sort := sortOf(c)
		if seen[sort] || len(out) == mostTold || len(c.Remedies) > 1 && len(out) > 0 && len(c.Remedies) > len(out[0].Remedies)+1 {
			continue
		}
		seen[sort] = true
		out = append(out, c)
	}
	return out
}

func sortOf(c Change) string {
	var kinds []string
	for _, r := range c.Remedies {
		k := string(r.Kind)
		if r.Taint != nil {
			k += r.Taint.ToString()
		}
		kinds = append(kinds, k)
	}
	slices.Sort(kinds)
	return strings.Join(slices.Compact(kinds), "+")
}
