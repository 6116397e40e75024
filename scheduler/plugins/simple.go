package plugins

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/yare-project/yare/scheduler/framework"
)

// prioritySort takes pods of higher priority first, then those that wait longer.
type prioritySort struct{}

func (prioritySort) Name() string { return PrioritySort }

func (prioritySort) Less(a, b framework.QueueItem) bool {
	if a.Pod.Priority != b.Pod.Priority {
		return a.Pod.Priority > b.Pod.Priority
	}
	return a.Since.Before(b.Since)
}

// gates holds back pods with spec.schedulingGates.
type gates struct{}

func (gates) Name() string { return SchedulingGates }

func (gates) PreEnqueue(p *framework.Pod) *framework.Status {
	if len(p.Object.Spec.SchedulingGates) == 0 {
		return nil
	}
	var names []string
	for _, g := range p.Object.Spec.SchedulingGates {
		names = append(names, g.Name)
	}
	return framework.Refuse(framework.Unresolvable, SchedulingGates, fmt.Sprintf("waiting for scheduling gates: %v", names))
}

func (gates) Events() framework.EventKind                 { return framework.SelfChanged }
func (gates) Helps(*framework.Pod, *framework.Event) bool { return true }

// unschedulable keeps pods from nodes with spec.unschedulable, unless they tolerate its taint.
type unschedulable struct{}

var isUnschedulable = framework.Refuse(framework.Unresolvable, NodeUnschedulable, "node(s) were unschedulable")

var unschedulableTaint = corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}

func (unschedulable) Name() string                 { return NodeUnschedulable }
func (unschedulable) SpecOnly() bool               { return true }
func (unschedulable) FilterScope() framework.Scope { return framework.OnNode }

func (unschedulable) Filter(c *framework.Cycle, i int) *framework.Status {
	if c.Nodes.Object[i].Spec.Unschedulable && !tolerates(c.Pod.Object.Spec.Tolerations, &unschedulableTaint) {
		return isUnschedulable
	}
	return nil
}

func (unschedulable) Events() framework.EventKind { return framework.NodeAdded | framework.NodeTaints }
func (unschedulable) Helps(_ *framework.Pod, e *framework.Event) bool {
	return e.Node == nil || !e.Node.Spec.Unschedulable
}

// nodeName honours spec.nodeName of a pod that is yet to be scheduled, which only simulations have.
type nodeName struct{}

var otherName = framework.Refuse(framework.Unresolvable, NodeName, "node(s) didn't match the requested node name")

func (nodeName) Name() string                 { return NodeName }
func (nodeName) SpecOnly() bool               { return true }
func (nodeName) FilterScope() framework.Scope { return framework.OnNode }

func (nodeName) Filter(c *framework.Cycle, i int) *framework.Status {
	if want := c.Pod.Object.Spec.NodeName; want != "" && want != c.Nodes.Name[i] {
		return otherName
	}
	return nil
}

func (nodeName) Events() framework.EventKind { return framework.NodeAdded }
func (nodeName) Helps(p *framework.Pod, e *framework.Event) bool {
	return e.Node == nil || p.Object.Spec.NodeName == "" || p.Object.Spec.NodeName == e.Node.Name
}

// taints keeps pods from nodes with taints that they don't tolerate, and prefers nodes without PreferNoSchedule taints.
type taints struct{}

var tainted = framework.Refuse(framework.Unresolvable, TaintToleration, "node(s) had untolerated taint(s)")

func (taints) Name() string                           { return TaintToleration }
func (taints) SpecOnly() bool                         { return true }
func (taints) FilterScope() framework.Scope           { return framework.OnNode }
func (taints) ScoreScope() framework.Scope            { return framework.OnNode }
func (taints) Normalization() framework.Normalization { return framework.ByMaxReversed }

func (taints) Filter(c *framework.Cycle, i int) *framework.Status {
	if untolerated(c.Pod.Object, c.Nodes.Object[i]) {
		return tainted
	}
	return nil
}

// untolerated tells whether the node has a taint that keeps the pod away.
func untolerated(pod *corev1.Pod, node *corev1.Node) bool {
	for k := range node.Spec.Taints {
		t := &node.Spec.Taints[k]
		if (t.Effect == corev1.TaintEffectNoSchedule || t.Effect == corev1.TaintEffectNoExecute) && !tolerates(pod.Spec.Tolerations, t) {
			return true
		}
	}
	return false
}

func (taints) Score(c *framework.Cycle, i int) int64 {
	var n int64
	for k := range c.Nodes.Object[i].Spec.Taints {
		t := &c.Nodes.Object[i].Spec.Taints[k]
		if t.Effect == corev1.TaintEffectPreferNoSchedule && !tolerates(c.Pod.Object.Spec.Tolerations, t) {
			n++
		}
	}
	return n
}

func (taints) Events() framework.EventKind {
	return framework.NodeAdded | framework.NodeTaints | framework.SelfChanged
}

func (taints) Helps(p *framework.Pod, e *framework.Event) bool {
	return e.Node == nil || !untolerated(p.Object, e.Node)
}

// tolerates follows the Toleration API. The comparison operators Lt and Gt are an alpha feature that is off in 1.36.
func tolerates(list []corev1.Toleration, t *corev1.Taint) bool {
	for i := range list {
		if list[i].ToleratesTaint(klog.Logger{}, t, false) {
			return true
		}
	}
	return false
}

// ports keeps pods from nodes where their host ports are taken.
type ports struct{}

var portTaken = framework.Refuse(framework.Unschedulable, NodePorts, "node(s) didn't have free ports for the requested pod ports")

func (ports) Name() string                 { return NodePorts }
func (ports) SpecOnly() bool               { return true }
func (ports) FilterScope() framework.Scope { return framework.OnNodePods }

func (ports) Filter(c *framework.Cycle, i int) *framework.Status {
	for _, want := range c.Pod.Ports {
		for taken := range c.Nodes.Ports[i] {
			if want.Conflicts(taken) {
				return portTaken
			}
		}
	}
	return nil
}

func (ports) Events() framework.EventKind { return framework.NodeAdded | framework.PodRemoved }
func (ports) Helps(p *framework.Pod, e *framework.Event) bool {
	if e.Pod == nil {
		return true
	}
	for _, want := range p.Ports {
		for _, freed := range e.Pod.Ports {
			if want.Conflicts(freed) {
				return true
			}
		}
	}
	return false
}

// binder binds through the pods/binding subresource.
type binder struct{ h *framework.Handle }

func newBinder(args []byte, h *framework.Handle) (framework.Plugin, error) {
	if h.Bind == nil {
		return nil, errors.New("plugin " + DefaultBinder + " needs Handle.Bind")
	}
	return binder{h}, decode(args, DefaultBinder, &struct {
		metav1.TypeMeta `json:",inline"`
	}{})
}

func (binder) Name() string { return DefaultBinder }

func (b binder) Bind(ctx context.Context, c *framework.Cycle, node string) *framework.Status {
	if err := b.h.Bind(ctx, c.Pod.Object, node); err != nil {
		return framework.Fail(DefaultBinder, err)
	}
	return nil
}
