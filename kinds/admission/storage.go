package admission

import (
	"context"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/component-helpers/storage/volume"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/kind"
)

// storageProtection puts a finalizer on new volumes, claims and volume attributes classes, so that one which is in use stays until it is not. The volume protection loop takes it off.
type storageProtection struct{}

func (storageProtection) Name() string { return "StorageObjectInUseProtection" }

func (storageProtection) Mutate(_ context.Context, _ kind.Env, r *kind.AdmissionRequest) error {
	var finalizer string
	switch {
	case r.Object == nil:
		return nil
	case on(r, "", "persistentvolumeclaims", admissionv1.Create):
		finalizer = "kubernetes.io/pvc-protection"
	case on(r, "", "persistentvolumes", admissionv1.Create):
		finalizer = "kubernetes.io/pv-protection"
	case on(r, storagev1.GroupName, "volumeattributesclasses", admissionv1.Create):
		finalizer = "kubernetes.io/vac-protection"
	default:
		return nil
	}
	if have := r.Object.GetFinalizers(); !slices.Contains(have, finalizer) {
		r.Object.SetFinalizers(append(slices.Clone(have), finalizer))
	}
	return nil
}

// claimResize lets a claim grow only if it is bound and its class allows it.
type claimResize struct{}

func (claimResize) Name() string { return "PersistentVolumeClaimResize" }

func (claimResize) Validate(ctx context.Context, env kind.Env, r *kind.AdmissionRequest) error {
	if !on(r, "", "persistentvolumeclaims", admissionv1.Update) {
		return nil
	}
	claim, isClaim := r.Object.(*corev1.PersistentVolumeClaim)
	old, wasClaim := r.Old.(*corev1.PersistentVolumeClaim)
	if !isClaim || !wasClaim {
		return nil
	}
	size, before := claim.Spec.Resources.Requests[corev1.ResourceStorage], old.Spec.Resources.Requests[corev1.ResourceStorage]
	if size.Cmp(before) <= 0 {
		return nil
	}
	if old.Status.Phase != corev1.ClaimBound {
		return forbid(r, "Only bound persistent volume claims can be expanded")
	}
	name := volume.GetPersistentVolumeClaimClass(claim)
	if name != "" && name == volume.GetPersistentVolumeClaimClass(old) {
		class, err := get[*storagev1.StorageClass](ctx, env, storagev1.GroupName, "storageclasses", "", name)
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		if err == nil && ptr.Deref(class.AllowVolumeExpansion, false) {
			return nil
		}
	}
	return forbid(r, "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize")
}

// podTopology gives a pod the labels of its node's zone and region when it is bound, so that the downward API can tell them (KEP-4742).
type podTopology struct{}

func (podTopology) Name() string { return "PodTopologyLabels" }

func (podTopology) Mutate(ctx context.Context, env kind.Env, r *kind.AdmissionRequest) error {
	if pod, ok := r.Object.(*corev1.Pod); ok && on(r, "", "pods", admissionv1.Create) && pod.Spec.NodeName != "" {
		labels, err := topology(ctx, env, pod.Spec.NodeName)
		pod.Labels = withAll(pod.Labels, labels)
		return err
	}
	if b, ok := r.Body.(*corev1.Binding); ok && onSub(r, "", "pods", "binding", admissionv1.Create) && b.Target.Kind == "Node" {
		labels, err := topology(ctx, env, b.Target.Name)
		b.Labels = withAll(b.Labels, labels)
		return err
	}
	return nil
}

// topology is where a node is; nothing for one that does not exist.
func topology(ctx context.Context, env kind.Env, name string) (map[string]string, error) {
	node, err := get[*corev1.Node](ctx, env, "", "nodes", "", name)
	if err != nil {
		if apierrors.IsNotFound(err) {
			err = nil
		}
		return nil, err
	}
	out := map[string]string{}
	for _, key := range []string{corev1.LabelTopologyZone, corev1.LabelTopologyRegion} {
		if v, ok := node.Labels[key]; ok {
			out[key] = v
		}
	}
	return out, nil
}

func withAll(to, from map[string]string) map[string]string {
	if len(from) == 0 {
		return to
	}
	out := map[string]string{}
	for k, v := range to {
		out[k] = v
	}
	for k, v := range from {
		out[k] = v
	}
	return out
}
