package plugins

import (
	"fmt"
	"math"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/yare-project/yare/scheduler/framework"
)

// InterPodAffinity is the plugin's name.
const InterPodAffinity = "InterPodAffinity"

// podAffinity honours pod affinity and anti-affinity: the pod's own and, of anti-affinity and preferences, that of pods already there.
type podAffinity struct {
	hardWeight int64 // what an existing pod's required affinity to the pod is worth in scores
	ignoreSoft bool
}

type podAffinityArgs struct {
	metav1.TypeMeta                    `json:",inline"`
	HardPodAffinityWeight              *int32 `json:"hardPodAffinityWeight,omitempty"`
	IgnorePreferredTermsOfExistingPods bool   `json:"ignorePreferredTermsOfExistingPods,omitempty"`
}

var (
	noFriends  = framework.Refuse(framework.Unresolvable, InterPodAffinity, "node(s) didn't match pod affinity rules")
	foes       = framework.Refuse(framework.Unschedulable, InterPodAffinity, "node(s) didn't match pod anti-affinity rules")
	unwelcome  = framework.Refuse(framework.Unschedulable, InterPodAffinity, "node(s) didn't satisfy existing pods anti-affinity rules")
	skipFilter = &framework.Status{Code: framework.Skip}
)

func newPodAffinity(raw []byte, _ *framework.Handle) (framework.Plugin, error) {
	var args podAffinityArgs
	if err := decode(raw, InterPodAffinity, &args); err != nil {
		return nil, err
	}
	p := &podAffinity{hardWeight: 1, ignoreSoft: args.IgnorePreferredTermsOfExistingPods}
	if w := args.HardPodAffinityWeight; w != nil {
		if *w < 0 || *w > 100 {
			return nil, fmt.Errorf("arguments of plugin %s: hardPodAffinityWeight is %d; want 0 to 100", InterPodAffinity, *w)
		}
		p.hardWeight = int64(*w)
	}
	return p, nil
}

func (*podAffinity) Name() string                           { return InterPodAffinity }
func (*podAffinity) FilterScope() framework.Scope           { return framework.OnCluster }
func (*podAffinity) ScoreScope() framework.Scope            { return framework.OnCluster }
func (*podAffinity) Normalization() framework.Normalization { return framework.Own }

// companions is what a decision knows of the pods around.
type companions struct {
	friends   tally // pods that match all of the pod's required affinity terms
	foes      tally // pods that match an anti-affinity term of it
	unwelcome tally // pods with an anti-affinity term that matches it
	own       labels.Set
}

func (*podAffinity) PreFilter(c *framework.Cycle) *framework.Status {
	p, n := c.Pod, c.Nodes
	s := &companions{own: n.NamespaceLabels(p.Object.Namespace)}
	for i := range n.WithAntiAffinity.All() {
		for _, other := range n.Pods[i] {
			s.resent(n, p, other, i, 1)
		}
	}
	if s.unwelcome.empty() && len(p.RequiredAffinity) == 0 && len(p.RequiredAntiAffinity) == 0 {
		return skipFilter
	}
	epoch := n.NamespaceEpoch()
	if len(p.RequiredAffinity) > 0 {
		by := c.Count(fmt.Sprint(InterPodAffinity, " friends ", epoch), func(i int) int32 {
			return count(n.Pods[i], func(o *corev1.Pod) bool { return matchesAll(p.RequiredAffinity, n, o) })
		})
		for _, t := range p.RequiredAffinity {
			s.friends.addAll(n, t.TopologyKey, by, 1)
		}
	}
	for k := range p.RequiredAntiAffinity {
		t := &p.RequiredAntiAffinity[k]
		s.foes.addAll(n, t.TopologyKey, termCount(c, "foes", k, t), 1)
	}
	c.Put(InterPodAffinity, s)
	return nil
}

// termCount is how many pods match a term, by node.
func termCount(c *framework.Cycle, what string, k int, t *framework.Term) []int32 {
	n := c.Nodes
	return c.Count(fmt.Sprint(InterPodAffinity, " ", what, k, " ", n.NamespaceEpoch()), func(i int) int32 {
		return count(n.Pods[i], func(o *corev1.Pod) bool { return t.Matches(o, n.NamespaceLabels(o.Namespace)) })
	})
}

func count(pods []*framework.Pod, matches func(*corev1.Pod) bool) int32 {
	var k int32
	for _, p := range pods {
		if matches(p.Object) {
			k++
		}
	}
	return k
}

func matchesAll(terms []framework.Term, n *framework.Nodes, o *corev1.Pod) bool {
	for k := range terms {
		if !terms[k].Matches(o, n.NamespaceLabels(o.Namespace)) {
			return false
		}
	}
	return len(terms) > 0
}

// resent counts the anti-affinity terms of other, on node i, that match p.
func (s *companions) resent(n *framework.Nodes, p, other *framework.Pod, i int, sign int64) {
	for k := range other.RequiredAntiAffinity {
		if t := &other.RequiredAntiAffinity[k]; t.Matches(p.Object, s.own) {
			s.unwelcome.add(n, t.TopologyKey, i, sign)
		}
	}
}

// Shift implements framework.ShiftPlugin.
func (*podAffinity) Shift(c *framework.Cycle, other *framework.Pod, i int, sign int) {
	s, ok := c.Get(InterPodAffinity).(*companions)
	if !ok {
		return
	}
	n, by := c.Nodes, int64(sign)
	s.resent(n, c.Pod, other, i, by)
	if matchesAll(c.Pod.RequiredAffinity, n, other.Object) {
		for _, t := range c.Pod.RequiredAffinity {
			s.friends.add(n, t.TopologyKey, i, by)
		}
	}
	for k := range c.Pod.RequiredAntiAffinity {
		if t := &c.Pod.RequiredAntiAffinity[k]; t.Matches(other.Object, n.NamespaceLabels(other.Object.Namespace)) {
			s.foes.add(n, t.TopologyKey, i, by)
		}
	}
}

func (*podAffinity) Filter(c *framework.Cycle, i int) *framework.Status {
	if s, ok := c.Get(InterPodAffinity).(*companions); ok {
		return s.judge(c, i)
	}
	return nil
}

// FilterAll implements framework.BatchFilter.
func (*podAffinity) FilterAll(c *framework.Cycle, in framework.Bits, refuse func(int, *framework.Status)) {
	s, ok := c.Get(InterPodAffinity).(*companions)
	if !ok {
		return
	}
	for i := range in.All() {
		if why := s.judge(c, i); why != nil {
			refuse(i, why)
		}
	}
}

func (s *companions) judge(c *framework.Cycle, i int) *framework.Status {
	switch {
	case !s.hasFriends(c, i):
		return noFriends
	case s.foes.any(i):
		return foes
	case s.unwelcome.any(i):
		return unwelcome
	}
	return nil
}

func (s *companions) hasFriends(c *framework.Cycle, i int) bool {
	found := true
	for _, t := range c.Pod.RequiredAffinity {
		k, labelled := s.friends.at(c.Nodes, t.TopologyKey, i)
		if !labelled {
			return false
		}
		found = found && k > 0
	}
	if found {
		return true
	}
	// The first of a group whose pods want to be together has nobody to go to: it may go anywhere.
	return s.friends.empty() && matchesAll(c.Pod.RequiredAffinity, c.Nodes, c.Pod.Object)
}

const affinityScores = InterPodAffinity + "/scores"

// PreScore implements framework.PreScorePlugin.
func (p *podAffinity) PreScore(c *framework.Cycle, _ framework.Bits) *framework.Status {
	pod, n := c.Pod, c.Nodes
	prefers := len(pod.PreferredAffinity)+len(pod.PreferredAntiAffinity) > 0
	if p.ignoreSoft && !prefers {
		return skipFilter
	}
	t := &tally{}
	for k := range pod.PreferredAffinity {
		w := &pod.PreferredAffinity[k]
		t.addAll(n, w.TopologyKey, termCount(c, "likes", k, &w.Term), w.Weight)
	}
	for k := range pod.PreferredAntiAffinity {
		w := &pod.PreferredAntiAffinity[k]
		t.addAll(n, w.TopologyKey, termCount(c, "dislikes", k, &w.Term), -w.Weight)
	}
	own := n.NamespaceLabels(pod.Object.Namespace)
	for i := range n.WithAffinity.All() {
		if !n.Valid.Has(i) {
			continue
		}
		for _, other := range n.Pods[i] {
			p.regard(t, n, pod, other, i, own)
		}
	}
	if len(t.keys) == 0 {
		return skipFilter
	}
	c.Put(affinityScores, t)
	return nil
}

// regard counts what other, on node i, thinks of the pod.
func (p *podAffinity) regard(t *tally, n *framework.Nodes, pod, other *framework.Pod, i int, own labels.Set) {
	add := func(term *framework.Term, weight int64) {
		if weight != 0 && term.Matches(pod.Object, own) {
			t.add(n, term.TopologyKey, i, weight)
		}
	}
	for k := range other.RequiredAffinity {
		add(&other.RequiredAffinity[k], p.hardWeight)
	}
	for k := range other.PreferredAffinity {
		add(&other.PreferredAffinity[k].Term, other.PreferredAffinity[k].Weight)
	}
	for k := range other.PreferredAntiAffinity {
		add(&other.PreferredAntiAffinity[k].Term, -other.PreferredAntiAffinity[k].Weight)
	}
}

func (*podAffinity) Score(c *framework.Cycle, i int) int64 {
	return c.Get(affinityScores).(*tally).sum(i)
}

// Normalize stretches the scores between the worst and the best.
func (*podAffinity) Normalize(_ *framework.Cycle, feasible framework.Bits, scores []int64) {
	least, most := int64(math.MaxInt64), int64(math.MinInt64)
	for i := range feasible.All() {
		least, most = min(least, scores[i]), max(most, scores[i])
	}
	for i := range feasible.All() {
		if most == least {
			scores[i] = 0
			continue
		}
		scores[i] = int64(framework.MaxScore * (float64(scores[i]-least) / float64(most-least)))
	}
}

func (*podAffinity) Events() framework.EventKind {
	return framework.PodAdded | framework.PodRemoved | framework.PodLabels | framework.NodeAdded | framework.NodeLabels | framework.NamespaceChanged | framework.SelfChanged
}

func (*podAffinity) Helps(p *framework.Pod, e *framework.Event) bool {
	switch {
	case e.Node != nil:
		return hasKeys(p, e.Node)
	case e.Pod == nil:
		return true
	case e.Kind&framework.PodLabels != 0:
		return true // whom it matched before is not known
	case e.Kind&framework.PodAdded != 0:
		return selects(p.RequiredAffinity, e.Pod.Object)
	}
	return selects(p.RequiredAntiAffinity, e.Pod.Object) || selects(e.Pod.RequiredAntiAffinity, p.Object) || selects(p.RequiredAffinity, e.Pod.Object)
}

// selects tells whether a term may match the pod, whatever the labels of its namespace.
func selects(terms []framework.Term, o *corev1.Pod) bool {
	for k := range terms {
		t := &terms[k]
		if (t.Namespaces[o.Namespace] || t.NamespaceSelector != nil) && t.Selector.Matches(labels.Set(o.Labels)) {
			return true
		}
	}
	return false
}

func hasKeys(p *framework.Pod, node *corev1.Node) bool {
	for _, t := range p.RequiredAffinity {
		if _, ok := node.Labels[t.TopologyKey]; !ok {
			return false
		}
	}
	return true
}
