package admission

import (
	"context"
	"maps"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/yare-project/yare/kind"
)

// runtimeClass writes into a new pod what its runtime class costs and where such pods can run.
type runtimeClass struct{}

func (runtimeClass) Name() string { return "RuntimeClass" }

func (runtimeClass) Mutate(ctx context.Context, env kind.Env, r *kind.AdmissionRequest) error {
	pod, class, err := podAndClass(ctx, env, r)
	if err != nil || class == nil {
		return err
	}
	if class.Overhead != nil {
		if len(pod.Spec.Overhead) > 0 && !equality.Semantic.DeepEqual(pod.Spec.Overhead, class.Overhead.PodFixed) {
			return forbid(r, "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead")
		}
		pod.Spec.Overhead = class.Overhead.PodFixed.DeepCopy()
	}
	if class.Scheduling != nil {
		return schedule(r, pod, class.Scheduling)
	}
	return nil
}

func schedule(r *kind.AdmissionRequest, pod *corev1.Pod, where *nodev1.Scheduling) error {
	selector := maps.Clone(pod.Spec.NodeSelector)
	for key, value := range where.NodeSelector {
		if have, ok := selector[key]; ok && have != value {
			return forbid(r, "conflict: runtimeClass.scheduling.nodeSelector[%s] = %s; pod.spec.nodeSelector[%s] = %s", key, value, key, have)
		}
		if selector == nil {
			selector = map[string]string{}
		}
		selector[key] = value
	}
	pod.Spec.NodeSelector = selector
	for _, t := range where.Tolerations {
		if !slices.ContainsFunc(pod.Spec.Tolerations, func(have corev1.Toleration) bool { return covers(have, t) }) {
			pod.Spec.Tolerations = append(pod.Spec.Tolerations, t)
		}
	}
	return nil
}

// covers tells whether a toleration tolerates everything that another one does.
func covers(have, other corev1.Toleration) bool {
	if equality.Semantic.DeepEqual(have, other) {
		return true
	}
	sameKey := have.Key == other.Key || have.Key == "" && have.Operator == corev1.TolerationOpExists
	sameEffect := have.Effect == other.Effect || have.Effect == ""
	sameValue := have.Operator == corev1.TolerationOpExists || have.Operator == other.Operator && have.Value == other.Value
	forever := have.TolerationSeconds == nil || other.TolerationSeconds != nil && *have.TolerationSeconds >= *other.TolerationSeconds
	return sameKey && sameEffect && sameValue && forever
}

func (runtimeClass) Validate(ctx context.Context, env kind.Env, r *kind.AdmissionRequest) error {
	pod, class, err := podAndClass(ctx, env, r)
	switch {
	case err != nil || pod == nil:
		return err
	case class == nil || class.Overhead == nil:
		if pod.Spec.Overhead != nil {
			return forbid(r, "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead")
		}
	case !equality.Semantic.DeepEqual(pod.Spec.Overhead, class.Overhead.PodFixed):
		return forbid(r, "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead")
	}
	return nil
}

// podAndClass returns a new pod and its runtime class, if it names one.
func podAndClass(ctx context.Context, env kind.Env, r *kind.AdmissionRequest) (*corev1.Pod, *nodev1.RuntimeClass, error) {
	pod, ok := r.Object.(*corev1.Pod)
	if !ok || !on(r, "", "pods", admissionv1.Create) {
		return nil, nil, nil
	}
	if pod.Spec.RuntimeClassName == nil {
		return pod, nil, nil
	}
	class, err := get[*nodev1.RuntimeClass](ctx, env, nodev1.GroupName, "runtimeclasses", "", *pod.Spec.RuntimeClassName)
	if apierrors.IsNotFound(err) {
		return pod, nil, forbid(r, "pod rejected: RuntimeClass %q not found", *pod.Spec.RuntimeClassName)
	}
	return pod, class, err
}
