package dra

import (
	"fmt"
	"slices"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// result writes down what was chosen for a claim, as its status has it.
func (d *demand) result(node *corev1.Node, picks []pick) *resourcev1.AllocationResult {
	out := &resourcev1.AllocationResult{NodeSelector: reach(node, picks)}
	for _, p := range picks {
		r := resourcev1.DeviceRequestAllocationResult{Request: p.request.name, Driver: p.device.id.Driver, Pool: p.device.id.Pool, Device: p.device.id.Device, Tolerations: p.request.tolerations,
			BindingConditions: p.device.spec.BindingConditions, BindingFailureConditions: p.device.spec.BindingFailureConditions}
		if p.request.admin {
			r.AdminAccess = ptr.To(true)
		}
		if p.device.shared() {
			r.ShareID = ptr.To(types.UID(uuid.NewString()))
			if len(p.take) > 0 {
				r.ConsumedCapacity = p.take
			}
		}
		out.Devices.Results = append(out.Devices.Results, r)
	}
	out.Devices.Config = d.config(chosen(d, picks))
	return out
}

// chosen is the alternative that was taken of each request.
func chosen(d *demand, picks []pick) []*request {
	var out []*request
	for _, alternatives := range d.requests {
		for _, r := range alternatives {
			if slices.ContainsFunc(picks, func(p pick) bool { return p.request == r }) {
				out = append(out, r)
				break
			}
		}
	}
	return out
}

// config hands on what classes and claim have to say to drivers: that of each class once, for all its requests.
func (d *demand) config(requests []*request) []resourcev1.DeviceAllocationConfiguration {
	var out []resourcev1.DeviceAllocationConfiguration
	from := map[string]int{}
	for _, r := range requests {
		at, done := from[r.class.Name]
		if done {
			for i := at; i < at+len(r.class.Spec.Config); i++ {
				out[i].Requests = append(out[i].Requests, r.name)
			}
			continue
		}
		from[r.class.Name] = len(out)
		for _, c := range r.class.Spec.Config {
			out = append(out, resourcev1.DeviceAllocationConfiguration{Source: resourcev1.AllocationConfigSourceClass, Requests: []string{r.name}, DeviceConfiguration: c.DeviceConfiguration})
		}
	}
	for _, c := range d.claim.Spec.Devices.Config {
		applies := len(c.Requests) == 0 || slices.ContainsFunc(requests, func(r *request) bool {
			return slices.Contains(c.Requests, r.name) || slices.Contains(c.Requests, r.base)
		})
		if applies {
			out = append(out, resourcev1.DeviceAllocationConfiguration{Source: resourcev1.AllocationConfigSourceClaim, Requests: c.Requests, DeviceConfiguration: c.DeviceConfiguration})
		}
	}
	return out
}

// reach says from which nodes all devices can be used: nil is all nodes.
func reach(node *corev1.Node, picks []pick) *corev1.NodeSelector {
	term := corev1.NodeSelectorTerm{}
	for _, p := range picks {
		name, selector := p.device.slice.Spec.NodeName, p.device.slice.Spec.NodeSelector
		if ptr.Deref(p.device.slice.Spec.PerDeviceNodeSelection, false) {
			name, selector = p.device.spec.NodeName, p.device.spec.NodeSelector
		}
		if ptr.Deref(name, "") != "" || ptr.Deref(p.device.spec.BindsToNode, false) {
			return &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{
				{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{node.Name}}}}}}
		}
		if selector != nil && len(selector.NodeSelectorTerms) == 1 { // the API allows no more
			term.MatchFields = join(term.MatchFields, selector.NodeSelectorTerms[0].MatchFields)
			term.MatchExpressions = join(term.MatchExpressions, selector.NodeSelectorTerms[0].MatchExpressions)
		}
	}
	if len(term.MatchFields) == 0 && len(term.MatchExpressions) == 0 {
		return nil
	}
	return &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{term}}
}

func join(list, more []corev1.NodeSelectorRequirement) []corev1.NodeSelectorRequirement {
	for _, m := range more {
		same := func(r corev1.NodeSelectorRequirement) bool {
			return r.Key == m.Key && r.Operator == m.Operator && fmt.Sprint(slices.Sorted(slices.Values(r.Values))) == fmt.Sprint(slices.Sorted(slices.Values(m.Values)))
		}
		if !slices.ContainsFunc(list, same) {
			list = append(list, m)
		}
	}
	return list
}

// rating prefers what was asked for first in prioritized lists.
func rating(d *demand, picks []pick) (score int64) {
	for _, r := range chosen(d, picks) {
		if r.name != r.base {
			score += int64(resourcev1.FirstAvailableDeviceRequestMaxSize - r.rank)
		}
	}
	return score
}
