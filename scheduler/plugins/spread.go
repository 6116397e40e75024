package plugins

import (
	"errors"
	"fmt"
	"math"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/yare-project/yare/scheduler/framework"
)

// PodTopologySpread is the plugin's name.
const PodTopologySpread = "PodTopologySpread"

// spread honours spec.topologySpreadConstraints, and by default spreads the pods of one Service or controller over nodes and zones.
type spread struct {
	h        *framework.Handle
	defaults []corev1.TopologySpreadConstraint
	system   bool // the defaults are the built-in ones
}

type spreadArgs struct {
	metav1.TypeMeta    `json:",inline"`
	DefaultConstraints []corev1.TopologySpreadConstraint `json:"defaultConstraints,omitempty"`
	DefaultingType     string                            `json:"defaultingType,omitempty"`
}

var (
	skewed    = framework.Refuse(framework.Unschedulable, PodTopologySpread, "node(s) didn't match pod topology spread constraints")
	unlabeled = framework.Refuse(framework.Unresolvable, PodTopologySpread, "node(s) didn't match pod topology spread constraints (missing required label)")
)

func newSpread(raw []byte, h *framework.Handle) (framework.Plugin, error) {
	args := spreadArgs{DefaultingType: "System"}
	if err := decode(raw, PodTopologySpread, &args); err != nil {
		return nil, err
	}
	p := &spread{h: h}
	switch args.DefaultingType {
	case "System", "":
		if len(args.DefaultConstraints) > 0 {
			return nil, fmt.Errorf("arguments of plugin %s: defaultConstraints are set but defaultingType is System; want List", PodTopologySpread)
		}
		p.system = true
		p.defaults = []corev1.TopologySpreadConstraint{{TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.ScheduleAnyway, MaxSkew: 3},
			{TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.ScheduleAnyway, MaxSkew: 5}}
	case "List":
		p.defaults = args.DefaultConstraints
	default:
		return nil, fmt.Errorf("arguments of plugin %s: defaultingType is %q; want System or List", PodTopologySpread, args.DefaultingType)
	}
	return p, checkDefaults(p.defaults)
}

func checkDefaults(list []corev1.TopologySpreadConstraint) error {
	var errs []error
	for k, c := range list {
		if c.MaxSkew <= 0 || c.TopologyKey == "" || c.LabelSelector != nil || (c.WhenUnsatisfiable != corev1.DoNotSchedule && c.WhenUnsatisfiable != corev1.ScheduleAnyway) {
			errs = append(errs, fmt.Errorf("arguments of plugin %s: defaultConstraints[%d]: want a positive maxSkew, a topologyKey, DoNotSchedule or ScheduleAnyway, and no labelSelector", PodTopologySpread, k))
		}
	}
	return errors.Join(errs...)
}

func (*spread) Name() string                           { return PodTopologySpread }
func (*spread) FilterScope() framework.Scope           { return framework.OnCluster }
func (*spread) ScoreScope() framework.Scope            { return framework.OnCluster }
func (*spread) Normalization() framework.Normalization { return framework.Own }

// constraint is one constraint, parsed.
type constraint struct {
	key        string
	maxSkew    int64
	minDomains int
	selector   labels.Selector
	affinity   bool // only nodes that the pod's node affinity matches count
	taints     bool // only nodes whose taints the pod tolerates count
}

// constraints are those of the pod, or the defaults, that act so when they can't be satisfied.
func (p *spread) constraints(pod *framework.Pod, when corev1.UnsatisfiableConstraintAction) ([]constraint, error) {
	own := pod.Object.Spec.TopologySpreadConstraints
	if len(own) > 0 {
		return parseConstraints(own, pod.Object, when)
	}
	out, err := parseConstraints(p.defaults, pod.Object, when)
	if err != nil || len(out) == 0 || p.h.Siblings == nil {
		return nil, err
	}
	selector := p.h.Siblings(pod.Object)
	if selector == nil || selector.Empty() {
		return nil, nil
	}
	for k := range out {
		out[k].selector = selector
	}
	return out, nil
}

func parseConstraints(in []corev1.TopologySpreadConstraint, pod *corev1.Pod, when corev1.UnsatisfiableConstraintAction) ([]constraint, error) {
	var out []constraint
	for k := range in {
		t := &in[k]
		if t.WhenUnsatisfiable != when {
			continue
		}
		selector, err := metav1.LabelSelectorAsSelector(t.LabelSelector)
		if err != nil {
			return nil, fmt.Errorf("spec.topologySpreadConstraints[%d].labelSelector: %w", k, err)
		}
		for _, key := range t.MatchLabelKeys {
			if v, ok := pod.Labels[key]; ok {
				more, _ := labels.SelectorFromSet(labels.Set{key: v}).Requirements()
				selector = selector.Add(more...)
			}
		}
		c := constraint{key: t.TopologyKey, maxSkew: int64(t.MaxSkew), minDomains: 1, selector: selector, affinity: true}
		if t.MinDomains != nil {
			c.minDomains = int(*t.MinDomains)
		}
		if t.NodeAffinityPolicy != nil {
			c.affinity = *t.NodeAffinityPolicy == corev1.NodeInclusionPolicyHonor
		}
		if t.NodeTaintsPolicy != nil {
			c.taints = *t.NodeTaintsPolicy == corev1.NodeInclusionPolicyHonor
		}
		out = append(out, c)
	}
	return out, nil
}

// includes tells whether a node counts for the constraint.
func (k *constraint) includes(pod *framework.Pod, node *corev1.Node) bool {
	if k.affinity {
		if ok, err := pod.Required().Match(node); !ok || err != nil {
			return false
		}
	}
	return !k.taints || !untolerated(pod.Object, node)
}

// matching counts the pods of each node that the constraint is about; -1 means that the node does not count.
func (k *constraint) matching(c *framework.Cycle) []int32 {
	key := fmt.Sprint(PodTopologySpread, k.affinity, k.taints, k.selector)
	return c.Count(key, func(i int) int32 {
		if !k.includes(c.Pod, c.Nodes.Object[i]) {
			return -1
		}
		if k.selector.Empty() {
			return 0
		}
		return count(c.Nodes.Pods[i], func(o *corev1.Pod) bool { return k.counts(c.Pod, o) })
	})
}

func (k *constraint) counts(pod *framework.Pod, o *corev1.Pod) bool {
	return o.DeletionTimestamp == nil && o.Namespace == pod.Object.Namespace && k.selector.Matches(labels.Set(o.Labels))
}

// domains is what a decision knows about one constraint.
type domains struct {
	constraint
	column *framework.LabelColumn
	count  []int64 // by value
	exists []bool
	self   int64
	least  int64
	stale  bool // least is to be found again
}

func (d *domains) findLeast() {
	d.stale = false
	n := 0
	d.least = math.MaxInt64
	for v, ok := range d.exists {
		if ok {
			n++
			d.least = min(d.least, d.count[v])
		}
	}
	if n < d.minDomains || n == 0 {
		d.least = 0
	}
}

func columns(n *framework.Nodes, list []constraint) []*framework.LabelColumn {
	var out []*framework.LabelColumn
	for _, k := range list {
		out = append(out, n.Label(k.key))
	}
	return out
}

func hasAll(columns []*framework.LabelColumn, i int) bool {
	for _, c := range columns {
		if c.Value[i] == 0 {
			return false
		}
	}
	return true
}

func (p *spread) PreFilter(c *framework.Cycle) *framework.Status {
	list, err := p.constraints(c.Pod, corev1.DoNotSchedule)
	if err != nil {
		return framework.Refuse(framework.Unresolvable, PodTopologySpread, err.Error())
	}
	if len(list) == 0 {
		return skipFilter
	}
	all := columns(c.Nodes, list)
	var state []*domains
	for k, con := range list {
		d := &domains{constraint: con, column: all[k], count: make([]int64, all[k].Values()), exists: make([]bool, all[k].Values()), stale: true}
		if con.selector.Matches(labels.Set(c.Pod.Object.Labels)) {
			d.self = 1
		}
		by := con.matching(c)
		for i := range c.Nodes.Valid.All() {
			if by[i] >= 0 && hasAll(all, i) {
				d.count[d.column.Value[i]] += int64(by[i])
				d.exists[d.column.Value[i]] = true
			}
		}
		state = append(state, d)
	}
	c.Put(PodTopologySpread, state)
	return nil
}

// Shift implements framework.ShiftPlugin.
func (*spread) Shift(c *framework.Cycle, other *framework.Pod, i int, sign int) {
	state, _ := c.Get(PodTopologySpread).([]*domains)
	for _, d := range state {
		if d.column.Value[i] == 0 {
			return // a node without all labels counts for none
		}
	}
	for _, d := range state {
		if d.counts(c.Pod, other.Object) && d.includes(c.Pod, c.Nodes.Object[i]) && !d.selector.Empty() {
			d.count[d.column.Value[i]] += int64(sign)
			d.stale = true
		}
	}
}

func (*spread) Filter(c *framework.Cycle, i int) *framework.Status {
	state, _ := c.Get(PodTopologySpread).([]*domains)
	for _, d := range state {
		v := d.column.Value[i]
		if v == 0 {
			return unlabeled
		}
		if d.stale {
			d.findLeast()
		}
		if d.count[v]+d.self-d.least > d.maxSkew {
			return skewed
		}
	}
	return nil
}

// FilterAll implements framework.BatchFilter.
func (*spread) FilterAll(c *framework.Cycle, in framework.Bits, refuse func(int, *framework.Status)) {
	state, _ := c.Get(PodTopologySpread).([]*domains)
	for _, d := range state {
		if d.stale {
			d.findLeast()
		}
		full := make([]*framework.Status, len(d.count)) // by value of the label
		for v := range full {
			if d.count[v]+d.self-d.least > d.maxSkew {
				full[v] = skewed
			}
		}
		full[0] = unlabeled
		for i := range in.All() {
			if s := full[d.column.Value[i]]; s != nil {
				refuse(i, s)
			}
		}
	}
}

const spreadScores = PodTopologySpread + "/scores"

// spreadState is what scores need.
type spreadState struct {
	list    []constraint
	columns []*framework.LabelColumn
	byNode  [][]int32 // for constraints on the host name
	count   [][]int64 // by value, for the others
	weight  []float64
	ignored framework.Bits // feasible nodes that lack a label
}

// PreScore implements framework.PreScorePlugin.
func (p *spread) PreScore(c *framework.Cycle, feasible framework.Bits) *framework.Status {
	list, err := p.constraints(c.Pod, corev1.ScheduleAnyway)
	if err != nil {
		return framework.Fail(PodTopologySpread, err)
	}
	if len(list) == 0 {
		return skipFilter
	}
	// The built-in defaults ask for no label, so that clusters without zones still spread over nodes.
	strict := len(c.Pod.Object.Spec.TopologySpreadConstraints) > 0 || !p.system
	s := &spreadState{list: list, columns: columns(c.Nodes, list), ignored: make(framework.Bits, len(feasible))}
	considered := 0
	for i := range feasible.All() {
		if strict && !hasAll(s.columns, i) {
			s.ignored.Set(i)
		} else {
			considered++
		}
	}
	for k := range list {
		s.prepare(c, k, feasible, strict, considered)
	}
	c.Put(spreadScores, s)
	return nil
}

func (s *spreadState) prepare(c *framework.Cycle, k int, feasible framework.Bits, strict bool, considered int) {
	con, column := &s.list[k], s.columns[k]
	if con.key == corev1.LabelHostname {
		s.byNode = append(s.byNode, con.everywhere(c))
		s.count, s.weight = append(s.count, nil), append(s.weight, math.Log(float64(considered+2)))
		return
	}
	count, wanted, size := make([]int64, column.Values()), make([]bool, column.Values()), 0
	for i := range feasible.All() {
		if v := column.Value[i]; !s.ignored.Has(i) && !wanted[v] {
			wanted[v] = true
			size++
		}
	}
	by := con.matching(c)
	for i := range c.Nodes.Valid.All() {
		if v := column.Value[i]; by[i] > 0 && wanted[v] && (!strict || hasAll(s.columns, i)) {
			count[v] += int64(by[i])
		}
	}
	s.byNode, s.count, s.weight = append(s.byNode, nil), append(s.count, count), append(s.weight, math.Log(float64(size+2)))
}

// everywhere counts matching pods by node, on all nodes.
func (k *constraint) everywhere(c *framework.Cycle) []int32 {
	return c.Count(fmt.Sprint(PodTopologySpread, " nodes ", k.selector), func(i int) int32 {
		if k.selector.Empty() {
			return 0
		}
		return count(c.Nodes.Pods[i], func(o *corev1.Pod) bool { return k.counts(c.Pod, o) })
	})
}

// Score is high where many matching pods are; Normalize turns that round. Smaller topologies weigh less.
func (*spread) Score(c *framework.Cycle, i int) int64 {
	s := c.Get(spreadScores).(*spreadState)
	if s.ignored.Has(i) {
		return 0
	}
	var sum float64
	for k := range s.list {
		v := s.columns[k].Value[i]
		if v == 0 {
			continue
		}
		var n int64
		if s.byNode[k] != nil {
			n = int64(s.byNode[k][i])
		} else {
			n = s.count[k][v]
		}
		sum += float64(n)*s.weight[k] + float64(s.list[k].maxSkew-1)
	}
	return int64(math.Round(sum))
}

// Normalize implements framework.Normalizer.
func (*spread) Normalize(c *framework.Cycle, feasible framework.Bits, scores []int64) {
	s := c.Get(spreadScores).(*spreadState)
	least, most := int64(math.MaxInt64), int64(0)
	for i := range feasible.All() {
		if !s.ignored.Has(i) {
			least, most = min(least, scores[i]), max(most, scores[i])
		}
	}
	for i := range feasible.All() {
		switch {
		case s.ignored.Has(i):
			scores[i] = 0
		case most == 0:
			scores[i] = framework.MaxScore
		default:
			scores[i] = framework.MaxScore * (most + least - scores[i]) / most
		}
	}
}

func (*spread) Events() framework.EventKind {
	return framework.PodAdded | framework.PodRemoved | framework.PodLabels | framework.NodeAdded | framework.NodeRemoved | framework.NodeLabels | framework.NodeTaints |
		framework.SelfChanged
}

func (p *spread) Helps(pod *framework.Pod, e *framework.Event) bool {
	list, err := p.constraints(pod, corev1.DoNotSchedule)
	if err != nil {
		return false
	}
	if e.Pod != nil {
		for k := range list {
			if e.Pod.Object.Namespace == pod.Object.Namespace && (e.Kind&framework.PodLabels != 0 || list[k].selector.Matches(labels.Set(e.Pod.Object.Labels))) {
				return true
			}
		}
		return false
	}
	return true
}
