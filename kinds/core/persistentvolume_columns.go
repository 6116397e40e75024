package core

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/kind"
	"github.com/yare-project/yare/kinds/cell"
)

var volumeColumns = []kind.Column[corev1.PersistentVolume]{
	{Name: "Capacity", Description: "Size of the volume.", Value: func(v *corev1.PersistentVolume, _ time.Time) any { return storageOf(v.Spec.Capacity) }},
	{Name: "Access Modes", Description: "Ways in which the volume can be mounted.", Value: func(v *corev1.PersistentVolume, _ time.Time) any { return modesText(v.Spec.AccessModes) }},
	{Name: "Reclaim Policy", Description: "What happens to the volume when its claim is gone.", Value: func(v *corev1.PersistentVolume, _ time.Time) any {
		return string(v.Spec.PersistentVolumeReclaimPolicy)
	}},
	{Name: "Status", Description: "Phase of the volume.", Value: func(v *corev1.PersistentVolume, _ time.Time) any {
		if v.DeletionTimestamp != nil {
			return "Terminating"
		}
		return string(v.Status.Phase)
	}},
	{Name: "Claim", Description: "Claim that the volume is bound to.", Value: func(v *corev1.PersistentVolume, _ time.Time) any {
		if v.Spec.ClaimRef == nil {
			return ""
		}
		return v.Spec.ClaimRef.Namespace + "/" + v.Spec.ClaimRef.Name
	}},
	{Name: "StorageClass", Description: "StorageClass of the volume.", Value: func(v *corev1.PersistentVolume, _ time.Time) any {
		if class, set := v.Annotations[corev1.BetaStorageClassAnnotation]; set {
			return class
		}
		return v.Spec.StorageClassName
	}},
	{Name: "VolumeAttributesClass", Description: "VolumeAttributesClass of the volume.", Value: func(v *corev1.PersistentVolume, _ time.Time) any {
		return ptr.Deref(v.Spec.VolumeAttributesClassName, cell.Unset)
	}},
	{Name: "Reason", Description: "Why the volume is in its phase.", Value: func(v *corev1.PersistentVolume, _ time.Time) any { return v.Status.Reason }},
	{Name: "VolumeMode", Priority: 1, Description: "Filesystem or Block.", Value: func(v *corev1.PersistentVolume, _ time.Time) any {
		return string(ptr.Deref(v.Spec.VolumeMode, cell.Unset))
	}},
}

var claimColumns = []kind.Column[corev1.PersistentVolumeClaim]{
	{Name: "Status", Description: "Phase of the claim.", Value: func(c *corev1.PersistentVolumeClaim, _ time.Time) any {
		if c.DeletionTimestamp != nil {
			return "Terminating"
		}
		return string(c.Status.Phase)
	}},
	{Name: "Volume", Description: "Volume that the claim is bound to.", Value: func(c *corev1.PersistentVolumeClaim, _ time.Time) any { return c.Spec.VolumeName }},
	{Name: "Capacity", Description: "Size of the volume.", Value: func(c *corev1.PersistentVolumeClaim, _ time.Time) any {
		if c.Spec.VolumeName == "" {
			return ""
		}
		return storageOf(c.Status.Capacity)
	}},
	{Name: "Access Modes", Description: "Ways in which the volume can be mounted.", Value: func(c *corev1.PersistentVolumeClaim, _ time.Time) any {
		if c.Spec.VolumeName == "" {
			return ""
		}
		return modesText(c.Status.AccessModes)
	}},
	{Name: "StorageClass", Description: "StorageClass of the claim.", Value: func(c *corev1.PersistentVolumeClaim, _ time.Time) any {
		if class, set := c.Annotations[corev1.BetaStorageClassAnnotation]; set {
			return class
		}
		return ptr.Deref(c.Spec.StorageClassName, "")
	}},
	{Name: "VolumeAttributesClass", Description: "VolumeAttributesClass of the claim.", Value: func(c *corev1.PersistentVolumeClaim, _ time.Time) any {
		return ptr.Deref(c.Spec.VolumeAttributesClassName, cell.Unset)
	}},
	{Name: "VolumeMode", Priority: 1, Description: "Filesystem or Block.", Value: func(c *corev1.PersistentVolumeClaim, _ time.Time) any {
		return string(ptr.Deref(c.Spec.VolumeMode, cell.Unset))
	}},
}

func storageOf(list corev1.ResourceList) string {
	size := list[corev1.ResourceStorage]
	return size.String()
}

func modesText(modes []corev1.PersistentVolumeAccessMode) string {
	var out []string
	for _, m := range []struct {
		mode corev1.PersistentVolumeAccessMode
		text string
	}{{corev1.ReadWriteOnce, "RWO"}, {corev1.ReadOnlyMany, "ROX"}, {corev1.ReadWriteMany, "RWX"}, {corev1.ReadWriteOncePod, "RWOP"}} {
		if slices.Contains(modes, m.mode) {
			out = append(out, m.text)
		}
	}
	return strings.Join(out, ",")
}
