package plugins

import (
	"math"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

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
		if err := invalid(InterPodAffinity, inRange(field.NewPath("hardPodAffinityWeight"), int64(*w), 0, 100)); err != nil {
			return nil, err
		}
		p.hardWeight = int64(*w)
	}
	return p, nil
}

func (*podAffinity) Name() string                           { return InterPodAffinity }
func (*podAffinity) FilterScope() framework.Scope           { return framework.OnCluster }
func (*podAffinity) ScoreScope() framework.Scope            { return framework.OnCluster }
func (*podAffinity) Normalization() framework.Normalization { return framework.Own }

// ownTerms counts the pods that the terms of a template's pods select.
type ownTerms struct {
	friends         []*framework.Tally // by required affinity term: pods that match all of them
	foes            []*framework.Tally // by required anti-affinity term
	likes, dislikes []*framework.Tally // by preferred term
}

func newOwnTerms(c *framework.Cycle) *ownTerms {
	n, p, s := c.Nodes, c.Pod, &ownTerms{}
	selected := func(t *framework.Term) *framework.Tally {
		return n.NewTally(t.TopologyKey, func(o *framework.Pod) int64 { return once(t.Matches(o.Object, n.NamespaceLabels(o.Object.Namespace))) }, nil)
	}
	for k := range p.RequiredAffinity {
		s.friends = append(s.friends, n.NewTally(p.RequiredAffinity[k].TopologyKey, func(o *framework.Pod) int64 { return once(matchesAll(p.RequiredAffinity, n, o.Object)) }, nil))
	}
	for k := range p.RequiredAntiAffinity {
		s.foes = append(s.foes, selected(&p.RequiredAntiAffinity[k]))
	}
	for k := range p.PreferredAffinity {
		s.likes = append(s.likes, selected(&p.PreferredAffinity[k].Term))
	}
	for k := range p.PreferredAntiAffinity {
		s.dislikes = append(s.dislikes, selected(&p.PreferredAntiAffinity[k].Term))
	}
	return s
}

func once(so bool) int64 {
	if so {
		return 1
	}
	return 0
}

// othersTerms are the terms of pods on nodes that select a template's pods.
type othersTerms struct{ hard, soft []*framework.Terms }

// companions is what a decision knows of the pods around.
type companions struct {
	*ownTerms
	others    *othersTerms
	unwelcome []*framework.Tally // pods with an anti-affinity term that matches the pod
}

func termsOf(c *framework.Cycle) *ownTerms {
	var epoch uint64
	if c.Pod.SelectsNamespaces() {
		epoch = c.Nodes.NamespaceEpoch()
	}
	return c.Memo(InterPodAffinity, epoch, func() any { return newOwnTerms(c) }).(*ownTerms)
}

func termsAbout(c *framework.Cycle) *othersTerms {
	return c.Memo(InterPodAffinity+"/others", c.Nodes.TermEpoch(), func() any {
		return &othersTerms{c.Nodes.TermsAbout(c.Pod, framework.RequiredAntiAffinity),
			c.Nodes.TermsAbout(c.Pod, framework.RequiredAffinity, framework.PreferredAffinity, framework.PreferredAntiAffinity)}
	}).(*othersTerms)
}

// load brings what is known of the pods around up to date; nil if the pod minds nobody and nobody minds it.
func load(c *framework.Cycle) *companions {
	own, others := termsOf(c), termsAbout(c)
	if len(own.friends)+len(own.foes)+len(others.hard) == 0 {
		return nil
	}
	s := &companions{ownTerms: own, others: others}
	minds := len(own.friends)+len(own.foes) > 0
	for _, t := range own.friends {
		t.Sync()
	}
	for _, t := range own.foes {
		t.Sync()
	}
	for _, g := range others.hard {
		t := c.Nodes.TermTally(g)
		s.unwelcome = append(s.unwelcome, t)
		minds = minds || !t.Empty()
	}
	if !minds {
		return nil
	}
	return s
}

func (*podAffinity) PreFilter(c *framework.Cycle) *framework.Status {
	s := load(c)
	if s == nil {
		return skipFilter
	}
	c.Put(InterPodAffinity, s)
	return nil
}

// Columns implements framework.ColumnPlugin.
func (p *podAffinity) Columns(c *framework.Cycle, columns []*framework.Column) ([]*framework.Column, bool) {
	own, others := termsOf(c), termsAbout(c)
	for _, list := range [][]*framework.Tally{own.friends, own.foes, own.likes, own.dislikes} {
		for _, t := range list {
			t.Sync()
			columns = append(columns, t.Column())
		}
	}
	for _, g := range others.hard {
		columns = append(columns, c.Nodes.TermTally(g).Column())
	}
	if !p.indifferent(c.Pod) {
		for _, g := range others.soft {
			columns = append(columns, c.Nodes.TermTally(g).Column())
		}
	}
	return columns, true
}

func matchesAll(terms []framework.Term, n *framework.Nodes, o *corev1.Pod) bool {
	for k := range terms {
		if !terms[k].Matches(o, n.NamespaceLabels(o.Namespace)) {
			return false
		}
	}
	return len(terms) > 0
}

// Shift implements framework.ShiftPlugin: what is counted follows the nodes.
func (*podAffinity) Shift(c *framework.Cycle, _ *framework.Pod, _ int, _ int) {
	if s, ok := c.Get(InterPodAffinity).(*companions); ok {
		if now := load(c); now != nil {
			*s = *now
		} else {
			*s = companions{ownTerms: s.ownTerms, others: s.others}
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
	case anyIn(s.foes, i):
		return foes
	case anyIn(s.unwelcome, i):
		return unwelcome
	}
	return nil
}

// anyIn tells whether one of them counts something in a domain of node i.
func anyIn(tallies []*framework.Tally, i int) bool {
	for _, t := range tallies {
		if t.In(i) > 0 {
			return true
		}
	}
	return false
}

func (s *companions) hasFriends(c *framework.Cycle, i int) bool {
	found := true
	for _, t := range s.friends {
		if t.Domain(i) == 0 {
			return false
		}
		found = found && t.In(i) > 0
	}
	if found {
		return true
	}
	// The first of a group whose pods want to be together has nobody to go to: it may go anywhere.
	for _, t := range s.friends {
		if !t.Empty() {
			return false
		}
	}
	return matchesAll(c.Pod.RequiredAffinity, c.Nodes, c.Pod.Object)
}

const affinityScores = InterPodAffinity + "/scores"

// indifferent tells whether the preferences of others do not count for the pod.
func (p *podAffinity) indifferent(pod *framework.Pod) bool {
	return p.ignoreSoft && len(pod.PreferredAffinity)+len(pod.PreferredAntiAffinity) == 0
}

// regard is what pods around think of the pod, or it of them: so much for each.
type regard struct {
	tally  *framework.Tally
	weight int64
}

// PreScore implements framework.PreScorePlugin.
func (p *podAffinity) PreScore(c *framework.Cycle, _ framework.Bits) *framework.Status {
	pod, own := c.Pod, termsOf(c)
	if p.indifferent(pod) {
		return skipFilter
	}
	var all []regard
	for k, t := range own.likes {
		t.Sync()
		all = append(all, regard{t, pod.PreferredAffinity[k].Weight})
	}
	for k, t := range own.dislikes {
		t.Sync()
		all = append(all, regard{t, -pod.PreferredAntiAffinity[k].Weight})
	}
	for _, g := range termsAbout(c).soft {
		weight := g.Weight
		switch g.Kind {
		case framework.RequiredAffinity:
			weight = p.hardWeight
		case framework.PreferredAntiAffinity:
			weight = -weight
		}
		if t := c.Nodes.TermTally(g); weight != 0 && !t.Empty() {
			all = append(all, regard{t, weight})
		}
	}
	if len(all) == 0 {
		return skipFilter
	}
	c.Put(affinityScores, all)
	return nil
}

func (*podAffinity) Score(c *framework.Cycle, i int) int64 {
	return sumAt(c.Get(affinityScores).([]regard), i)
}

// ScoreAll implements framework.BatchScore.
func (*podAffinity) ScoreAll(c *framework.Cycle, in framework.Bits, scores []int64) {
	all := c.Get(affinityScores).([]regard)
	for i := range in.All() {
		scores[i] = sumAt(all, i)
	}
}

func sumAt(all []regard, i int) (sum int64) {
	for _, r := range all {
		sum += r.weight * r.tally.In(i)
	}
	return sum
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
