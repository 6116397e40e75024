package policy

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/yare-project/yare/api/scheduling/v1alpha1"
	"github.com/yare-project/yare/internal/nodeexpr"
	"github.com/yare-project/yare/scheduler/framework"
)

// Name is the plugin's name.
const Name = "SchedulingPolicy"

// classesKept bounds the memory that judgements of classes take.
const classesKept = 256

// plugin judges for the pods of one profile.
type plugin struct {
	book      *Book
	scheduler string

	epoch uint64
	known map[*framework.Pod]*judgements // by the pod that stands for a class
	last  *framework.Pod                 // the pod asked about last
	about *judgements                    // nil if no policy selects it
}

// judgements are what the policies that select a pod say.
type judgements struct {
	filters []filter // by the node alone
	busy    []filter // by what pods request of the node too
	scores  []score
	loaded  []score
	pages   []*page // by slot: pods that few nodes are asked about take little
}

const pageSize = 256

type page [pageSize]judgement

// judgement is what holds of a node until it changes.
type judgement struct {
	object  *corev1.Node // that it was judged by
	version uint64
	refusal *framework.Status
	points  int64
}

func noArgs(args []byte) error {
	var fields map[string]any
	if len(args) == 0 {
		return nil
	}
	if err := json.Unmarshal(args, &fields); err != nil {
		return fmt.Errorf("arguments of plugin %s: %w", Name, err)
	}
	for f := range fields {
		if f != "apiVersion" && f != "kind" {
			return fmt.Errorf("arguments of plugin %s: unknown field %q: it has none", Name, f)
		}
	}
	return nil
}

func (p *plugin) Name() string                           { return Name }
func (p *plugin) FilterScope() framework.Scope           { return framework.OnNodePods }
func (p *plugin) ScoreScope() framework.Scope            { return framework.OnNodePods }
func (p *plugin) Normalization() framework.Normalization { return framework.None }

// Epoch changes whenever another set of policies may concern a pod.
func (p *plugin) Epoch() uint64 {
	e := p.book.epoch << 32
	if p.book.spaces {
		e += p.book.nodes.NamespaceEpoch()
	}
	return e
}

// judgements finds what concerns a pod; nil if nothing does.
func (p *plugin) judgements(pod *framework.Pod) *judgements {
	if len(p.book.policies) == 0 {
		return nil
	}
	if e := p.Epoch(); e != p.epoch {
		clear(p.known)
		p.epoch, p.last = e, nil
	}
	if p.last == pod {
		return p.about
	}
	about, known := p.known[pod]
	if !known {
		if about = p.collect(pod); about != nil {
			if len(p.known) >= classesKept {
				clear(p.known)
			}
			p.known[pod] = about
		}
	}
	p.last, p.about = pod, about
	return about
}

func (p *plugin) collect(pod *framework.Pod) *judgements {
	var out *judgements
	for _, c := range p.book.policies {
		if !c.selects(pod, p.scheduler, p.book.nodes) {
			continue
		}
		if out == nil {
			out = &judgements{}
		}
		for _, f := range c.filters {
			if f.Requested {
				out.busy = append(out.busy, f)
			} else {
				out.filters = append(out.filters, f)
			}
		}
		for _, s := range c.scores {
			if s.Requested {
				out.loaded = append(out.loaded, s)
			} else {
				out.scores = append(out.scores, s)
			}
		}
	}
	return out
}

// Filter implements framework.FilterPlugin.
func (p *plugin) Filter(c *framework.Cycle, i int) *framework.Status {
	about := p.judgements(c.Pod)
	if about == nil {
		return nil
	}
	var in *nodeexpr.Input
	j := about.node(p.book, i)
	if j == nil {
		in = p.book.input(c.Pod, i)
		j = p.judge(about, in, i)
	}
	if j.refusal != nil || len(about.busy)+len(about.loaded) == 0 {
		return j.refusal
	}
	if in == nil {
		in = p.book.input(c.Pod, i)
	}
	if s := p.book.filter(about.busy, in); s != nil {
		return s
	}
	_, s := p.book.score(about.loaded, in)
	return s
}

// Score implements framework.ScorePlugin.
func (p *plugin) Score(c *framework.Cycle, i int) int64 {
	about := p.judgements(c.Pod)
	if about == nil {
		return 0
	}
	j := about.node(p.book, i)
	if j == nil {
		j = p.judge(about, p.book.input(c.Pod, i), i)
	}
	if len(about.loaded) == 0 {
		return j.points
	}
	points, _ := p.book.score(about.loaded, p.book.input(c.Pod, i))
	return j.points + points
}

// node is the judgement of slot i if it still holds.
func (a *judgements) node(b *Book, i int) *judgement {
	k := i / pageSize
	if k >= len(a.pages) {
		a.pages = append(a.pages, make([]*page, k+1-len(a.pages))...)
	}
	if a.pages[k] == nil {
		a.pages[k] = &page{}
		return nil
	}
	if j := &a.pages[k][i%pageSize]; j.object != nil && j.object == b.nodes.Object[i] && (len(b.version) == 0 || j.version == b.version[b.nodes.Name[i]]) {
		return j
	}
	return nil
}

func (p *plugin) judge(about *judgements, in *nodeexpr.Input, i int) *judgement {
	b := p.book
	j := &about.pages[i/pageSize][i%pageSize]
	*j = judgement{object: b.nodes.Object[i], version: b.version[b.nodes.Name[i]]}
	if j.refusal = b.filter(about.filters, in); j.refusal == nil {
		j.points, j.refusal = b.score(about.scores, in)
	}
	return j
}

// filter is the first refusal.
func (b *Book) filter(filters []filter, in *nodeexpr.Input) *framework.Status {
	for k := range filters {
		f := &filters[k]
		b.evaluations++
		ok, err := f.Bool(in)
		switch {
		case err == nil && !ok:
			return f.refusal
		case err != nil && f.failure != v1alpha1.FailSkip:
			return refuse(f.policy, err.Error(), f.Requested)
		}
	}
	return nil
}

// score sums the points, unless a score that must not fail does.
func (b *Book) score(scores []score, in *nodeexpr.Input) (points int64, refusal *framework.Status) {
	for k := range scores {
		s := &scores[k]
		b.evaluations++
		x, err := s.Number(in)
		switch {
		case err == nil:
			points += s.points(x)
		case s.failure == v1alpha1.FailRefuse:
			return 0, refuse(s.policy, err.Error(), s.Requested)
		}
	}
	return points, nil
}

// Events implements framework.HintPlugin.
func (p *plugin) Events() framework.EventKind {
	return framework.NodeAdded | framework.NodeAllocatable | framework.NodeLabels | framework.NodeTaints | framework.NodeOther | framework.PodAdded | framework.PodRemoved | framework.PodShrunk |
		framework.NamespaceChanged | framework.PolicyChanged | framework.SelfChanged
}

// Helps asks again about the node that changed. Pods that come or go matter to expressions that read what is requested.
func (p *plugin) Helps(pod *framework.Pod, e *framework.Event) bool {
	const pods = framework.PodAdded | framework.PodRemoved | framework.PodShrunk
	if e.Kind&pods == 0 && e.Node == nil || e.Slot < 0 || !p.book.nodes.Valid.Has(e.Slot) {
		return e.Kind&pods == 0
	}
	if about := p.judgements(pod); e.Kind&pods != 0 && (about == nil || len(about.busy)+len(about.loaded) == 0) {
		return false
	}
	return p.Filter(&framework.Cycle{Pod: pod, Nodes: p.book.nodes}, e.Slot).OK()
}
