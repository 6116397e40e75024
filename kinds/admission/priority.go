package admission

import (
	"context"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/kind"
)

// priority turns a pod's priority class into a number and a preemption policy, and sees to it that there is one default class at most.
type priority struct{}

func (priority) Name() string { return "Priority" }

func (priority) Mutate(ctx context.Context, env kind.Env, r *kind.AdmissionRequest) error {
	pod, ok := r.Object.(*corev1.Pod)
	switch {
	case !ok:
		return nil
	case on(r, "", "pods", admissionv1.Create):
		class, err := classOf(ctx, env, r, pod.Spec.PriorityClassName)
		if err != nil {
			return err
		}
		return apply(r, pod, class)
	case on(r, "", "pods", admissionv1.Update):
		// A client that does not know the fields leaves them out, which shall not change them.
		if old, ok := r.Old.(*corev1.Pod); ok {
			if pod.Spec.Priority == nil && old.Spec.Priority != nil {
				pod.Spec.Priority = ptr.To(*old.Spec.Priority)
			}
			if pod.Spec.PreemptionPolicy == nil && old.Spec.PreemptionPolicy != nil {
				pod.Spec.PreemptionPolicy = ptr.To(*old.Spec.PreemptionPolicy)
			}
		}
	}
	return nil
}

// classOf is the class of that name, or the default class, or what holds when there is none.
func classOf(ctx context.Context, env kind.Env, r *kind.AdmissionRequest, name string) (*schedulingv1.PriorityClass, error) {
	if name != "" {
		class, err := get[*schedulingv1.PriorityClass](ctx, env, schedulingv1.GroupName, "priorityclasses", "", name)
		if apierrors.IsNotFound(err) {
			return nil, forbid(r, "no PriorityClass with name %v was found", name)
		}
		return class, err
	}
	class, err := defaultClass(ctx, env)
	if err != nil || class != nil {
		return class, err
	}
	return &schedulingv1.PriorityClass{PreemptionPolicy: ptr.To(corev1.PreemptLowerPriority)}, nil
}

// defaultClass is the default class with the lowest value, should a race have made several.
func defaultClass(ctx context.Context, env kind.Env) (*schedulingv1.PriorityClass, error) {
	classes, err := list[*schedulingv1.PriorityClass](ctx, env, schedulingv1.GroupName, "priorityclasses", "")
	if err != nil {
		return nil, fmt.Errorf("error occurred while retrieving default priority class: %w", err)
	}
	var found *schedulingv1.PriorityClass
	for _, c := range classes {
		if c.GlobalDefault && (found == nil || c.Value < found.Value) {
			found = c
		}
	}
	return found, nil
}

func apply(r *kind.AdmissionRequest, pod *corev1.Pod, class *schedulingv1.PriorityClass) error {
	if p := pod.Spec.Priority; p != nil && *p != class.Value {
		return forbid(r, "the integer value of priority (%d) must not be provided in pod spec; priority admission controller computed %d from the given PriorityClass name", *p, class.Value)
	}
	if have, want := pod.Spec.PreemptionPolicy, class.PreemptionPolicy; have != nil && want != nil && *have != *want {
		return forbid(r, "the string value of PreemptionPolicy (%s) must not be provided in pod spec; priority admission controller computed %s from the given PriorityClass name", *have, *want)
	}
	pod.Spec.PriorityClassName = class.Name
	pod.Spec.Priority = ptr.To(class.Value)
	if class.PreemptionPolicy != nil {
		pod.Spec.PreemptionPolicy = ptr.To(*class.PreemptionPolicy)
	}
	return nil
}

func (priority) Validate(ctx context.Context, env kind.Env, r *kind.AdmissionRequest) error {
	class, ok := r.Object.(*schedulingv1.PriorityClass)
	if !ok || !class.GlobalDefault || !on(r, schedulingv1.GroupName, "priorityclasses", admissionv1.Create, admissionv1.Update) {
		return nil
	}
	other, err := defaultClass(ctx, env)
	if err != nil {
		return err
	}
	if other != nil && (r.Operation == admissionv1.Create || other.Name != class.Name) {
		return forbid(r, "PriorityClass %v is already marked as default. Only one default can exist", other.Name)
	}
	return nil
}
