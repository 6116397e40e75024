package plugins

import (
	"cmp"
	"errors"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/yare-project/yare/scheduler/framework"
)

// DefaultPreemption is the plugin's name.
const DefaultPreemption = "DefaultPreemption"

// preemption makes room for a pod that fits nowhere by removing pods of lower priority from one node: as few and as unimportant ones as possible, and
// against PodDisruptionBudgets only where nothing else helps.
type preemption struct {
	h          *framework.Handle
	percentage int // of the nodes in question that are looked at
	absolute   int // and how many at least
	turn       int // where the search starts, so that not always the same nodes are looked at
	recent     []*dryRuns
	hopeful    []int // memory for candidates
	found      []*candidate
}

type preemptionArgs struct {
	metav1.TypeMeta             `json:",inline"`
	MinCandidateNodesPercentage *int32 `json:"minCandidateNodesPercentage,omitempty"`
	MinCandidateNodesAbsolute   *int32 `json:"minCandidateNodesAbsolute,omitempty"`
}

func newPreemption(raw []byte, h *framework.Handle) (framework.Plugin, error) {
	var args preemptionArgs
	if err := decode(raw, DefaultPreemption, &args); err != nil {
		return nil, err
	}
	if h.Preempt == nil {
		return nil, errors.New("plugin " + DefaultPreemption + " needs Handle.Preempt")
	}
	p := &preemption{h: h, percentage: 10, absolute: 100}
	if v := args.MinCandidateNodesPercentage; v != nil {
		p.percentage = int(*v)
	}
	if v := args.MinCandidateNodesAbsolute; v != nil {
		p.absolute = int(*v)
	}
	return p, invalid(DefaultPreemption, args.check(int64(p.percentage), int64(p.absolute)))
}

func (*preemption) Name() string { return DefaultPreemption }

// candidate is a node and who would have to leave it.
type candidate struct {
	slot       int
	victims    []*framework.Pod // the most important first
	violations int              // of budgets

	sum      int64     // of priorities
	earliest time.Time // when the first of the most important started
}

// weighed is a candidate with what it is compared by.
func weighed(c *candidate) *candidate {
	c.sum, c.earliest = sumOfPriorities(c), earliestOfFirst(c)
	return c
}

// PostFilter implements framework.PostFilterPlugin.
func (p *preemption) PostFilter(c *framework.Cycle, d *framework.Diagnosis) (string, bool, *framework.Status) {
	if why := p.ineligible(c, d); why != "" {
		return "", true, framework.Refuse(framework.Unschedulable, DefaultPreemption, "preemption: "+why)
	}
	candidates, verdicts := p.candidates(c, d)
	if len(candidates) == 0 {
		none := &framework.Diagnosis{Nodes: d.Nodes, Verdicts: completed(c.Nodes, verdicts)}
		return "", false, framework.Refuse(framework.Unschedulable, DefaultPreemption, "preemption: "+none.Message())
	}
	if p.h.Approve != nil && p.h.Approve(c.Pod, choices(c.Nodes, candidates)) {
		return "", true, framework.Refuse(framework.Unschedulable, DefaultPreemption, "preemption: extenders are being asked who may leave.")
	}
	best := slices.MinFunc(candidates, compare)
	node := c.Nodes.Name[best.slot]
	p.h.Preempt(c.Pod, node, best.victims)
	return node, false, nil
}

func choices(n *framework.Nodes, in []*candidate) []framework.Choice {
	out := make([]framework.Choice, 0, len(in))
	for _, c := range in {
		out = append(out, framework.Choice{Node: n.Name[c.slot], Victims: c.victims, Violations: c.violations})
	}
	return out
}

// LeastHarm is the choice that preemption prefers; each must have victims.
func LeastHarm(list []framework.Choice) framework.Choice {
	for _, c := range list {
		slices.SortStableFunc(c.Victims, importance)
	}
	return slices.MinFunc(list, func(a, b framework.Choice) int {
		return compare(weighed(&candidate{victims: a.Victims, violations: a.Violations}), weighed(&candidate{victims: b.Victims, violations: b.Violations}))
	})
}

// Choose implements framework.VictimChooser.
func (p *preemption) Choose(c *framework.Cycle, d *framework.Diagnosis) (framework.Choice, *framework.Status) {
	if why := p.ineligible(c, d); why != "" {
		return framework.Choice{}, framework.Refuse(framework.Unschedulable, DefaultPreemption, "preemption: "+why)
	}
	candidates, _ := p.candidates(c, d)
	if len(candidates) == 0 {
		return framework.Choice{}, framework.Refuse(framework.Unschedulable, DefaultPreemption, "preemption: no victims make room")
	}
	best := slices.MinFunc(candidates, compare)
	return framework.Choice{Node: c.Nodes.Name[best.slot], Victims: best.victims, Violations: best.violations}, nil
}

// Charge is budgets after victims have left.
func Charge(budgets []*policyv1.PodDisruptionBudget, victims []*framework.Pod) []*policyv1.PodDisruptionBudget {
	out := slices.Clone(budgets)
	for k, b := range out {
		selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
		if err != nil || selector.Empty() {
			continue
		}
		for _, v := range victims {
			if v.Object.Namespace != b.Namespace || !selector.Matches(labels.Set(v.Object.Labels)) {
				continue
			}
			if out[k] == b {
				out[k] = b.DeepCopy()
			}
			out[k].Status.DisruptionsAllowed--
		}
	}
	return out
}

// ineligible says why a pod may not preempt others now.
func (p *preemption) ineligible(c *framework.Cycle, d *framework.Diagnosis) string {
	if policy := c.Pod.Object.Spec.PreemptionPolicy; policy != nil && *policy == corev1.PreemptNever {
		return "not eligible due to preemptionPolicy=Never."
	}
	i, ok := c.Nodes.NominatedTo(c.Pod)
	if !ok || d.PreFilter.Is(framework.Unresolvable) || i < len(d.Verdicts) && d.Verdicts[i].Is(framework.Unresolvable) {
		return ""
	}
	for _, o := range c.Nodes.Pods[i] {
		if o.Priority < c.Pod.Priority && leaves(o.Object) {
			return "not eligible due to a terminating pod on the nominated node."
		}
	}
	return ""
}

// leaves tells whether the scheduler made a pod leave.
func leaves(o *corev1.Pod) bool {
	if o.DeletionTimestamp == nil {
		return false
	}
	for _, c := range o.Status.Conditions {
		if c.Type == corev1.DisruptionTarget {
			return c.Status == corev1.ConditionTrue && c.Reason == corev1.PodReasonPreemptionByScheduler
		}
	}
	return false
}

var notHelpful = framework.Refuse(framework.Unresolvable, DefaultPreemption, "Preemption is not helpful for scheduling")

// candidates tries the nodes where removing pods might help, until there are enough. If there are none, the verdicts say why of those that were tried.
func (p *preemption) candidates(c *framework.Cycle, d *framework.Diagnosis) (found []*candidate, verdicts []*framework.Status) {
	hopeful := p.hopeful[:0]
	within := c.Nodes.Valid
	if p.h.Groups != nil {
		if domain := p.h.Groups.Domain(c.Pod); domain != nil { // elsewhere it may not go, whoever leaves
			within = domain
		}
	}
	for i := range within.All() {
		if d.PreFilter.Is(framework.Unschedulable) || d.PreFilter == nil && d.Verdicts[i].Is(framework.Unschedulable) {
			hopeful = append(hopeful, i)
		}
	}
	p.hopeful = hopeful
	var budgets []*policyv1.PodDisruptionBudget
	if p.h.Budgets != nil {
		budgets = p.h.Budgets()
	}
	enough, harmless := max(len(hopeful)*p.percentage/100, p.absolute), 0
	known := p.remembered(c, budgets)
	found = p.found[:0]
	p.turn++
	for k := range hopeful {
		i := hopeful[(k+p.turn)%len(hopeful)]
		one, refusal := known.attempt(c, i, budgets)
		if refusal != nil {
			if verdicts == nil {
				verdicts = make([]*framework.Status, c.Nodes.Slots())
			}
			verdicts[i] = refusal
			continue
		}
		found = append(found, one)
		if one.violations == 0 {
			harmless++
		}
		if harmless > 0 && len(found) >= enough {
			break
		}
	}
	p.found = found
	return found, verdicts
}

// completed adds the nodes that were not tried.
func completed(n *framework.Nodes, verdicts []*framework.Status) []*framework.Status {
	verdicts = slices.Grow(verdicts, n.Slots())[:n.Slots()]
	for i := range n.Valid.All() {
		if verdicts[i] == nil {
			verdicts[i] = notHelpful
		}
	}
	return verdicts
}

var noVictims = framework.Refuse(framework.Unresolvable, DefaultPreemption, "No preemption victims found for incoming pod")

// victims finds the least set of pods whose removal from node i makes the pod fit there.
func victims(c *framework.Cycle, i int, budgets []*policyv1.PodDisruptionBudget) (*candidate, *framework.Status) {
	var lower []*framework.Pod
	for _, o := range c.Nodes.Pods[i] {
		if o.Priority < c.Pod.Priority {
			lower = append(lower, o)
		}
	}
	if len(lower) == 0 {
		return nil, noVictims
	}
	sim := c.Profile.Simulate(c)
	defer sim.Undo()
	for _, o := range lower {
		sim.Remove(o)
	}
	if s := c.Profile.FitsWithNominated(c, i); !s.OK() {
		return nil, s
	}
	slices.SortStableFunc(lower, importance)
	out := &candidate{slot: i}
	protected, free := splitByBudget(lower, budgets)
	spare := func(list []*framework.Pod) (gone int) {
		for _, o := range list {
			sim.Add(o, i)
			if s := c.Profile.FitsWithNominated(c, i); s.OK() {
				continue
			}
			sim.Remove(o)
			out.victims = append(out.victims, o)
			gone++
		}
		return gone
	}
	out.violations = spare(protected)
	spare(free)
	slices.SortStableFunc(out.victims, importance)
	if len(out.victims) == 0 { // it fits as things are: then it is nominated pods that keep it away
		return nil, notHelpful
	}
	return weighed(out), nil
}

// importance orders pods by falling priority, then those that run longer first.
func importance(a, b *framework.Pod) int {
	if a.Priority != b.Priority {
		return cmp.Compare(b.Priority, a.Priority)
	}
	return started(a).Compare(started(b))
}

func started(p *framework.Pod) time.Time {
	if t := p.Object.Status.StartTime; t != nil {
		return t.Time
	}
	return time.Unix(math.MaxInt32, 0) // it has not started: it loses nothing
}

// splitByBudget tells the pods whose removal would break a budget from the rest.
func splitByBudget(pods []*framework.Pod, budgets []*policyv1.PodDisruptionBudget) (protected, free []*framework.Pod) {
	left := make([]int32, len(budgets))
	selectors := make([]labels.Selector, len(budgets))
	for k, b := range budgets {
		left[k] = b.Status.DisruptionsAllowed
		if s, err := metav1.LabelSelectorAsSelector(b.Spec.Selector); err == nil && !s.Empty() {
			selectors[k] = s
		}
	}
	for _, o := range pods {
		broken := false
		for k, b := range budgets {
			if b.Namespace != o.Object.Namespace || selectors[k] == nil || len(o.Object.Labels) == 0 || !selectors[k].Matches(labels.Set(o.Object.Labels)) {
				continue
			}
			if _, counted := b.Status.DisruptedPods[o.Object.Name]; counted {
				continue
			}
			left[k]--
			if broken = left[k] < 0; broken {
				break
			}
		}
		if broken {
			protected = append(protected, o)
		} else {
			free = append(free, o)
		}
	}
	return protected, free
}

// compare puts the candidate first that does the least harm: fewest broken budgets, then the least important first victim, then the lowest sum of
// priorities, then the fewest victims, then the shortest lost run.
func compare(a, b *candidate) int {
	return cmp.Or(
		cmp.Compare(a.violations, b.violations),
		cmp.Compare(a.victims[0].Priority, b.victims[0].Priority),
		cmp.Compare(a.sum, b.sum),
		cmp.Compare(len(a.victims), len(b.victims)),
		b.earliest.Compare(a.earliest),
	)
}

// sumOfPriorities counts negative priorities as positive, so that more victims are never better than fewer of the same.
func sumOfPriorities(c *candidate) (sum int64) {
	for _, v := range c.victims {
		sum += int64(v.Priority) + math.MaxInt32 + 1
	}
	return sum
}

// earliestOfFirst is when the first of the most important victims started.
func earliestOfFirst(c *candidate) time.Time {
	first := started(c.victims[0])
	for _, v := range c.victims[1:] {
		if v.Priority == c.victims[0].Priority && started(v).Before(first) {
			first = started(v)
		}
	}
	return first
}
