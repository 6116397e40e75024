package plugins

import (
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
	var args spreadArgs
	if err := decode(raw, PodTopologySpread, &args); err != nil {
		return nil, err
	}
	if args.DefaultingType == "" {
		args.DefaultingType = "System"
	}
	if err := invalid(PodTopologySpread, args.check()); err != nil {
		return nil, err
	}
	p := &spread{h: h, defaults: args.DefaultConstraints}
	if args.DefaultingType == "System" {
		p.system = true
		p.defaults = []corev1.TopologySpreadConstraint{{TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.ScheduleAnyway, MaxSkew: 3},
			{TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.ScheduleAnyway, MaxSkew: 5}}
	}
	return p, nil
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

// times is how often a pod counts.
func (k *constraint) times(pod *framework.Pod) func(*framework.Pod) int64 {
	if k.selector.Empty() {
		return func(*framework.Pod) int64 { return 0 }
	}
	return func(o *framework.Pod) int64 { return once(k.counts(pod, o.Object)) }
}

func (k *constraint) counts(pod *framework.Pod, o *corev1.Pod) bool {
	return o.DeletionTimestamp == nil && o.Namespace == pod.Object.Namespace && k.selector.Matches(labels.Set(o.Labels))
}

// domains counts what one required constraint is about.
type domains struct {
	constraint
	tally *framework.Tally
	self  int64
}

func (d *domains) least() int64 {
	least, n := d.tally.Least()
	if n < d.minDomains {
		return 0
	}
	return least
}

// skew is by how much a domain would be ahead of the emptiest.
func (d *domains) skew(domain int32) int64 { return d.tally.Count(domain) + d.self - d.least() }

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

// kept is what is known about the pods of a template.
type kept struct {
	selector string // by which the defaults select; empty if the pods have constraints of their own
	required []*domains
	wishes   *wishes // nil if there are none
}

// of brings what is known about the pod's template up to date.
func (p *spread) of(c *framework.Cycle) (*kept, error) {
	k := c.Memo(PodTopologySpread, 0, func() any { return new(kept) }).(*kept)
	if len(c.Pod.Object.Spec.TopologySpreadConstraints) > 0 {
		if k.required != nil || k.wishes != nil {
			return k, nil
		}
	} else {
		selector := p.siblings(c.Pod.Object)
		if selector == nil {
			*k = kept{}
			return k, nil
		}
		text := selector.String()
		if k.selector == text {
			return k, nil
		}
		*k = kept{selector: text}
	}
	required, err := p.constraints(c.Pod, corev1.DoNotSchedule)
	if err != nil {
		return nil, err
	}
	preferred, err := p.constraints(c.Pod, corev1.ScheduleAnyway)
	if err != nil {
		return nil, err
	}
	k.required = newDomains(c, required)
	if len(preferred) > 0 {
		// The built-in defaults ask for no label, so that clusters without zones still spread over nodes.
		k.wishes = newWishes(c, preferred, len(c.Pod.Object.Spec.TopologySpreadConstraints) > 0 || !p.system)
	}
	return k, nil
}

// siblings selects by the defaults; nil if they do not apply.
func (p *spread) siblings(pod *corev1.Pod) labels.Selector {
	if len(p.defaults) == 0 || p.h.Siblings == nil {
		return nil
	}
	if s := p.h.Siblings(pod); s != nil && !s.Empty() {
		return s
	}
	return nil
}

func newDomains(c *framework.Cycle, list []constraint) []*domains {
	out := make([]*domains, 0, len(list))
	all, pod, n := columns(c.Nodes, list), c.Pod, c.Nodes
	for _, con := range list {
		d := &domains{constraint: con, self: once(con.selector.Matches(labels.Set(pod.Object.Labels)))}
		d.tally = n.NewTally(con.key, con.times(pod), func(i int) bool { return hasAll(all, i) && d.includes(pod, n.Object[i]) })
		out = append(out, d)
	}
	return out
}

func (p *spread) PreFilter(c *framework.Cycle) *framework.Status {
	k, err := p.of(c)
	if err != nil {
		return framework.Refuse(framework.Unresolvable, PodTopologySpread, err.Error())
	}
	if len(k.required) == 0 {
		return skipFilter
	}
	for _, d := range k.required {
		d.tally.Sync()
	}
	c.Put(PodTopologySpread, k.required)
	return nil
}

// Columns implements framework.ColumnPlugin.
func (p *spread) Columns(c *framework.Cycle, columns []*framework.Column) ([]*framework.Column, bool) {
	k, err := p.of(c)
	if err != nil {
		return columns, false
	}
	for _, d := range k.required {
		d.tally.Sync()
		columns = append(columns, d.tally.Column())
	}
	if k.wishes != nil {
		columns = k.wishes.tellApart(columns)
	}
	return columns, true
}

// Shift implements framework.ShiftPlugin: what is counted follows the nodes.
func (*spread) Shift(c *framework.Cycle, _ *framework.Pod, _ int, _ int) {
	state, _ := c.Get(PodTopologySpread).([]*domains)
	for _, d := range state {
		d.tally.Sync()
	}
}

func (*spread) Filter(c *framework.Cycle, i int) *framework.Status {
	state, _ := c.Get(PodTopologySpread).([]*domains)
	for _, d := range state {
		if s := d.judge(i, d.least()); s != nil {
			return s
		}
	}
	return nil
}

func (d *domains) judge(i int, least int64) *framework.Status {
	switch v := d.tally.Domain(i); {
	case v == 0:
		return unlabeled
	case d.tally.Count(v)+d.self-least > d.maxSkew:
		return skewed
	}
	return nil
}

// FilterAll implements framework.BatchFilter.
func (*spread) FilterAll(c *framework.Cycle, in framework.Bits, refuse func(int, *framework.Status)) {
	state, _ := c.Get(PodTopologySpread).([]*domains)
	for _, d := range state {
		least := d.least()
		for i := range in.All() {
			if s := d.judge(i, least); s != nil {
				refuse(i, s)
			}
		}
	}
}

const spreadScores = PodTopologySpread + "/scores"

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
