package persistentvolume

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/storage/volume"
	"k8s.io/utils/ptr"
)

// match finds the volume for a claim that names none: one of those that are reserved for it, else the smallest that is large enough among the free ones with
// the fewest access modes. delay leaves free ones to the scheduler.
func match(c *corev1.PersistentVolumeClaim, reserved, free []*corev1.PersistentVolume, delay bool) (*corev1.PersistentVolume, error) {
	unsuited := func(v *corev1.PersistentVolume) bool { return !volume.CheckAccessModes(c, v) }
	if v, err := volume.FindMatchingVolume(c, slices.DeleteFunc(reserved, unsuited), nil, nil, delay, true); v != nil || err != nil || delay {
		return v, err
	}
	free = slices.DeleteFunc(free, unsuited)
	modes := func(v *corev1.PersistentVolume) int { return len(v.Spec.AccessModes) }
	// The name decides among equals, so that the choice does not depend on the order of a cache.
	slices.SortFunc(free, func(a, b *corev1.PersistentVolume) int {
		return cmp.Or(cmp.Compare(modes(a), modes(b)), cmp.Compare(a.Name, b.Name))
	})
	for len(free) > 0 {
		n := slices.IndexFunc(free, func(v *corev1.PersistentVolume) bool { return modes(v) != modes(free[0]) })
		if n < 0 {
			n = len(free)
		}
		if v, err := volume.FindMatchingVolume(c, free[:n], nil, nil, false, true); v != nil || err != nil {
			return v, err
		}
		free = free[n:]
	}
	return nil, nil
}

// unfit is why a claim may not have the volume that it names; empty if it may.
func unfit(v *corev1.PersistentVolume, c *corev1.PersistentVolumeClaim) string {
	size, asked := v.Spec.Capacity[corev1.ResourceStorage], c.Spec.Resources.Requests[corev1.ResourceStorage]
	switch {
	case v.DeletionTimestamp != nil:
		return "the volume is marked for deletion " + v.Name
	case size.Cmp(asked) < 0:
		return "requested PV is too small"
	case volume.GetPersistentVolumeClass(v) != volume.GetPersistentVolumeClaimClass(c):
		return "storageClassName does not match"
	case ptr.Deref(v.Spec.VolumeAttributesClassName, "") != ptr.Deref(c.Spec.VolumeAttributesClassName, ""):
		return "volumeAttributesClassName does not match"
	case volume.CheckVolumeModeMismatches(&c.Spec, &v.Spec):
		return "incompatible volumeMode"
	case !volume.CheckAccessModes(c, v):
		return "incompatible accessMode"
	}
	return ""
}
