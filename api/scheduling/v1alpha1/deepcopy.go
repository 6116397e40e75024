package v1alpha1

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
)

// DeepCopy copies all of it.
func (p *SchedulingPolicy) DeepCopy() *SchedulingPolicy {
	if p == nil {
		return nil
	}
	out := *p
	p.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Spec = *p.Spec.DeepCopy()
	out.Status = *p.Status.DeepCopy()
	return &out
}

// DeepCopyObject implements runtime.Object.
func (p *SchedulingPolicy) DeepCopyObject() runtime.Object {
	if p == nil {
		return nil
	}
	return p.DeepCopy()
}

// DeepCopy copies all of it.
func (s *SchedulingPolicySpec) DeepCopy() *SchedulingPolicySpec {
	if s == nil {
		return nil
	}
	out := *s
	out.PodSelector, out.NamespaceSelector = s.PodSelector.DeepCopy(), s.NamespaceSelector.DeepCopy()
	out.SchedulerNames, out.Variables = slices.Clone(s.SchedulerNames), slices.Clone(s.Variables)
	out.Filters, out.Scores = slices.Clone(s.Filters), slices.Clone(s.Scores)
	for i := range out.Scores {
		out.Scores[i] = *s.Scores[i].DeepCopy()
	}
	return &out
}

// DeepCopy copies all of it.
func (s *PolicyScore) DeepCopy() *PolicyScore {
	if s == nil {
		return nil
	}
	out := *s
	if s.Worst != nil {
		worst := s.Worst.DeepCopy()
		out.Worst = &worst
	}
	if s.Best != nil {
		best := s.Best.DeepCopy()
		out.Best = &best
	}
	return &out
}

// DeepCopy copies all of it.
func (s *SchedulingPolicyStatus) DeepCopy() *SchedulingPolicyStatus {
	if s == nil {
		return nil
	}
	out := *s
	out.Conditions = slices.Clone(s.Conditions)
	return &out
}

// DeepCopy copies all of it.
func (l *SchedulingPolicyList) DeepCopy() *SchedulingPolicyList {
	if l == nil {
		return nil
	}
	out := *l
	l.ListMeta.DeepCopyInto(&out.ListMeta)
	out.Items = slices.Clone(l.Items)
	for i := range out.Items {
		out.Items[i] = *l.Items[i].DeepCopy()
	}
	return &out
}

// DeepCopyObject implements runtime.Object.
func (l *SchedulingPolicyList) DeepCopyObject() runtime.Object {
	if l == nil {
		return nil
	}
	return l.DeepCopy()
}
