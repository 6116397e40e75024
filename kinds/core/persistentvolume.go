package core

import (
	"fmt"
	"path"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/diff"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/kind"
)

var _ = kind.Add(&Group, kind.Def[corev1.PersistentVolume]{
	Names:         kind.Names{Plural: "persistentvolumes", Short: []string{"pv"}},
	ReturnDeleted: true,
	Scope:         kind.Cluster,
	Default:       defaultPersistentVolume,
	Validate:      validatePersistentVolume,
	Prepare: func(v, old *corev1.PersistentVolume) {
		if old == nil {
			v.Status = corev1.PersistentVolumeStatus{Phase: corev1.VolumePending, LastPhaseTransitionTime: v.CreationTimestamp.DeepCopy()}
		}
	},
	PrepareStatus: func(v, old *corev1.PersistentVolume) {
		s, was := &v.Status, old.Status.LastPhaseTransitionTime
		switch same := s.Phase == old.Status.Phase; {
		case same && s.LastPhaseTransitionTime == nil:
			s.LastPhaseTransitionTime = was
		case !same && (s.LastPhaseTransitionTime == nil || s.LastPhaseTransitionTime.Equal(was)):
			s.LastPhaseTransitionTime = ptr.To(metav1.Now().Rfc3339Copy())
		}
	},
	Warn:         func(v, _ *corev1.PersistentVolume) []string { return warnVolume(v) },
	NoGeneration: true,
	Columns:      volumeColumns,
})

func defaultPersistentVolume(v *corev1.PersistentVolume) {
	defaultTo(&v.Status.Phase, corev1.VolumePending)
	defaultTo(&v.Spec.PersistentVolumeReclaimPolicy, corev1.PersistentVolumeReclaimRetain)
	defaultPtr(&v.Spec.VolumeMode, corev1.PersistentVolumeFilesystem)
	roundUp(v.Spec.Capacity)
	s := &v.Spec.PersistentVolumeSource
	defaultHostPath(s.HostPath)
	if s.RBD != nil {
		defaultRBD(&s.RBD.RBDPool, &s.RBD.RadosUser, &s.RBD.Keyring)
	}
	if s.ISCSI != nil {
		defaultTo(&s.ISCSI.ISCSIInterface, "default")
	}
	if s.ScaleIO != nil {
		defaultTo(&s.ScaleIO.StorageMode, "ThinProvisioned")
		defaultTo(&s.ScaleIO.FSType, "xfs")
	}
	defaultAzureDisk(s.AzureDisk)
}

func validatePersistentVolume(v, old *corev1.PersistentVolume) field.ErrorList {
	var p problems
	at := field.NewPath("spec")
	checkPersistentVolumeSpec(&p, &v.Spec, v.Name, at)
	if old == nil {
		return p.list
	}
	now, was := v.Spec.PersistentVolumeSource, old.Spec.PersistentVolumeSource
	if was.CSI != nil && was.CSI.ControllerExpandSecretRef == nil && now.CSI != nil && now.CSI.ControllerExpandSecretRef != nil {
		// The secret to expand with may be added later.
		csi := *now.CSI
		csi.ControllerExpandSecretRef = nil
		now.CSI = &csi
	}
	if !apiequality.Semantic.DeepEqual(now, was) {
		p.forbidden(at.Child("persistentvolumesource"), fmt.Sprintf("spec.persistentvolumesource is immutable after creation\n%v", diff.Diff(was, now)))
	}
	if !ptr.Equal(v.Spec.VolumeMode, old.Spec.VolumeMode) {
		p.invalid(field.NewPath("volumeMode"), v.Spec.VolumeMode, isImmutable) // clients know the cause by this path
	}
	if old.Spec.NodeAffinity != nil && !sameAffinity(v.Spec.NodeAffinity, old.Spec.NodeAffinity) {
		p.invalid(at.Child("nodeAffinity"), v.Spec.NodeAffinity, isImmutable+", except for updating from beta label to GA")
	}
	if old.Spec.VolumeAttributesClassName != nil && v.Spec.VolumeAttributesClassName == nil {
		p.forbidden(at.Child("volumeAttributesClassName"), "update from non-nil value to nil is forbidden")
	}
	return p.list
}

// gaNodeLabels are the names that replaced the beta names of node labels.
var gaNodeLabels = map[string]string{
	"beta.kubernetes.io/arch": "kubernetes.io/arch", "beta.kubernetes.io/os": "kubernetes.io/os", "beta.kubernetes.io/instance-type": "node.kubernetes.io/instance-type",
	"failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
}

func sameAffinity(now, was *corev1.VolumeNodeAffinity) bool {
	if now == nil || now.Required == nil || was.Required == nil {
		return apiequality.Semantic.DeepEqual(now, was)
	}
	renamed := was.DeepCopy()
	for i := range min(len(renamed.Required.NodeSelectorTerms), len(now.Required.NodeSelectorTerms)) {
		old, new := renamed.Required.NodeSelectorTerms[i].MatchExpressions, now.Required.NodeSelectorTerms[i].MatchExpressions
		for j := range min(len(old), len(new)) {
			if gaNodeLabels[old[j].Key] == new[j].Key {
				old[j].Key = new[j].Key
			}
		}
	}
	return apiequality.Semantic.DeepEqual(now, renamed)
}

func checkPersistentVolumeSpec(p *problems, s *corev1.PersistentVolumeSpec, name string, at *field.Path) {
	if len(s.AccessModes) == 0 {
		p.required(at.Child("accessModes"), "")
	}
	checkAccessModes(p, s.AccessModes, at.Child("accessModes"))
	checkVolumeCapacity(p, s.Capacity, at.Child("capacity"))
	if s.PersistentVolumeReclaimPolicy != "" {
		oneOf(p, at.Child("persistentVolumeReclaimPolicy"), s.PersistentVolumeReclaimPolicy, corev1.PersistentVolumeReclaimDelete, corev1.PersistentVolumeReclaimRecycle, corev1.PersistentVolumeReclaimRetain)
	}
	if s.NodeAffinity != nil && s.NodeAffinity.Required == nil {
		p.required(at.Child("nodeAffinity", "required"), "must specify required node constraints")
	} else if s.NodeAffinity != nil {
		checkNodeSelector(p, s.NodeAffinity.Required, at.Child("nodeAffinity", "required"))
	}
	checkPersistentSource(p, s, name, at)
	if s.HostPath != nil && path.Clean(s.HostPath.Path) == "/" && s.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRecycle {
		p.forbidden(at.Child("persistentVolumeReclaimPolicy"), "may not be 'recycle' for a hostPath mount of '/'")
	}
	if s.StorageClassName != "" {
		p.subdomain(at.Child("storageClassName"), s.StorageClassName)
	}
	optionalOneOf(p, at.Child("volumeMode"), s.VolumeMode, corev1.PersistentVolumeBlock, corev1.PersistentVolumeFilesystem)
	if class := s.VolumeAttributesClassName; class != nil {
		if *class == "" {
			p.required(at.Child("volumeAttributesClassName"), "an empty string is disallowed")
		} else {
			p.subdomain(at.Child("volumeAttributesClassName"), *class)
		}
		if s.CSI == nil {
			p.required(at.Child("csi"), "has to be specified when using volumeAttributesClassName")
		}
	}
}

func checkVolumeCapacity(p *problems, list corev1.ResourceList, at *field.Path) {
	if len(list) == 0 {
		p.required(at, "")
	}
	if _, there := list[corev1.ResourceStorage]; !there || len(list) > 1 {
		p.add(field.NotSupported(at, list, []corev1.ResourceName{corev1.ResourceStorage}))
	}
	for name, amount := range list {
		if amount.Sign() < 0 {
			p.invalid(at.Key(string(name)), amount.Value(), "must be a valid resource quantity")
		}
		if amount.Sign() <= 0 {
			p.invalid(at.Key(string(name)), amount.String(), mustBePositive)
		}
	}
}
