package scheduler

import (
	"math"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/yare-project/yare/scheduler/framework"
)

// What follows is the model of rules about other pods: topology spread, affinity and anti-affinity.

// spreadRule is a constraint with all that it says by being silent.
type spreadRule struct {
	corev1.TopologySpreadConstraint
	selector labels.Selector
}

// counts tells whether the pods of a node count.
func (c spreadRule) counts(p *corev1.Pod, n *corev1.Node) bool {
	if (c.NodeAffinityPolicy == nil || *c.NodeAffinityPolicy == corev1.NodeInclusionPolicyHonor) && !modelNodeMatches(p, n) {
		return false
	}
	return c.NodeTaintsPolicy == nil || *c.NodeTaintsPolicy == corev1.NodeInclusionPolicyIgnore || modelToleratesNode(p, n)
}

func modelHasKeys(list []spreadRule, n *corev1.Node) bool {
	for _, c := range list {
		if _, ok := n.Labels[c.TopologyKey]; !ok {
			return false
		}
	}
	return true
}

// matching counts the pods of a node that a constraint is about.
func (m *model) matching(p *corev1.Pod, s labels.Selector, node string) int64 {
	var k int64
	for _, o := range m.podsOn(node) {
		if !s.Empty() && o.DeletionTimestamp == nil && o.Namespace == p.Namespace && s.Matches(labels.Set(o.Labels)) {
			k++
		}
	}
	return k
}

// constraints are those of the pod, or the defaults for pods that belong together; own tells which.
func (m *model) constraints(p *corev1.Pod, when corev1.UnsatisfiableConstraintAction) (out []spreadRule, own bool) {
	list := p.Spec.TopologySpreadConstraints
	own = len(list) > 0
	if !own {
		list = m.defaults
	}
	for _, c := range list {
		if c.WhenUnsatisfiable != when {
			continue
		}
		rule := spreadRule{c, modelSelector(c.LabelSelector)}
		if !own {
			if rule.selector = m.siblings(p); rule.selector == nil {
				return nil, false
			}
		}
		for _, key := range c.MatchLabelKeys {
			if v, ok := p.Labels[key]; ok {
				same, _ := labels.SelectorFromSet(labels.Set{key: v}).Requirements()
				rule.selector = rule.selector.Add(same...)
			}
		}
		out = append(out, rule)
	}
	return out, own
}

func (m *model) spreadAllows(p *corev1.Pod, n *corev1.Node) framework.Code {
	list, _ := m.constraints(p, corev1.DoNotSchedule)
	for _, c := range list {
		if _, ok := n.Labels[c.TopologyKey]; !ok {
			return framework.Unresolvable
		}
		domains := map[string]int64{}
		for name, o := range m.nodes {
			if modelHasKeys(list, o) && c.counts(p, o) {
				domains[o.Labels[c.TopologyKey]] += m.matching(p, c.selector, name)
			}
		}
		least := int64(math.MaxInt64)
		for _, v := range domains {
			least = min(least, v)
		}
		if need := c.MinDomains; len(domains) == 0 || need != nil && len(domains) < int(*need) {
			least = 0
		}
		self := int64(0)
		if c.selector.Matches(labels.Set(p.Labels)) {
			self = 1
		}
		if domains[n.Labels[c.TopologyKey]]+self-least > int64(c.MaxSkew) {
			return framework.Unschedulable
		}
	}
	return framework.Success
}

func (m *model) termMatches(t corev1.PodAffinityTerm, of, p *corev1.Pod) bool {
	in := t.NamespaceSelector != nil && modelSelector(t.NamespaceSelector).Matches(labels.Set(m.spaces[p.Namespace]))
	for _, ns := range t.Namespaces {
		in = in || ns == p.Namespace
	}
	if len(t.Namespaces) == 0 && t.NamespaceSelector == nil {
		in = of.Namespace == p.Namespace
	}
	return in && modelSelector(t.LabelSelector).Matches(labels.Set(p.Labels))
}

func modelTerms(p *corev1.Pod) (like, avoid []corev1.PodAffinityTerm, softLike, softAvoid []corev1.WeightedPodAffinityTerm) {
	a := p.Spec.Affinity
	if a != nil && a.PodAffinity != nil {
		like, softLike = a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution, a.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution
	}
	if a != nil && a.PodAntiAffinity != nil {
		avoid, softAvoid = a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution, a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution
	}
	return
}

// together tells whether two nodes are in one domain of a topology.
func together(key string, a, b *corev1.Node) bool {
	if a == nil || b == nil {
		return false
	}
	x, ok1 := a.Labels[key]
	y, ok2 := b.Labels[key]
	return ok1 && ok2 && x == y
}

func (m *model) podsAllow(p *corev1.Pod, n *corev1.Node) framework.Code {
	like, avoid, _, _ := modelTerms(p)
	if !m.likes(p, n, like) {
		return framework.Unresolvable
	}
	for _, o := range m.pods {
		on := m.nodes[o.Spec.NodeName]
		for _, t := range avoid {
			if together(t.TopologyKey, on, n) && m.termMatches(t, p, o) {
				return framework.Unschedulable
			}
		}
		_, theirs, _, _ := modelTerms(o)
		for _, t := range theirs {
			if together(t.TopologyKey, on, n) && m.termMatches(t, o, p) {
				return framework.Unschedulable
			}
		}
	}
	return framework.Success
}

func (m *model) likes(p *corev1.Pod, n *corev1.Node, like []corev1.PodAffinityTerm) bool {
	matchesAll := func(o *corev1.Pod) bool {
		for _, t := range like {
			if !m.termMatches(t, p, o) {
				return false
			}
		}
		return true
	}
	anywhere, here := false, true
	for _, t := range like {
		if _, ok := n.Labels[t.TopologyKey]; !ok {
			return false
		}
		found := false
		for _, o := range m.pods {
			if on := m.nodes[o.Spec.NodeName]; on != nil && matchesAll(o) {
				_, labelled := on.Labels[t.TopologyKey]
				anywhere = anywhere || labelled
				found = found || together(t.TopologyKey, on, n)
			}
		}
		here = here && found
	}
	return here || !anywhere && matchesAll(p)
}

// company is what the pod's preferences, and those of pods already there, say about a node.
func (m *model) company(p *corev1.Pod, n *corev1.Node) (sum int64) {
	_, _, like, avoid := modelTerms(p)
	if m.ignoreSoft && len(like)+len(avoid) == 0 {
		return 0
	}
	for _, o := range m.pods {
		on := m.nodes[o.Spec.NodeName]
		mine := func(t corev1.PodAffinityTerm, w int64) {
			if together(t.TopologyKey, on, n) && m.termMatches(t, p, o) {
				sum += w
			}
		}
		for _, w := range like {
			mine(w.PodAffinityTerm, int64(w.Weight))
		}
		for _, w := range avoid {
			mine(w.PodAffinityTerm, -int64(w.Weight))
		}
		theirs := func(t corev1.PodAffinityTerm, w int64) {
			if together(t.TopologyKey, on, n) && m.termMatches(t, o, p) {
				sum += w
			}
		}
		hard, _, softLike, softAvoid := modelTerms(o)
		for _, t := range hard {
			theirs(t, m.hardWeight)
		}
		for _, w := range softLike {
			theirs(w.PodAffinityTerm, int64(w.Weight))
		}
		for _, w := range softAvoid {
			theirs(w.PodAffinityTerm, -int64(w.Weight))
		}
	}
	return sum
}

func (m *model) spreadScores(p *corev1.Pod, feasible map[string]bool) map[string]int64 {
	list, own := m.constraints(p, corev1.ScheduleAnyway)
	strict := own || !m.system // the built-in defaults do without labels
	out := map[string]int64{}
	if len(list) == 0 {
		return out
	}
	raw := map[string]int64{}
	for name := range feasible {
		if !strict || modelHasKeys(list, m.nodes[name]) {
			raw[name] = 0
		}
	}
	for name := range raw {
		raw[name] = m.spreadScore(p, m.nodes[name], list, raw, strict)
	}
	least, most := int64(math.MaxInt64), int64(0)
	for _, v := range raw {
		least, most = min(least, v), max(most, v)
	}
	for name, v := range raw {
		out[name] = 100
		if most > 0 {
			out[name] = 100 * (most + least - v) / most
		}
	}
	return out
}

func (m *model) spreadScore(p *corev1.Pod, n *corev1.Node, list []spreadRule, considered map[string]int64, strict bool) int64 {
	var sum float64
	for _, c := range list {
		value, ok := n.Labels[c.TopologyKey]
		if !ok {
			continue
		}
		if c.TopologyKey == corev1.LabelHostname {
			sum += float64(m.matching(p, c.selector, n.Name))*math.Log(float64(len(considered)+2)) + float64(c.MaxSkew-1)
			continue
		}
		values := map[string]bool{}
		for name := range considered {
			values[m.nodes[name].Labels[c.TopologyKey]] = true
		}
		var here int64
		for name, o := range m.nodes {
			if v, ok := o.Labels[c.TopologyKey]; ok && v == value && (!strict || modelHasKeys(list, o)) && c.counts(p, o) {
				here += m.matching(p, c.selector, name)
			}
		}
		sum += float64(here)*math.Log(float64(len(values)+2)) + float64(c.MaxSkew-1)
	}
	return int64(math.Round(sum))
}
