package extender

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/yare-project/yare/scheduler/framework"
)

// Name is that of the plugin, and of who refuses a node that an extender refuses.
const Name = "Extender"

// Question is what extenders are to judge: a pod, and the nodes that all plugins found feasible.
type Question struct {
	Pod   *corev1.Pod
	Nodes []*corev1.Node
}

// Answer is what they said.
type Answer struct {
	Err     error // a failure of an extender that can't be done without
	asked   map[string]bool
	refused map[string]*framework.Status // by the node's name
	scores  map[string]int64             // to be added to those of the plugins
	any     bool                         // to whatever is asked, the answer is yes
}

// Join adds a later answer about the same pod, which counts where both say something; an answer that is nil says nothing.
func (a *Answer) Join(later *Answer) *Answer {
	if a == nil || later == nil {
		return cmp.Or(later, a)
	}
	out := &Answer{Err: cmp.Or(later.Err, a.Err), asked: maps.Clone(a.asked), refused: maps.Clone(a.refused), scores: maps.Clone(a.scores)}
	for name := range later.asked {
		delete(out.refused, name)
		delete(out.scores, name)
	}
	maps.Copy(out.asked, later.asked)
	maps.Copy(out.refused, later.refused)
	maps.Copy(out.scores, later.scores)
	return out
}

// Join adds the nodes of another question about the same pod.
func (q *Question) Join(o *Question) *Question {
	if q == nil {
		return o
	}
	out := &Question{Pod: o.Pod, Nodes: slices.Clone(q.Nodes)}
	known := map[string]bool{}
	for _, n := range q.Nodes {
		known[n.Name] = true
	}
	for _, n := range o.Nodes {
		if !known[n.Name] {
			out.Nodes = append(out.Nodes, n)
		}
	}
	return out
}

// most bounds a rating, so that sums stay far from overflow.
const most = math.MaxInt32

// Ask puts a question to all extenders that care for the pod. It takes as long as they do.
func (s *Set) Ask(ctx context.Context, q *Question) *Answer {
	a := &Answer{asked: map[string]bool{}, refused: map[string]*framework.Status{}, scores: map[string]int64{}}
	for _, n := range q.Nodes {
		a.asked[n.Name] = true
	}
	left := q.Nodes
	for _, e := range s.list {
		if len(left) == 0 {
			break
		}
		if e.FilterVerb == "" || !e.interested(q.Pod) {
			continue
		}
		passed, refused, err := e.filter(ctx, q.Pod, left)
		if err != nil {
			if e.Ignorable && ctx.Err() == nil {
				s.log.Warn("an extender failed; the pod is placed without it", "extender", e.URLPrefix, "pod", q.Pod.Namespace+"/"+q.Pod.Name, "error", err)
				continue
			}
			a.Err = err
			return a
		}
		for name, status := range refused {
			a.refused[name] = status
		}
		left = passed
	}
	if len(left) > 1 {
		s.rate(ctx, q.Pod, left, a)
	}
	return a
}

// args lists nodes as the extender wants them.
func (e *extender) args(pod *corev1.Pod, nodes []*corev1.Node) *filterArgs {
	args := &filterArgs{Pod: pod}
	if e.NodeCacheCapable {
		names := make([]string, 0, len(nodes))
		for _, n := range nodes {
			names = append(names, n.Name)
		}
		args.NodeNames = &names
		return args
	}
	args.Nodes = &corev1.NodeList{Items: make([]corev1.Node, 0, len(nodes))}
	for _, n := range nodes {
		args.Nodes.Items = append(args.Nodes.Items, *n)
	}
	return args
}

// filter asks which of nodes will do, and why the others won't.
func (e *extender) filter(ctx context.Context, pod *corev1.Pod, nodes []*corev1.Node) (left []*corev1.Node, refused map[string]*framework.Status, err error) {
	var got filterResult
	if err := e.send(ctx, e.FilterVerb, e.args(pod, nodes), &got); err != nil {
		return nil, nil, err
	}
	if got.Error != "" {
		return nil, nil, errors.New(got.Error)
	}
	var names []string
	switch {
	case e.NodeCacheCapable && got.NodeNames != nil:
		names = *got.NodeNames
	case got.Nodes != nil:
		for k := range got.Nodes.Items {
			names = append(names, got.Nodes.Items[k].Name)
		}
	}
	by := make(map[string]*corev1.Node, len(nodes))
	for _, n := range nodes {
		by[n.Name] = n
	}
	passed := map[string]bool{}
	for _, name := range names {
		if by[name] == nil {
			return nil, nil, fmt.Errorf("extender %q claims a filtered node %q which is not found in the input node list", e.URLPrefix, name)
		}
		passed[name] = true
	}
	refused = map[string]*framework.Status{}
	silent := framework.Refuse(framework.Unresolvable, Name, fmt.Sprintf("node(s) were left out by extender %s", e.URLPrefix))
	shared := map[string]*framework.Status{} // one status for each text: there may be thousands of nodes
	for _, n := range nodes {
		if passed[n.Name] {
			left = append(left, n)
			continue
		}
		refused[n.Name] = silent
		if why, told := got.FailedAndUnresolvableNodes[n.Name]; told {
			refused[n.Name] = share(shared, framework.Unresolvable, why)
		} else if why, told := got.FailedNodes[n.Name]; told {
			refused[n.Name] = share(shared, framework.Unschedulable, why)
		}
	}
	return left, refused, nil
}

func share(known map[string]*framework.Status, code framework.Code, why string) *framework.Status {
	key := fmt.Sprint(code, why)
	if known[key] == nil {
		known[key] = framework.Refuse(code, Name, why)
	}
	return known[key]
}

// rate asks all at once. A failure costs no more than that extender's ratings.
func (s *Set) rate(ctx context.Context, pod *corev1.Pod, nodes []*corev1.Node, a *Answer) {
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, e := range s.list {
		if e.PrioritizeVerb == "" || !e.interested(pod) {
			continue
		}
		all.Go(func() {
			var got []rating
			err := e.send(ctx, e.PrioritizeVerb, e.args(pod, nodes), &got)
			for _, r := range got {
				if r.Score > most/e.Weight || r.Score < -most/e.Weight {
					err = fmt.Errorf("extender %s: it rates node %q %d; want 0 to 10", e.URLPrefix, r.Host, r.Score)
				}
			}
			if err != nil {
				s.log.Warn("an extender does not rate nodes; the pod is placed without its ratings", "extender", e.URLPrefix, "pod", pod.Namespace+"/"+pod.Name, "error", err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			for _, r := range got {
				a.scores[r.Host] += r.Score * e.Weight * (framework.MaxScore / 10)
			}
		})
	}
	all.Wait()
}
