package core

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const betaMountOptions = "volume.beta.kubernetes.io/mount-options"

// warnVolume says what of a volume is accepted but no longer meant to be used, or no longer works.
func warnVolume(v *corev1.PersistentVolume) []string {
	w := &warnings{}
	spec, annotations := field.NewPath("spec"), field.NewPath("metadata", "annotations")
	if _, set := v.Annotations[corev1.BetaStorageClassAnnotation]; set {
		w.at(annotations.Key(corev1.BetaStorageClassAnnotation), `deprecated since v1.8; use "storageClassName" attribute instead`)
	}
	if _, set := v.Annotations[betaMountOptions]; set {
		w.at(annotations.Key(betaMountOptions), `deprecated since v1.31; use "mountOptions" attribute instead`)
	}
	if v.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRecycle {
		w.at(spec.Child("persistentVolumeReclaimPolicy"), "The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic provisioning.")
	}
	if a := v.Spec.NodeAffinity; a != nil && a.Required != nil {
		for i := range a.Required.NodeSelectorTerms {
			w.nodeTerm(&a.Required.NodeSelectorTerms[i], spec.Child("nodeAffinity", "required", "nodeSelectorTerms").Index(i))
		}
	}
	for _, gone := range []struct {
		used       bool
		name, what string
	}{
		{v.Spec.CephFS != nil, "cephfs", "deprecated in v1.28, non-functional in v1.31+"},
		{v.Spec.PhotonPersistentDisk != nil, "photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"},
		{v.Spec.ScaleIO != nil, "scaleIO", "deprecated in v1.16, non-functional in v1.22+"},
		{v.Spec.StorageOS != nil, "storageOS", "deprecated in v1.22, non-functional in v1.25+"},
		{v.Spec.Glusterfs != nil, "glusterfs", "deprecated in v1.25, non-functional in v1.26+"},
		{v.Spec.RBD != nil, "rbd", "deprecated in v1.28, non-functional in v1.31+"},
	} {
		if gone.used {
			w.at(spec.Child(gone.name), "%s", gone.what)
		}
	}
	return w.list
}

// warnClaim is warnVolume for claims.
func warnClaim(c *corev1.PersistentVolumeClaim) []string {
	w := &warnings{}
	if _, set := c.Annotations[corev1.BetaStorageClassAnnotation]; set {
		w.at(field.NewPath("metadata", "annotations").Key(corev1.BetaStorageClassAnnotation), `deprecated since v1.8; use "storageClassName" attribute instead`)
	}
	return append(w.list, WarnClaimSpec(&c.Spec, field.NewPath("spec"))...)
}

// WarnClaimSpec warns of sizes that are no whole number of bytes, in a claim or a template of claims.
func WarnClaimSpec(spec *corev1.PersistentVolumeClaimSpec, path *field.Path) []string {
	w := &warnings{}
	w.fractionsOf(spec.Resources.Requests, path.Child("resources", "requests"), corev1.ResourceStorage)
	w.fractionsOf(spec.Resources.Limits, path.Child("resources", "limits"), corev1.ResourceStorage)
	return w.list
}
