package plugins

import (
	"cmp"
	"errors"
	"fmt"
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
	if p.percentage < 0 || p.percentage > 100 || p.absolute < 0 || p.percentage == 0 && p.absolute == 0 {
		return nil, fmt.Errorf("arguments of plugin %s: minCandidateNodesPercentage %d and minCandidateNodesAbsolute %d: want 0 to 100 and not negative, not both 0",
			DefaultPreemption, p.percentage, p.absolute)
	}
	return p, nil
}

func (*preemption) Name() string { return DefaultPreemption }

// candidate is a node and who would have to leave it.
type candidate struct {
	slot       int
	victims    []*framework.Pod // the most important first
	violations int              // of budgets
}

// PostFilter implements framework.PostFilterPlugin.
func (p *preemption) PostFilter(c *framework.Cycle, d *framework.Diagnosis) (string, bool, *framework.Status) {
	if why := p.ineligible(c, d); why != "" {
		return "", true, framework.Refuse(framework.Unschedulable, DefaultPreemption, "preemption: "+why)
	}
	candidates, verdicts := p.candidates(c, d)
	if len(candidates) == 0 {
		none := &framework.Diagnosis{Nodes: d.Nodes, Verdicts: verdicts}
		return "", false, framework.Refuse(framework.Unschedulable, DefaultPreemption, "preemption: "+none.Message())
	}
	best := slices.MinFunc(candidates, compare)
	node := c.Nodes.Name[best.slot]
	p.h.Preempt(c.Pod, node, best.victims)
	return node, false, nil
}

// ineligible says why a pod may not preempt others now.
func (p *preemption) ineligible(c *framework.Cycle, d *framework.Diagnosis) string {
	if policy := c.Pod.Object.Spec.PreemptionPolicy; policy != nil && *policy == corev1.PreemptNever {
		return "not eligible due to preemptionPolicy=Never."
	}
	i, ok := c.Nodes.Lookup(c.Pod.Object.Status.NominatedNodeName)
	if !ok || i < len(d.Verdicts) && d.Verdicts[i].Is(framework.Unresolvable) {
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

// candidates tries the nodes where removing pods might help, until there are enough.
func (p *preemption) candidates(c *framework.Cycle, d *framework.Diagnosis) (found []candidate, verdicts []*framework.Status) {
	verdicts = make([]*framework.Status, c.Nodes.Slots())
	var hopeful []int
	for i := range c.Nodes.Valid.All() {
		verdicts[i] = notHelpful
		if d.PreFilter == nil && d.Verdicts[i].Is(framework.Unschedulable) {
			hopeful = append(hopeful, i)
		}
	}
	if len(hopeful) == 0 {
		return nil, verdicts
	}
	var budgets []*policyv1.PodDisruptionBudget
	if p.h.Budgets != nil {
		budgets = p.h.Budgets()
	}
	enough, harmless := max(len(hopeful)*p.percentage/100, p.absolute), 0
	p.turn++
	for k := range hopeful {
		i := hopeful[(k+p.turn)%len(hopeful)]
		one, refusal := victims(c, i, budgets)
		if refusal != nil {
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
	return found, verdicts
}

var noVictims = framework.Refuse(framework.Unresolvable, DefaultPreemption, "No preemption victims found for incoming pod")

// victims finds the least set of pods whose removal from node i makes the pod fit there.
func victims(c *framework.Cycle, i int, budgets []*policyv1.PodDisruptionBudget) (candidate, *framework.Status) {
	var lower []*framework.Pod
	for _, o := range c.Nodes.Pods[i] {
		if o.Priority < c.Pod.Priority {
			lower = append(lower, o)
		}
	}
	if len(lower) == 0 {
		return candidate{}, noVictims
	}
	sim := c.Profile.Simulate(c)
	defer sim.Undo()
	for _, o := range lower {
		sim.Remove(o)
	}
	if s := c.Profile.FitsWithNominated(c, i); !s.OK() {
		return candidate{}, s
	}
	slices.SortStableFunc(lower, importance)
	out := candidate{slot: i}
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
		return candidate{}, notHelpful
	}
	return out, nil
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
			broken = broken || left[k] < 0
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
func compare(a, b candidate) int {
	return cmp.Or(
		cmp.Compare(a.violations, b.violations),
		cmp.Compare(a.victims[0].Priority, b.victims[0].Priority),
		cmp.Compare(sumOfPriorities(a), sumOfPriorities(b)),
		cmp.Compare(len(a.victims), len(b.victims)),
		earliestOfFirst(b).Compare(earliestOfFirst(a)),
	)
}

// sumOfPriorities counts negative priorities as positive, so that more victims are never better than fewer of the same.
func sumOfPriorities(c candidate) (sum int64) {
	for _, v := range c.victims {
		sum += int64(v.Priority) + math.MaxInt32 + 1
	}
	return sum
}

// earliestOfFirst is when the first of the most important victims started.
func earliestOfFirst(c candidate) time.Time {
	first := started(c.victims[0])
	for _, v := range c.victims[1:] {
		if v.Priority == c.victims[0].Priority && started(v).Before(first) {
			first = started(v)
		}
	}
	return first
}
