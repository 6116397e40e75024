package policy

import (
	"maps"
	"math"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/yare-project/yare/api/scheduling/v1alpha1"
	"github.com/yare-project/yare/internal/nodeexpr"
	"github.com/yare-project/yare/scheduler/framework"
)

// podValue is what expressions see of a pod: only what makes its class.
func podValue(p *framework.Pod, n *framework.Nodes) map[string]any {
	o := p.Object
	v := &nodeexpr.Pod{Namespace: o.Namespace, SchedulerName: o.Spec.SchedulerName, Labels: template(o.Labels), Annotations: template(o.Annotations),
		NodeSelector: o.Spec.NodeSelector, Priority: int64(p.Priority), Requests: map[string]float64{}}
	for _, a := range p.Requests {
		v.Requests[string(n.ResourceName(a.Resource))] = natural(a.Resource, a.Value)
	}
	for _, list := range [][]corev1.Container{o.Spec.InitContainers, o.Spec.Containers} {
		for i := range list {
			v.Images = append(v.Images, list[i].Image)
		}
	}
	return v.Value()
}

// numbered are the labels and annotations by which controllers number the pods of one template.
var numbered = []string{appsv1.StatefulSetPodNameLabel, appsv1.PodIndexLabel, batchv1.JobCompletionIndexAnnotation}

// template is m without what differs among the pods of one template.
func template(m map[string]string) map[string]string {
	out := m
	for _, key := range numbered {
		if _, has := m[key]; !has {
			continue
		}
		if len(out) == len(m) {
			out = maps.Clone(m)
		}
		delete(out, key)
	}
	return out
}

func nodeValue(n *framework.Nodes, i int) map[string]any {
	o := n.Object[i]
	v := &nodeexpr.Node{Name: o.Name, Labels: o.Labels, Annotations: o.Annotations, Unschedulable: o.Spec.Unschedulable, Conditions: map[string]string{},
		Allocatable: map[string]float64{}, Requested: map[string]float64{}}
	for _, c := range o.Status.Conditions {
		v.Conditions[string(c.Type)] = string(c.Status)
	}
	for r := range n.Allocatable {
		name := string(n.ResourceName(r))
		if _, has := o.Status.Allocatable[n.ResourceName(r)]; has || n.Used[r][i] != 0 {
			v.Allocatable[name], v.Requested[name] = natural(r, n.Allocatable[r][i]), natural(r, n.Used[r][i])
		}
	}
	return v.Value()
}

// natural is an amount in cores, bytes or units.
func natural(resource int, v int64) float64 {
	if resource == framework.CPU {
		return float64(v) / 1000
	}
	return float64(v)
}

// metrics are the numbers of a node. An annotation that is no finite number is none.
func (b *Book) metrics(i int) map[string]float64 {
	out := map[string]float64{}
	for _, source := range b.outside {
		maps.Copy(out, source[b.nodes.Name[i]])
	}
	for key, text := range b.nodes.Object[i].Annotations {
		name, ok := strings.CutPrefix(key, v1alpha1.MetricPrefix)
		if !ok {
			continue
		}
		if x, err := strconv.ParseFloat(text, 64); err == nil && !math.IsNaN(x) && !math.IsInf(x, 0) {
			out[name] = x
		}
	}
	return out
}

func (b *Book) input(p *framework.Pod, i int) *nodeexpr.Input {
	return &nodeexpr.Input{
		Pod:     func() map[string]any { return podValue(p, b.nodes) },
		Node:    func() map[string]any { return nodeValue(b.nodes, i) },
		Metrics: func() map[string]float64 { return b.metrics(i) },
	}
}
