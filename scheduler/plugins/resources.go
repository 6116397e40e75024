package plugins

import (
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
	devices       framework.Devices
	ignored       []string
	ignoredGroups []string
	score         func(used, capacity int64) (score int64, counts bool)
	round         bool
	weights       []resourceWeight
	statuses      map[lacking]*framework.Status
}

// lacking is a set of resources that a node has not enough of.
type lacking struct {
	resources uint64 // by number; those that have a larger one are not remembered
	pods      bool
	code      framework.Code
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
	if err := invalid(NodeResourcesFit, args.check()); err != nil {
		return nil, err
	}
	s := args.ScoringStrategy
	if s == nil {
		s = &scoringStrategy{Type: "LeastAllocated"}
	}
	p := &fit{nodes: h.Nodes, devices: h.Devices, ignored: append(args.IgnoredResources, h.Ignored...), ignoredGroups: args.IgnoredResourceGroups,
		weights: weigh(s.Resources, h.Nodes), statuses: map[lacking]*framework.Status{}}
	switch s.Type {
	case "LeastAllocated":
		p.score = leastAllocated
	case "MostAllocated":
		p.score = mostAllocated
	default:
		p.round = true
		p.score = byShape(s.RequestedToCapacityRatio.Shape)
	}
	return p, nil
}

func weigh(in []resourceSpec, n *framework.Nodes) []resourceWeight {
	if len(in) == 0 {
		in = []resourceSpec{{"cpu", 1}, {"memory", 1}}
	}
	var out []resourceWeight
	for _, r := range in {
		out = append(out, resourceWeight{n.Resource(corev1.ResourceName(r.Name)), corev1.ResourceName(r.Name), max(r.Weight, 1)})
	}
	return out
}

func (*fit) Name() string                           { return NodeResourcesFit }
func (*fit) SpecOnly() bool                         { return true }
func (*fit) FilterScope() framework.Scope           { return framework.OnNodePods }
func (*fit) ScoreScope() framework.Scope            { return framework.OnNodePods }
func (*fit) Normalization() framework.Normalization { return framework.None }

func (p *fit) Filter(c *framework.Cycle, i int) *framework.Status {
	if p.hasRoom(c.Pod, i) {
		return nil
	}
	return p.explain(c.Pod, c.Nodes, i)
}

// ignores tells whether the profile leaves a resource to somebody else.
func (p *fit) ignores(name corev1.ResourceName) bool {
	if len(p.ignored) == 0 && len(p.ignoredGroups) == 0 {
		return false
	}
	group, _, _ := strings.Cut(string(name), "/")
	return extended(name) && (slices.Contains(p.ignored, string(name)) || slices.Contains(p.ignoredGroups, group))
}

// backed tells whether devices are given out for a resource that a node has none of by itself: plugin DynamicResources sees to that.
func (p *fit) backed(n *framework.Nodes, resource, i int) bool {
	return p.devices != nil && n.Allocatable[resource][i] == 0 && p.devices.Backs(n.ResourceName(resource))
}

// Minds tells whether pods are kept from a node that has not enough of a resource.
func (p *fit) Minds(resource, i int) bool {
	return !p.ignores(p.nodes.ResourceName(resource)) && !p.backed(p.nodes, resource, i)
}

// Epoch implements framework.EpochPlugin.
func (p *fit) Epoch() uint64 {
	if p.devices == nil {
		return 0
	}
	return p.devices.Epoch()
}

// extended tells resources of others from those that Kubernetes itself knows.
func extended(name corev1.ResourceName) bool {
	s := string(name)
	return strings.Contains(s, "/") && !strings.Contains(s, corev1.ResourceDefaultNamespacePrefix) && !strings.HasPrefix(s, corev1.DefaultResourceRequestsPrefix)
}

func (p *fit) explain(pod *framework.Pod, n *framework.Nodes, i int) *framework.Status {
	set, few := lacking{pods: n.Used[framework.PodCount][i]+1 > n.Allocatable[framework.PodCount][i], code: framework.Unschedulable}, true
	for _, a := range pod.Requests {
		if a.Value <= n.Allocatable[a.Resource][i]-n.Used[a.Resource][i] || p.ignores(n.ResourceName(a.Resource)) || p.backed(n, a.Resource, i) {
			continue
		}
		set.resources |= 1 << a.Resource
		few = few && a.Resource < 64
		if a.Value > n.Allocatable[a.Resource][i] {
			set.code = framework.Unresolvable
		}
	}
	if s := p.statuses[set]; s != nil && few {
		return s
	}
	s := framework.Refuse(set.code, NodeResourcesFit, p.lacks(set, pod, n, i)...)
	if few {
		p.statuses[set] = s
	}
	return s
}

func (p *fit) lacks(set lacking, pod *framework.Pod, n *framework.Nodes, i int) (reasons []string) {
	for _, a := range pod.Requests {
		if name := n.ResourceName(a.Resource); a.Value > n.Allocatable[a.Resource][i]-n.Used[a.Resource][i] && !p.ignores(name) && !p.backed(n, a.Resource, i) {
			reasons = append(reasons, "Insufficient "+string(name))
		}
	}
	slices.Sort(reasons)
	if set.pods {
		reasons = append([]string{"Too many pods"}, reasons...)
	}
	return reasons
}

func (p *fit) Score(c *framework.Cycle, i int) int64 {
	n := c.Nodes
	var sum, weights int64
	for _, w := range p.weights {
		request := c.Pod.NonZeroRequest(w.resource)
		capacity, used := w.on(n, p.devices, i, request)
		if capacity == 0 || request == 0 && scalar(w.resource) {
			continue
		}
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

// on is what node i has of the resource and what of it is in use. Of what a node has nothing by itself, devices count, if a class stands for the resource (KEP-5004).
func (w *resourceWeight) on(n *framework.Nodes, devices framework.Devices, i int, request int64) (capacity, used int64) {
	capacity, used = n.Allocatable[w.resource][i], n.Used[w.resource][i]
	if capacity == 0 && request != 0 && devices != nil && scalar(w.resource) {
		return devices.Totals(w.name, i, n.Object[i])
	}
	return capacity, used
}

// wide tells whether devices count in the score of a pod: they change without that the node or its pods do.
func wide(c *framework.Cycle, weights []resourceWeight, devices framework.Devices) bool {
	return devices != nil && slices.ContainsFunc(weights, func(w resourceWeight) bool {
		return scalar(w.resource) && c.Pod.Request(w.resource) != 0 && devices.Backs(w.name)
	})
}

// Wide implements framework.WideScore.
func (p *fit) Wide(c *framework.Cycle) bool { return wide(c, p.weights, p.devices) }

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
func byShape(shape []shapePoint) func(used, capacity int64) (int64, bool) {
	return func(used, capacity int64) (int64, bool) {
		u := int64(100)
		if used <= capacity {
			u = used * 100 / capacity
		}
		v := interpolate(shape, u)
		return v, v > 0
	}
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
	return framework.NodeAdded | framework.NodeAllocatable | framework.PodRemoved | framework.PodShrunk | framework.SelfChanged | framework.DevicesChanged
}

// Helps looks whether the node of the event has room now: one that has not can't be why the pod fits.
func (p *fit) Helps(pod *framework.Pod, e *framework.Event) bool {
	i := e.Slot
	if e.Kind == framework.DevicesChanged { // a class may now stand for what no node had
		return slices.ContainsFunc(pod.Requests, func(a framework.Amount) bool {
			return p.devices != nil && p.devices.Backs(p.nodes.ResourceName(a.Resource))
		})
	}
	if e.Kind == framework.SelfChanged || i < 0 || !p.nodes.Valid.Has(i) {
		return e.Kind == framework.SelfChanged
	}
	if e.Kind&(framework.PodRemoved|framework.PodShrunk) != 0 && p.nodes.Waits(pod) {
		return p.hasRoom(pod, i) // others have left or leave for its sake: it need not look for more
	}
	for _, a := range pod.Requests {
		if a.Value > p.nodes.Allocatable[a.Resource][i] && !p.ignores(p.nodes.ResourceName(a.Resource)) && !p.backed(p.nodes, a.Resource, i) {
			return false
		}
	}
	return true
}

// hasRoom tells whether the pod's requests fit on a node as things are.
func (p *fit) hasRoom(pod *framework.Pod, i int) bool {
	n := p.nodes
	if n.Used[framework.PodCount][i]+1 > n.Allocatable[framework.PodCount][i] {
		return false
	}
	for _, a := range pod.Requests {
		if a.Value > n.Allocatable[a.Resource][i]-n.Used[a.Resource][i] && !p.ignores(n.ResourceName(a.Resource)) && !p.backed(n, a.Resource, i) {
			return false
		}
	}
	return true
}

// balanced prefers nodes whose resources would be used evenly.
type balanced struct {
	weights []resourceWeight
	devices framework.Devices
}

func newBalanced(raw []byte, h *framework.Handle) (framework.Plugin, error) {
	var args struct {
		metav1.TypeMeta `json:",inline"`
		Resources       []resourceSpec `json:"resources,omitempty"`
	}
	if err := decode(raw, BalancedAllocation, &args); err != nil {
		return nil, err
	}
	if err := invalid(BalancedAllocation, checkBalanced(args.Resources)); err != nil {
		return nil, err
	}
	return &balanced{weigh(args.Resources, h.Nodes), h.Devices}, nil
}

func (*balanced) Name() string                           { return BalancedAllocation }
func (*balanced) SpecOnly() bool                         { return true }
func (*balanced) ScoreScope() framework.Scope            { return framework.OnNodePods }
func (*balanced) Normalization() framework.Normalization { return framework.None }

// Wide implements framework.WideScore.
func (p *balanced) Wide(c *framework.Cycle) bool { return wide(c, p.weights, p.devices) }

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
		request := c.Pod.Request(w.resource)
		capacity, used := w.on(n, p.devices, i, request)
		if capacity == 0 || request == 0 && scalar(w.resource) {
			continue
		}
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
			request := c.Pod.Request(w.resource)
			capacity, used := w.on(n, p.devices, i, request)
			if capacity == 0 || request == 0 && scalar(w.resource) {
				continue
			}
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
