package core

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/yare-project/yare/kind"
)

var podResource = schema.GroupResource{Resource: "pods"}

// Binding is the older form of pods/binding: the same request without the pod's name in the URL.
var _ = kind.Add(&Group, kind.Def[corev1.Binding]{
	Names: kind.Names{Plural: "bindings"},
	Answer: func(ctx context.Context, env kind.Env, b *corev1.Binding) (*corev1.Binding, error) {
		if b.Name == "" {
			return nil, apierrors.NewBadRequest("Name parameter required.")
		}
		return b, bind(ctx, env, b.Namespace, b.Name, b, kind.DryRun(ctx))
	},
})

// createBinding answers POST pods/<name>/binding.
func createBinding(ctx context.Context, env kind.Env, pod *corev1.Pod, body runtime.Object, opts metav1.CreateOptions) (runtime.Object, error) {
	b, ok := body.(*corev1.Binding)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("not a Binding object: %T", body))
	}
	if b.Name != pod.Name {
		return nil, apierrors.NewBadRequest("name in URL does not match name in Binding object")
	}
	if err := bind(ctx, env, pod.Namespace, pod.Name, b, isDryRun(opts.DryRun)); err != nil {
		return nil, err
	}
	return &metav1.Status{Status: metav1.StatusSuccess}, nil
}

// bind assigns a pod to a node, if it waits for one. A conflict says why it does not.
func bind(ctx context.Context, env kind.Env, namespace, name string, b *corev1.Binding, dryRun bool) error {
	var p problems
	if b.Target.Kind != "" && b.Target.Kind != "Node" {
		p.add(field.NotSupported(field.NewPath("target", "kind"), b.Target.Kind, []string{"Node", "<empty>"}))
	}
	p.needs(field.NewPath("target", "name"), b.Target.Name)
	if len(p.list) > 0 {
		return apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Binding").GroupKind(), name, p.list)
	}
	assign := func(obj kind.Object) error {
		pod, ok := obj.(*corev1.Pod)
		if !ok {
			return fmt.Errorf("pods hold a %T", obj)
		}
		if why := unbindable(pod, b); why != "" {
			return apierrors.NewConflict(schema.GroupResource{Resource: "pods/binding"}, name, fmt.Errorf("%s", why))
		}
		applyBinding(pod, b, timestamp(env))
		return nil
	}
	if dryRun {
		obj, err := env.Get(ctx, podResource, namespace, name)
		if err != nil {
			return err
		}
		return assign(obj.DeepCopyObject().(kind.Object))
	}
	_, err := env.ChangeShallow(ctx, podResource, namespace, name, assign)
	return err
}

func unbindable(pod *corev1.Pod, b *corev1.Binding) string {
	switch {
	case b.UID != "" && b.UID != pod.UID:
		return fmt.Sprintf("Precondition failed: UID in precondition: %v, UID in object meta: %v", b.UID, pod.UID)
	case b.ResourceVersion != "" && b.ResourceVersion != pod.ResourceVersion:
		return fmt.Sprintf("Precondition failed: ResourceVersion in precondition: %v, ResourceVersion in object meta: %v", b.ResourceVersion, pod.ResourceVersion)
	case pod.DeletionTimestamp != nil:
		return fmt.Sprintf("pod %s is being deleted, cannot be assigned to a host", pod.Name)
	case pod.Spec.NodeName != "":
		return fmt.Sprintf("pod %v is already assigned to node %q", pod.Name, pod.Spec.NodeName)
	case len(pod.Spec.SchedulingGates) > 0:
		return fmt.Sprintf("pod %v has non-empty .spec.schedulingGates", pod.Name)
	}
	return ""
}

// applyBinding changes the pod's own fields; maps and lists are set anew.
func applyBinding(pod *corev1.Pod, b *corev1.Binding, now metav1.Time) {
	pod.Spec.NodeName = b.Target.Name
	pod.Status.Conditions = slices.Clone(pod.Status.Conditions)
	pod.Status.NominatedNodeName = ""
	pod.Annotations = withAll(pod.Annotations, b.Annotations)
	pod.Labels = withAll(pod.Labels, b.Labels)
	setPodCondition(&pod.Status, corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, ObservedGeneration: pod.Generation}, now)
}

// withAll is to with all of from, in a map of its own if there are any.
func withAll(to, from map[string]string) map[string]string {
	if len(from) == 0 {
		return to
	}
	out := make(map[string]string, len(to)+len(from))
	maps.Copy(out, to)
	maps.Copy(out, from)
	return out
}

func isDryRun(values []string) bool { return slices.Contains(values, metav1.DryRunAll) }

// matches checks the preconditions of a delete.
func matches(pre *metav1.Preconditions, uid types.UID, version string) bool {
	return pre == nil || (pre.UID == nil || *pre.UID == uid) && (pre.ResourceVersion == nil || *pre.ResourceVersion == version)
}
