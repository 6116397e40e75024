package quota

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// InScope tells whether an object is among those that a quota is about: all of its scopes must hold. A kind that scopes say nothing about is in no
// quota that has any.
func InScope(q *corev1.ResourceQuota, obj Object) bool {
	for _, s := range q.Spec.Scopes {
		if !holds(corev1.ScopedResourceSelectorRequirement{ScopeName: s, Operator: corev1.ScopeSelectorOpExists}, obj) {
			return false
		}
	}
	if q.Spec.ScopeSelector == nil {
		return true
	}
	return !slices.ContainsFunc(q.Spec.ScopeSelector.MatchExpressions, func(r corev1.ScopedResourceSelectorRequirement) bool { return !holds(r, obj) })
}

func holds(r corev1.ScopedResourceSelectorRequirement, obj Object) bool {
	switch o := obj.(type) {
	case *corev1.Pod:
		return podHolds(r, o)
	case *corev1.PersistentVolumeClaim:
		return r.ScopeName == corev1.ResourceQuotaScopeVolumeAttributesClass && selects(r, attributesClasses(o))
	}
	return false
}

func podHolds(r corev1.ScopedResourceSelectorRequirement, pod *corev1.Pod) bool {
	switch r.ScopeName {
	case corev1.ResourceQuotaScopeTerminating:
		return Terminating(pod)
	case corev1.ResourceQuotaScopeNotTerminating:
		return !Terminating(pod)
	case corev1.ResourceQuotaScopeBestEffort:
		return bestEffort(pod)
	case corev1.ResourceQuotaScopeNotBestEffort:
		return !bestEffort(pod)
	case corev1.ResourceQuotaScopePriorityClass:
		var class []string
		if pod.Spec.PriorityClassName != "" {
			class = []string{pod.Spec.PriorityClassName}
		}
		return selects(r, class)
	case corev1.ResourceQuotaScopeCrossNamespacePodAffinity:
		return looksElsewhere(pod.Spec.Affinity)
	}
	return false
}

// Terminating tells whether a pod ends by itself: it has a deadline.
func Terminating(pod *corev1.Pod) bool {
	return pod.Spec.ActiveDeadlineSeconds != nil && *pod.Spec.ActiveDeadlineSeconds >= 0
}

var operators = map[corev1.ScopeSelectorOperator]selection.Operator{
	corev1.ScopeSelectorOpIn: selection.In, corev1.ScopeSelectorOpNotIn: selection.NotIn,
	corev1.ScopeSelectorOpExists: selection.Exists, corev1.ScopeSelectorOpDoesNotExist: selection.DoesNotExist,
}

// selects tells whether a requirement holds for one of the values, or for there being none.
func selects(r corev1.ScopedResourceSelectorRequirement, values []string) bool {
	req, err := labels.NewRequirement(string(r.ScopeName), operators[r.Operator], r.Values)
	if err != nil {
		return false // validation lets no such requirement in
	}
	if len(values) == 0 {
		return req.Matches(labels.Set{})
	}
	return slices.ContainsFunc(values, func(v string) bool { return req.Matches(labels.Set{string(r.ScopeName): v}) })
}

// bestEffort tells whether a pod asks for no CPU and no memory at all.
func bestEffort(pod *corev1.Pod) bool {
	if pod.Status.QOSClass != "" {
		return pod.Status.QOSClass == corev1.PodQOSBestEffort
	}
	asks := func(r *corev1.ResourceRequirements) bool {
		for _, l := range []corev1.ResourceList{r.Requests, r.Limits} {
			if !l.Cpu().IsZero() || !l.Memory().IsZero() {
				return true
			}
		}
		return false
	}
	any := func(c corev1.Container) bool { return asks(&c.Resources) }
	return (pod.Spec.Resources == nil || !asks(pod.Spec.Resources)) && !slices.ContainsFunc(pod.Spec.Containers, any) &&
		!slices.ContainsFunc(pod.Spec.InitContainers, any)
}

// looksElsewhere tells whether an affinity is about pods of other namespaces.
func looksElsewhere(a *corev1.Affinity) bool {
	if a == nil {
		return false
	}
	var terms []corev1.PodAffinityTerm
	var weighted []corev1.WeightedPodAffinityTerm
	if p := a.PodAffinity; p != nil {
		terms = append(terms, p.RequiredDuringSchedulingIgnoredDuringExecution...)
		weighted = append(weighted, p.PreferredDuringSchedulingIgnoredDuringExecution...)
	}
	if p := a.PodAntiAffinity; p != nil {
		terms = append(terms, p.RequiredDuringSchedulingIgnoredDuringExecution...)
		weighted = append(weighted, p.PreferredDuringSchedulingIgnoredDuringExecution...)
	}
	for _, w := range weighted {
		terms = append(terms, w.PodAffinityTerm)
	}
	return slices.ContainsFunc(terms, func(t corev1.PodAffinityTerm) bool { return len(t.Namespaces) > 0 || t.NamespaceSelector != nil })
}

// attributesClasses are the classes that a claim has, had or shall have.
func attributesClasses(c *corev1.PersistentVolumeClaim) []string {
	var out []string
	for _, name := range []*string{c.Spec.VolumeAttributesClassName, c.Status.CurrentVolumeAttributesClassName} {
		if name != nil && *name != "" {
			out = append(out, *name)
		}
	}
	if m := c.Status.ModifyVolumeStatus; m != nil && m.TargetVolumeAttributesClassName != "" {
		out = append(out, m.TargetVolumeAttributesClassName)
	}
	return out
}
