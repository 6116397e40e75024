package plugins

import (
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/yare-project/yare/scheduler/framework"
)

// affinity honours spec.nodeSelector and node affinity, required and preferred.
type affinity struct {
	added     *nodeaffinity.NodeSelector // what the profile asks on top
	preferred *nodeaffinity.PreferredSchedulingTerms
}

type affinityArgs struct {
	metav1.TypeMeta `json:",inline"`
	AddedAffinity   *corev1.NodeAffinity `json:"addedAffinity,omitempty"`
}

var (
	otherNode       = framework.Refuse(framework.Unresolvable, NodeAffinity, "node(s) didn't match Pod's node affinity/selector")
	notForScheduler = framework.Refuse(framework.Unresolvable, NodeAffinity, "node(s) didn't match scheduler-enforced node affinity")
	conflicting     = framework.Refuse(framework.Unresolvable, NodeAffinity, "pod affinity terms conflict")
)

func newAffinity(raw []byte, _ *framework.Handle) (framework.Plugin, error) {
	var args affinityArgs
	if err := decode(raw, NodeAffinity, &args); err != nil {
		return nil, err
	}
	p := &affinity{}
	if args.AddedAffinity == nil {
		return p, nil
	}
	var err, err2 error
	path := field.NewPath("addedAffinity")
	if r := args.AddedAffinity.RequiredDuringSchedulingIgnoredDuringExecution; r != nil {
		p.added, err = nodeaffinity.NewNodeSelector(r, field.WithPath(path.Child("requiredDuringSchedulingIgnoredDuringExecution")))
	}
	if w := args.AddedAffinity.PreferredDuringSchedulingIgnoredDuringExecution; len(w) > 0 {
		p.preferred, err2 = nodeaffinity.NewPreferredSchedulingTerms(w, field.WithPath(path.Child("preferredDuringSchedulingIgnoredDuringExecution")))
	}
	if err = errors.Join(err, err2); err != nil {
		return nil, fmt.Errorf("arguments of plugin %s: %w", NodeAffinity, err)
	}
	return p, nil
}

func (*affinity) Name() string                           { return NodeAffinity }
func (*affinity) SpecOnly() bool                         { return true }
func (*affinity) FilterScope() framework.Scope           { return framework.OnNode }
func (*affinity) ScoreScope() framework.Scope            { return framework.OnNode }
func (*affinity) Normalization() framework.Normalization { return framework.ByMax }

// PreFilter spares judging all nodes when the pod names the ones it may go to, as pods of DaemonSets do.
func (p *affinity) PreFilter(c *framework.Cycle) *framework.Status {
	names, ok := namedNodes(&c.Pod.Object.Spec)
	switch {
	case ok && len(names) == 0:
		return conflicting
	case ok:
		c.Restrict(NodeAffinity, names...)
	}
	return nil
}

// namedNodes lists the nodes that a pod's required affinity names, if each of its terms does.
func namedNodes(s *corev1.PodSpec) (names []string, ok bool) {
	if s.Affinity == nil || s.Affinity.NodeAffinity == nil || s.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return nil, false
	}
	terms := s.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	for _, t := range terms {
		var of []string
		for _, f := range t.MatchFields {
			if f.Key != metav1.ObjectNameField || f.Operator != corev1.NodeSelectorOpIn {
				continue
			}
			if of == nil {
				of = f.Values
			} else {
				of = slices.DeleteFunc(slices.Clone(of), func(v string) bool { return !slices.Contains(f.Values, v) })
			}
		}
		if of == nil {
			return nil, false
		}
		names = append(names, of...)
	}
	return names, len(terms) > 0
}

func (p *affinity) Filter(c *framework.Cycle, i int) *framework.Status {
	node := c.Nodes.Object[i]
	if p.added != nil && !p.added.Match(node) {
		return notForScheduler
	}
	// A selector that can't be parsed matches nothing; the API refuses such pods.
	if ok, err := c.Pod.Required().Match(node); !ok || err != nil {
		return otherNode
	}
	return nil
}

func (p *affinity) Score(c *framework.Cycle, i int) int64 {
	var sum int64
	if p.preferred != nil {
		sum = p.preferred.Score(c.Nodes.Object[i])
	}
	if w := c.Pod.Preferred(); w != nil {
		sum += w.Score(c.Nodes.Object[i])
	}
	return sum
}

func (*affinity) Events() framework.EventKind { return framework.NodeAdded | framework.NodeLabels }

func (p *affinity) Helps(pod *framework.Pod, e *framework.Event) bool {
	if e.Node == nil {
		return true
	}
	ok, err := pod.Required().Match(e.Node)
	return ok && err == nil && (p.added == nil || p.added.Match(e.Node))
}
