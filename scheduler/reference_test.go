package scheduler

import (
	"math"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// model is the rules of scheduling written plainly, from the API's documentation: one pod, one node, no caches.
type model struct {
	nodes    map[string]*corev1.Node
	pods     []*corev1.Pod // all have a node
	spaces   map[string]map[string]string
	siblings func(*corev1.Pod) labels.Selector
}

func (m *model) podsOn(node string) []*corev1.Pod {
	var out []*corev1.Pod
	for _, p := range m.pods {
		if p.Spec.NodeName == node {
			out = append(out, p)
		}
	}
	return out
}

func (m *model) feasible(p *corev1.Pod) map[string]bool {
	out := map[string]bool{}
	for name, n := range m.nodes {
		if m.fits(p, n) {
			out[name] = true
		}
	}
	return out
}

func (m *model) fits(p *corev1.Pod, n *corev1.Node) bool {
	cordon := corev1.Taint{Key: "node.kubernetes.io/unschedulable", Effect: corev1.TaintEffectNoSchedule}
	if n.Spec.Unschedulable && !modelTolerates(p, cordon) {
		return false
	}
	return modelToleratesNode(p, n) && modelNodeMatches(p, n) && m.portsFree(p, n) && m.resourcesFree(p, n) && m.spreadAllows(p, n) && m.podsAllow(p, n)
}

func modelTolerates(p *corev1.Pod, t corev1.Taint) bool {
	for _, o := range p.Spec.Tolerations {
		if (o.Effect == "" || o.Effect == t.Effect) && (o.Key == "" || o.Key == t.Key) && (o.Operator == corev1.TolerationOpExists || o.Value == t.Value) {
			return true
		}
	}
	return false
}

func modelToleratesNode(p *corev1.Pod, n *corev1.Node) bool {
	for _, t := range n.Spec.Taints {
		if t.Effect != corev1.TaintEffectPreferNoSchedule && !modelTolerates(p, t) {
			return false
		}
	}
	return true
}

func modelNodeMatches(p *corev1.Pod, n *corev1.Node) bool {
	for k, v := range p.Spec.NodeSelector {
		if n.Labels[k] != v {
			return false
		}
	}
	a := p.Spec.Affinity
	if a == nil || a.NodeAffinity == nil || a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return true
	}
	for _, t := range a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		if modelTermMatches(t, n) {
			return true
		}
	}
	return false
}

func modelTermMatches(t corev1.NodeSelectorTerm, n *corev1.Node) bool {
	for _, f := range t.MatchFields {
		if f.Values[0] != n.Name {
			return false
		}
	}
	for _, e := range t.MatchExpressions {
		v, has := n.Labels[e.Key]
		in := false
		for _, x := range e.Values {
			in = in || has && x == v
		}
		ok := map[corev1.NodeSelectorOperator]bool{corev1.NodeSelectorOpIn: in, corev1.NodeSelectorOpNotIn: !in, corev1.NodeSelectorOpExists: has,
			corev1.NodeSelectorOpDoesNotExist: !has}[e.Operator]
		if e.Operator == corev1.NodeSelectorOpGt {
			a, err := strconv.Atoi(v)
			b, _ := strconv.Atoi(e.Values[0])
			ok = err == nil && a > b
		}
		if !ok {
			return false
		}
	}
	return len(t.MatchFields)+len(t.MatchExpressions) > 0
}

func (m *model) portsFree(p *corev1.Pod, n *corev1.Node) bool {
	for _, o := range m.podsOn(n.Name) {
		for _, a := range o.Spec.Containers[0].Ports {
			for _, b := range p.Spec.Containers[0].Ports {
				ip := a.HostIP == b.HostIP || a.HostIP == "" || b.HostIP == ""
				if a.HostPort != 0 && a.HostPort == b.HostPort && a.Protocol == b.Protocol && ip {
					return false
				}
			}
		}
	}
	return true
}

// modelRequest of the generated pods: one container, perhaps one init container.
func modelRequest(p *corev1.Pod, r corev1.ResourceName, unset int64) int64 {
	get := func(c corev1.Container) int64 {
		q, ok := c.Resources.Requests[r]
		if !ok {
			return unset
		}
		if r == corev1.ResourceCPU {
			return q.MilliValue()
		}
		return q.Value()
	}
	v := get(p.Spec.Containers[0])
	for _, c := range p.Spec.InitContainers {
		v = max(v, get(c))
	}
	return v
}

func modelAllocatable(n *corev1.Node, r corev1.ResourceName) int64 {
	q := n.Status.Allocatable[r]
	if r == corev1.ResourceCPU {
		return q.MilliValue()
	}
	return q.Value()
}

func (m *model) used(n *corev1.Node, r corev1.ResourceName, unset int64) int64 {
	var sum int64
	for _, o := range m.podsOn(n.Name) {
		sum += modelRequest(o, r, unset)
	}
	return sum
}

func (m *model) resourcesFree(p *corev1.Pod, n *corev1.Node) bool {
	if int64(len(m.podsOn(n.Name)))+1 > modelAllocatable(n, corev1.ResourcePods) {
		return false
	}
	for _, r := range []corev1.ResourceName{"cpu", "memory", "example.com/gpu"} {
		want := modelRequest(p, r, 0)
		if want > 0 && m.used(n, r, 0)+want > modelAllocatable(n, r) {
			return false
		}
	}
	return true
}

func modelSelector(s *metav1.LabelSelector) labels.Selector {
	out, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		panic(err)
	}
	return out
}

func (m *model) countsFor(p *corev1.Pod, c corev1.TopologySpreadConstraint, n *corev1.Node) bool {
	if c.NodeAffinityPolicy == nil || *c.NodeAffinityPolicy == corev1.NodeInclusionPolicyHonor {
		if !modelNodeMatches(p, n) {
			return false
		}
	}
	return c.NodeTaintsPolicy == nil || *c.NodeTaintsPolicy == corev1.NodeInclusionPolicyIgnore || modelToleratesNode(p, n)
}

func modelHasKeys(list []corev1.TopologySpreadConstraint, n *corev1.Node) bool {
	for _, c := range list {
		if _, ok := n.Labels[c.TopologyKey]; !ok {
			return false
		}
	}
	return true
}

func (m *model) matching(p *corev1.Pod, s labels.Selector, node string) int64 {
	var k int64
	for _, o := range m.podsOn(node) {
		if o.Namespace == p.Namespace && s.Matches(labels.Set(o.Labels)) {
			k++
		}
	}
	return k
}

func modelConstraints(p *corev1.Pod, when corev1.UnsatisfiableConstraintAction) []corev1.TopologySpreadConstraint {
	var out []corev1.TopologySpreadConstraint
	for _, c := range p.Spec.TopologySpreadConstraints {
		if c.WhenUnsatisfiable == when {
			out = append(out, c)
		}
	}
	return out
}

func (m *model) spreadAllows(p *corev1.Pod, n *corev1.Node) bool {
	list := modelConstraints(p, corev1.DoNotSchedule)
	if !modelHasKeys(list, n) {
		return false
	}
	for _, c := range list {
		s := modelSelector(c.LabelSelector)
		domains := map[string]int64{}
		for name, o := range m.nodes {
			if modelHasKeys(list, o) && m.countsFor(p, c, o) {
				domains[o.Labels[c.TopologyKey]] += m.matching(p, s, name)
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
		if s.Matches(labels.Set(p.Labels)) {
			self = 1
		}
		if domains[n.Labels[c.TopologyKey]]+self-least > int64(c.MaxSkew) {
			return false
		}
	}
	return true
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

func (m *model) podsAllow(p *corev1.Pod, n *corev1.Node) bool {
	like, avoid, _, _ := modelTerms(p)
	for _, o := range m.pods {
		on := m.nodes[o.Spec.NodeName]
		for _, t := range avoid {
			if together(t.TopologyKey, on, n) && m.termMatches(t, p, o) {
				return false
			}
		}
		_, theirs, _, _ := modelTerms(o)
		for _, t := range theirs {
			if together(t.TopologyKey, on, n) && m.termMatches(t, o, p) {
				return false
			}
		}
	}
	return m.likes(p, n, like)
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

// scores are the totals of the feasible nodes with the default weights.
func (m *model) scores(p *corev1.Pod, feasible map[string]bool) map[string]int64 {
	total := map[string]int64{}
	add := func(weight int64, of map[string]int64) {
		for name := range feasible {
			total[name] += weight * of[name]
		}
	}
	each := func(f func(n *corev1.Node) int64) map[string]int64 {
		out := map[string]int64{}
		for name := range feasible {
			out[name] = f(m.nodes[name])
		}
		return out
	}
	add(3, byMax(each(func(n *corev1.Node) int64 { return intolerable(p, n) }), true))
	add(2, byMax(each(func(n *corev1.Node) int64 { return preferredNode(p, n) }), false))
	add(1, each(func(n *corev1.Node) int64 { return m.leastAllocated(p, n) }))
	add(1, each(func(n *corev1.Node) int64 { return m.balanced(p, n) }))
	add(1, each(func(n *corev1.Node) int64 { return m.images(p, n) }))
	add(2, m.spreadScores(p, feasible))
	add(2, stretch(each(func(n *corev1.Node) int64 { return m.company(p, n) })))
	return total
}

func byMax(in map[string]int64, reversed bool) map[string]int64 {
	var most int64
	for _, v := range in {
		most = max(most, v)
	}
	out := map[string]int64{}
	for k, v := range in {
		if most > 0 {
			out[k] = 100 * v / most
		}
		if reversed {
			out[k] = 100 - out[k]
		}
	}
	return out
}

func stretch(in map[string]int64) map[string]int64 {
	least, most := int64(math.MaxInt64), int64(math.MinInt64)
	for _, v := range in {
		least, most = min(least, v), max(most, v)
	}
	out := map[string]int64{}
	for k, v := range in {
		if most > least {
			out[k] = int64(100 * (float64(v-least) / float64(most-least)))
		}
	}
	return out
}

func intolerable(p *corev1.Pod, n *corev1.Node) (k int64) {
	for _, t := range n.Spec.Taints {
		if t.Effect == corev1.TaintEffectPreferNoSchedule && !modelTolerates(p, t) {
			k++
		}
	}
	return k
}

func preferredNode(p *corev1.Pod, n *corev1.Node) (sum int64) {
	if a := p.Spec.Affinity; a != nil && a.NodeAffinity != nil {
		for _, w := range a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution {
			if modelTermMatches(w.Preference, n) {
				sum += int64(w.Weight)
			}
		}
	}
	return sum
}

func (m *model) leastAllocated(p *corev1.Pod, n *corev1.Node) int64 {
	part := func(r corev1.ResourceName, unset int64) int64 {
		capacity := modelAllocatable(n, r)
		free := capacity - m.used(n, r, unset) - modelRequest(p, r, unset)
		return max(free, 0) * 100 / capacity
	}
	return (part("cpu", 100) + part("memory", 200<<20)) / 2
}

func (m *model) balanced(p *corev1.Pod, n *corev1.Node) int64 {
	if modelRequest(p, "cpu", 0) == 0 && modelRequest(p, "memory", 0) == 0 {
		return 0
	}
	evenness := func(with int64) int64 {
		part := func(r corev1.ResourceName) float64 {
			return min(1, float64(m.used(n, r, 0)+with*modelRequest(p, r, 0))/float64(modelAllocatable(n, r)))
		}
		return int64((1 - math.Abs(part("cpu")-part("memory"))/2) * 100)
	}
	return 50 + (50+evenness(1)-evenness(0))/2
}

func (m *model) images(p *corev1.Pod, n *corev1.Node) int64 {
	has := func(o *corev1.Node) int64 {
		for _, i := range o.Status.Images {
			if i.Names[0] == p.Spec.Containers[0].Image {
				return i.SizeBytes
			}
		}
		return 0
	}
	on := 0
	for _, o := range m.nodes {
		if has(o) > 0 {
			on++
		}
	}
	sum := int64(float64(has(n)) * (float64(on) / float64(len(m.nodes))))
	least, most := int64(23<<20), int64(1000<<20)*int64(len(p.Spec.Containers)+len(p.Spec.InitContainers))
	return 100 * (min(max(sum, least), most) - least) / (most - least)
}

func (m *model) company(p *corev1.Pod, n *corev1.Node) (sum int64) {
	_, _, like, avoid := modelTerms(p)
	for _, o := range m.pods {
		on := m.nodes[o.Spec.NodeName]
		mine := func(t corev1.PodAffinityTerm, w int32) {
			if together(t.TopologyKey, on, n) && m.termMatches(t, p, o) {
				sum += int64(w)
			}
		}
		for _, w := range like {
			mine(w.PodAffinityTerm, w.Weight)
		}
		for _, w := range avoid {
			mine(w.PodAffinityTerm, -w.Weight)
		}
		theirs := func(t corev1.PodAffinityTerm, w int32) {
			if together(t.TopologyKey, on, n) && m.termMatches(t, o, p) {
				sum += int64(w)
			}
		}
		hard, _, softLike, softAvoid := modelTerms(o)
		for _, t := range hard {
			theirs(t, 1)
		}
		for _, w := range softLike {
			theirs(w.PodAffinityTerm, w.Weight)
		}
		for _, w := range softAvoid {
			theirs(w.PodAffinityTerm, -w.Weight)
		}
	}
	return sum
}

func (m *model) spreadScores(p *corev1.Pod, feasible map[string]bool) map[string]int64 {
	list, strict := modelConstraints(p, corev1.ScheduleAnyway), true
	selectors := map[int]labels.Selector{}
	for k, c := range list {
		selectors[k] = modelSelector(c.LabelSelector)
	}
	if len(p.Spec.TopologySpreadConstraints) == 0 {
		if s := m.siblings(p); s != nil {
			strict = false
			list = []corev1.TopologySpreadConstraint{{TopologyKey: corev1.LabelHostname, MaxSkew: 3}, {TopologyKey: corev1.LabelTopologyZone, MaxSkew: 5}}
			selectors = map[int]labels.Selector{0: s, 1: s}
		}
	}
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
		raw[name] = m.spreadScore(p, m.nodes[name], list, selectors, raw, strict)
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

func (m *model) spreadScore(p *corev1.Pod, n *corev1.Node, list []corev1.TopologySpreadConstraint, selectors map[int]labels.Selector, considered map[string]int64, strict bool) int64 {
	var sum float64
	for k, c := range list {
		value, ok := n.Labels[c.TopologyKey]
		if !ok {
			continue
		}
		if c.TopologyKey == corev1.LabelHostname {
			sum += float64(m.matching(p, selectors[k], n.Name))*math.Log(float64(len(considered)+2)) + float64(c.MaxSkew-1)
			continue
		}
		values := map[string]bool{}
		for name := range considered {
			values[m.nodes[name].Labels[c.TopologyKey]] = true
		}
		var here int64
		for name, o := range m.nodes {
			if v, ok := o.Labels[c.TopologyKey]; ok && v == value && (!strict || modelHasKeys(list, o)) && m.countsFor(p, c, o) {
				here += m.matching(p, selectors[k], name)
			}
		}
		sum += float64(here)*math.Log(float64(len(values)+2)) + float64(c.MaxSkew-1)
	}
	return int64(math.Round(sum))
}
