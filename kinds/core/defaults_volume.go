package core

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

func defaultVolume(v *corev1.Volume) {
	if ptr.AllPtrFieldsNil(&v.VolumeSource) {
		v.EmptyDir = &corev1.EmptyDirVolumeSource{}
	}
	if v.Image != nil {
		defaultTo(&v.Image.PullPolicy, pullPolicy(v.Image.Reference))
	}
	defaultHostPath(v.HostPath)
	if v.Secret != nil {
		defaultPtr(&v.Secret.DefaultMode, corev1.SecretVolumeSourceDefaultMode)
	}
	if v.ConfigMap != nil {
		defaultPtr(&v.ConfigMap.DefaultMode, corev1.ConfigMapVolumeSourceDefaultMode)
	}
	if v.DownwardAPI != nil {
		defaultPtr(&v.DownwardAPI.DefaultMode, corev1.DownwardAPIVolumeSourceDefaultMode)
		defaultDownwardFiles(v.DownwardAPI.Items)
	}
	if v.Projected != nil {
		defaultProjected(v.Projected)
	}
	if v.Ephemeral != nil && v.Ephemeral.VolumeClaimTemplate != nil {
		DefaultClaimSpec(&v.Ephemeral.VolumeClaimTemplate.Spec)
	}
	if v.ISCSI != nil {
		defaultTo(&v.ISCSI.ISCSIInterface, "default")
	}
	if v.RBD != nil {
		defaultRBD(&v.RBD.RBDPool, &v.RBD.RadosUser, &v.RBD.Keyring)
	}
	if v.ScaleIO != nil {
		defaultTo(&v.ScaleIO.StorageMode, "ThinProvisioned")
		defaultTo(&v.ScaleIO.FSType, "xfs")
	}
	defaultAzureDisk(v.AzureDisk)
}

func defaultProjected(p *corev1.ProjectedVolumeSource) {
	defaultPtr(&p.DefaultMode, corev1.ProjectedVolumeSourceDefaultMode)
	for i := range p.Sources {
		if down := p.Sources[i].DownwardAPI; down != nil {
			defaultDownwardFiles(down.Items)
		}
		if token := p.Sources[i].ServiceAccountToken; token != nil {
			defaultPtr(&token.ExpirationSeconds, 3600)
		}
	}
}

func defaultDownwardFiles(files []corev1.DownwardAPIVolumeFile) {
	for i := range files {
		defaultFieldRef(files[i].FieldRef)
	}
}

func defaultHostPath(h *corev1.HostPathVolumeSource) {
	if h != nil {
		defaultPtr(&h.Type, corev1.HostPathUnset)
	}
}

func defaultRBD(pool, user, keyring *string) {
	defaultTo(pool, "rbd")
	defaultTo(user, "admin")
	defaultTo(keyring, "/etc/ceph/keyring")
}

func defaultAzureDisk(d *corev1.AzureDiskVolumeSource) {
	if d == nil {
		return
	}
	defaultPtr(&d.CachingMode, corev1.AzureDataDiskCachingReadWrite)
	defaultPtr(&d.FSType, "ext4")
	defaultPtr(&d.ReadOnly, false)
	defaultPtr(&d.Kind, corev1.AzureSharedBlobDisk)
}

// DefaultClaimSpec fills what the author of a PersistentVolumeClaim, or of a template of one, left out. It is idempotent.
func DefaultClaimSpec(spec *corev1.PersistentVolumeClaimSpec) {
	defaultPtr(&spec.VolumeMode, corev1.PersistentVolumeFilesystem)
	roundUp(spec.Resources.Limits)
	roundUp(spec.Resources.Requests)
}
