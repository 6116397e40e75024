package plugins

import (
	"fmt"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yare-project/yare/scheduler/framework"
)

// fit keeps pods from nodes without room for their requests, and rates nodes by how full they would be.
type fit struct {
	nodes         *framework.Nodes
	ignored       []string
	ignoredGroups []string
	score         func(used, capacity int64) (score int64, counts bool)
	round         bool
	weights       []resourceWeight
	statuses      map[string]*framework.Status // by the resources that are missing
}

type resourceWeight struct {
	resource int
	name     corev1.ResourceName
	weight   int64
}

type resourceSpec struct {
	Name   string `json:"name"`
	Weight int64  `json:"weight,omitempty"`
}

type shapePoint struct {
	Utilization int32 `json:"utilization"`
	Score       int32 `json:"score"`
}

type scoringStrategy struct {
	Type                     string         `json:"type,omitempty"`
	Resources                []resourceSpec `json:"resources,omitempty"`
	RequestedToCapacityRatio *struct {
		Shape []shapePoint `json:"shape"`
	} `json:"requestedToCapacityRatio,omitempty"`
}

type fitArgs struct {
	metav1.TypeMeta       `json:",inline"`
	IgnoredResources      []string         `json:"ignoredResources,omitempty"`
	IgnoredResourceGroups []string         `json:"ignoredResourceGroups,omitempty"`
	ScoringStrategy       *scoringStrategy `json:"scoringStrategy,omitempty"`
}

func newFit(raw []byte, h *framework.Handle) (framework.Plugin, error) {
	var args fitArgs
	if err := decode(raw, NodeResourcesFit, &args); err != nil {
		return nil, err
	}
	s := args.ScoringStrategy
	if s == nil {
		s = &scoringStrategy{}
	}
	p := &fit{nodes: h.Nodes, ignored: args.IgnoredResources, ignoredGroups: args.IgnoredResourceGroups, statuses: map[string]*framework.Status{}}
	var err error
	if p.weights, err = weigh(s.Resources, NodeResourcesFit, h.Nodes); err != nil {
		return nil, err
	}
	switch s.Type {
	case "", "LeastAllocated":
		p.score = leastAllocated
	case "MostAllocated":
		p.score = mostAllocated
	case "RequestedToCapacityRatio":
		p.round = true
		p.score, err = byShape(s)
	default:
		err = fmt.Errorf("arguments of plugin %s: scoringStrategy.type is %q; want LeastAllocated, MostAllocated or RequestedToCapacityRatio", NodeResourcesFit, s.Type)
	}
	return p, err
}

func weigh(in []resourceSpec, plugin string, n *framework.Nodes) ([]resourceWeight, error) {
	if len(in) == 0 {
		in = []resourceSpec{{"cpu", 1}, {"memory", 1}}
	}
	var out []resourceWeight
	for _, r := range in {
		if r.Weight == 0 {
			r.Weight = 1
		}
		if r.Name == "" || r.Weight < 1 || r.Weight > 100 {
			return nil, fmt.Errorf("arguments of plugin %s: resource %q has weight %d; want a name and 1 to 100", plugin, r.Name, r.Weight)
		}
		out = append(out, resourceWeight{n.Resource(corev1.ResourceName(r.Name)), corev1.ResourceName(r.Name), r.Weight})
	}
	return out, nil
}

func (*fit) Name() string                           { return NodeResourcesFit }
func (*fit) FilterScope() framework.Scope           { return framework.OnNodePods }
func (*fit) ScoreScope() framework.Scope            { return framework.OnNodePods }
func (*fit) Normalization() framework.Normalization { return framework.None }

func (p *fit) Filter(c *framework.Cycle, i int) *framework.Status {
	n := c.Nodes
	full := n.Used[framework.PodCount][i]+1 > n.Allocatable[framework.PodCount][i]
	for _, a := range c.Pod.Requests {
		if a.Value > n.Allocatable[a.Resource][i]-n.Used[a.Resource][i] && !p.ignores(n.ResourceName(a.Resource)) {
			full = true
		}
	}
	if !full {
		return nil
	}
	return p.explain(c.Pod, n, i)
}

// ignores tells whether the profile leaves a resource to somebody else.
func (p *fit) ignores(name corev1.ResourceName) bool {
	if len(p.ignored) == 0 && len(p.ignoredGroups) == 0 {
		return false
	}
	group, _, extended := strings.Cut(string(name), "/")
	return extended && (slices.Contains(p.ignored, string(name)) || slices.Contains(p.ignoredGroups, group))
}

func (p *fit) explain(pod *framework.Pod, n *framework.Nodes, i int) *framework.Status {
	var reasons []string
	code := framework.Unschedulable
	for _, a := range pod.Requests {
		name := n.ResourceName(a.Resource)
		if a.Value <= n.Allocatable[a.Resource][i]-n.Used[a.Resource][i] || p.ignores(name) {
			continue
		}
		reasons = append(reasons, "Insufficient "+string(name))
		if a.Value > n.Allocatable[a.Resource][i] {
			code = framework.Unresolvable
		}
	}
	slices.Sort(reasons)
	if n.Used[framework.PodCount][i]+1 > n.Allocatable[framework.PodCount][i] {
		reasons = append([]string{"Too many pods"}, reasons...)
	}
	key := fmt.Sprint(code, reasons)
	s := p.statuses[key]
	if s == nil {
		s = framework.Refuse(code, NodeResourcesFit, reasons...)
		p.statuses[key] = s
	}
	return s
}

func (p *fit) Score(c *framework.Cycle, i int) int64 {
	n := c.Nodes
	var sum, weights int64
	for _, w := range p.weights {
		request := c.Pod.NonZeroRequest(w.resource)
		capacity := n.Allocatable[w.resource][i]
		if capacity == 0 || request == 0 && scalar(w.resource) {
			continue
		}
		used := n.Used[w.resource][i]
		switch w.resource {
		case framework.CPU:
			used = n.NonZeroCPU[i]
		case framework.Memory:
			used = n.NonZeroMem[i]
		}
		if s, counts := p.score(used+request, capacity); counts {
			sum += s * w.weight
			weights += w.weight
		}
	}
	switch {
	case weights == 0:
		return 0
	case p.round:
		return int64(math.Round(float64(sum) / float64(weights)))
	}
	return sum / weights
}

// scalar resources count only for pods that ask for them.
func scalar(resource int) bool { return resource > framework.EphemeralStorage }

func leastAllocated(used, capacity int64) (int64, bool) {
	if used > capacity {
		return 0, true
	}
	return (capacity - used) * framework.MaxScore / capacity, true
}

func mostAllocated(used, capacity int64) (int64, bool) {
	// Pods that request nothing may fill a node beyond its capacity in this account.
	return min(used, capacity) * framework.MaxScore / capacity, true
}

// byShape interpolates between the configured points; configured scores go up to 10.
func byShape(s *scoringStrategy) (func(used, capacity int64) (int64, bool), error) {
	if s.RequestedToCapacityRatio == nil || len(s.RequestedToCapacityRatio.Shape) == 0 {
		return nil, fmt.Errorf("arguments of plugin %s: scoringStrategy.requestedToCapacityRatio.shape: at least one point is needed", NodeResourcesFit)
	}
	shape := s.RequestedToCapacityRatio.Shape
	for k, pt := range shape {
		if pt.Utilization < 0 || pt.Utilization > 100 || pt.Score < 0 || pt.Score > 10 || k > 0 && pt.Utilization <= shape[k-1].Utilization {
			return nil, fmt.Errorf("arguments of plugin %s: shape point %d (utilization %d, score %d): want rising utilizations of 0 to 100 and scores of 0 to 10",
				NodeResourcesFit, k, pt.Utilization, pt.Score)
		}
	}
	return func(used, capacity int64) (int64, bool) {
		u := int64(100)
		if used <= capacity {
			u = used * 100 / capacity
		}
		v := interpolate(shape, u)
		return v, v > 0
	}, nil
}

func interpolate(shape []shapePoint, u int64) int64 {
	const scale = framework.MaxScore / 10
	for k, pt := range shape {
		if u > int64(pt.Utilization) {
			continue
		}
		if k == 0 {
			return int64(pt.Score) * scale
		}
		from := shape[k-1]
		x0, x1, y0, y1 := int64(from.Utilization), int64(pt.Utilization), int64(from.Score)*scale, int64(pt.Score)*scale
		return y0 + (y1-y0)*(u-x0)/(x1-x0)
	}
	return int64(shape[len(shape)-1].Score) * scale
}

func (*fit) Events() framework.EventKind {
	return framework.NodeAdded | framework.NodeAllocatable | framework.PodRemoved | framework.PodShrunk | framework.SelfChanged
}

// Helps looks whether the node of the event has room now: one that has not can't be why the pod fits.
func (p *fit) Helps(pod *framework.Pod, e *framework.Event) bool {
	i := e.Slot
	if e.Kind == framework.SelfChanged || i < 0 || !p.nodes.Valid.Has(i) {
		return e.Kind == framework.SelfChanged
	}
	for _, a := range pod.Requests {
		if a.Value > p.nodes.Allocatable[a.Resource][i] && !p.ignores(p.nodes.ResourceName(a.Resource)) {
			return false
		}
	}
	return true
}

// balanced prefers nodes whose resources would be used evenly.
type balanced struct{ weights []resourceWeight }

func newBalanced(raw []byte, h *framework.Handle) (framework.Plugin, error) {
	var args struct {
		metav1.TypeMeta `json:",inline"`
		Resources       []resourceSpec `json:"resources,omitempty"`
	}
	if err := decode(raw, BalancedAllocation, &args); err != nil {
		return nil, err
	}
	w, err := weigh(args.Resources, BalancedAllocation, h.Nodes)
	if err != nil {
		return nil, err
	}
	for _, r := range w {
		if r.weight != 1 {
			return nil, fmt.Errorf("arguments of plugin %s: resource %q has weight %d; only 1 has a meaning", BalancedAllocation, r.name, r.weight)
		}
	}
	return &balanced{w}, nil
}

func (*balanced) Name() string                           { return BalancedAllocation }
func (*balanced) ScoreScope() framework.Scope            { return framework.OnNodePods }
func (*balanced) Normalization() framework.Normalization { return framework.None }

// Score compares the spread of the fractions in use with and without the pod, around 75.
func (p *balanced) Score(c *framework.Cycle, i int) int64 {
	asks := false
	for _, w := range p.weights {
		asks = asks || c.Pod.Request(w.resource) != 0
	}
	if !asks {
		return 0
	}
	with, without := p.evenness(c, i, true), p.evenness(c, i, false)
	return framework.MaxScore/2 + (framework.MaxScore/2+with-without)/2
}

func (p *balanced) evenness(c *framework.Cycle, i int, with bool) int64 {
	n := c.Nodes
	var sum, squares, first, second float64
	count := 0
	for _, w := range p.weights {
		request, capacity := c.Pod.Request(w.resource), n.Allocatable[w.resource][i]
		if capacity == 0 || request == 0 && scalar(w.resource) {
			continue
		}
		used := n.Used[w.resource][i]
		if with {
			used += request
		}
		part := min(float64(used)/float64(capacity), 1)
		switch count {
		case 0:
			first = part
		case 1:
			second = part
		}
		sum += part
		count++
	}
	deviation := 0.0
	switch {
	case count == 2:
		deviation = math.Abs(first-second) / 2
	case count > 2:
		mean := sum / float64(count)
		for _, w := range p.weights {
			request, capacity := c.Pod.Request(w.resource), n.Allocatable[w.resource][i]
			if capacity == 0 || request == 0 && scalar(w.resource) {
				continue
			}
			used := n.Used[w.resource][i]
			if with {
				used += request
			}
			part := min(float64(used)/float64(capacity), 1)
			squares += (part - mean) * (part - mean)
		}
		deviation = math.Sqrt(squares / float64(count))
	}
	return int64((1 - deviation) * framework.MaxScore)
}
