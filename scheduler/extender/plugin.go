package extender

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/yare-project/yare/scheduler/framework"
)

// Plugin puts questions and answers into decisions. It must be the last filter of a profile and its first bind plugin.
type Plugin struct{ set *Set }

// Plugin makes the plugin of a profile.
func (s *Set) Plugin() *Plugin { return &Plugin{s} }

const (
	answerKey   = Name + "/answer"
	questionKey = Name + "/question"
)

// Follow has a decision follow an answer.
func Follow(c *framework.Cycle, a *Answer) { c.Put(answerKey, a) }

// Suppose has a decision go on as if the extenders had nothing against any node: to see what else there is to ask.
func Suppose(c *framework.Cycle) { c.Put(answerKey, &Answer{any: true}) }

// Asked is the question that a decision ended with; nil if it ended by itself.
func Asked(c *framework.Cycle) *Question {
	q, _ := c.Get(questionKey).(*Question)
	return q
}

var (
	skip     = &framework.Status{Code: framework.Skip}
	unjudged = framework.Refuse(framework.Unschedulable, Name, "node(s) wait for the verdict of extenders")
)

// Name implements framework.Plugin.
func (*Plugin) Name() string { return Name }

// FilterScope implements framework.FilterPlugin.
func (*Plugin) FilterScope() framework.Scope { return framework.OnCluster }

// PreFilter leaves pods alone that no extender cares for.
func (p *Plugin) PreFilter(c *framework.Cycle) *framework.Status {
	if !p.set.Consults(c.Pod.Object) {
		return skip
	}
	return nil
}

// Columns implements framework.ColumnPlugin: an extender may judge any two nodes differently, and of pods that none cares for all alike.
func (p *Plugin) Columns(c *framework.Cycle, columns []*framework.Column) ([]*framework.Column, bool) {
	return columns, !p.set.Consults(c.Pod.Object)
}

// Filter implements framework.FilterPlugin. It refuses what an extender refuses for good only: whether another node would do once pods are gone, extenders
// are asked when they are.
func (*Plugin) Filter(c *framework.Cycle, i int) *framework.Status {
	if a, ok := c.Get(answerKey).(*Answer); ok && a.refused[c.Nodes.Name[i]].Is(framework.Unresolvable) {
		return a.refused[c.Nodes.Name[i]]
	}
	return nil
}

// FilterAll implements framework.BatchFilter: it asks about all nodes, or follows the answer.
func (*Plugin) FilterAll(c *framework.Cycle, in framework.Bits, refuse func(int, *framework.Status)) {
	a, answered := c.Get(answerKey).(*Answer)
	var unasked, refused []*corev1.Node
	kept := false
	for i := range in.All() {
		name := c.Nodes.Name[i]
		switch {
		case answered && a.any:
			kept = true
		case !answered || !a.asked[name]:
			unasked = append(unasked, c.Nodes.Object[i])
			refuse(i, unjudged)
		case a.refused[name] != nil:
			refused = append(refused, c.Nodes.Object[i])
			refuse(i, a.refused[name])
		default:
			kept = true
		}
	}
	var q *Question
	if len(unasked) > 0 && !kept { // what was refused may be acceptable by now, too
		q = &Question{Pod: c.Pod.Object, Nodes: append(unasked, refused...)}
	}
	c.Put(questionKey, q)
}

// PreScore leaves the scores out where there are no ratings.
func (*Plugin) PreScore(c *framework.Cycle, _ framework.Bits) *framework.Status {
	if a, ok := c.Get(answerKey).(*Answer); !ok || len(a.scores) == 0 {
		return skip
	}
	return nil
}

// ScoreScope implements framework.ScorePlugin.
func (*Plugin) ScoreScope() framework.Scope { return framework.OnCluster }

// Normalization implements framework.ScorePlugin: ratings count as they are.
func (*Plugin) Normalization() framework.Normalization { return framework.None }

// Score implements framework.ScorePlugin.
func (*Plugin) Score(c *framework.Cycle, i int) int64 {
	a, _ := c.Get(answerKey).(*Answer)
	if a == nil {
		return 0
	}
	return a.scores[c.Nodes.Name[i]]
}

// Bind leaves the pod to the first extender that binds it.
func (p *Plugin) Bind(ctx context.Context, c *framework.Cycle, node string) *framework.Status {
	pod := c.Pod.Object
	for _, e := range p.set.list {
		if e.BindVerb == "" || !e.interested(pod) {
			continue
		}
		err := e.bind(ctx, pod, node)
		if err != nil && e.Ignorable && ctx.Err() == nil {
			p.set.log.Warn("an extender does not bind; the pod is bound without it", "extender", e.URLPrefix, "pod", pod.Namespace+"/"+pod.Name, "error", err)
			continue
		}
		if err != nil {
			return framework.Fail(Name, err)
		}
		return nil
	}
	return skip
}
