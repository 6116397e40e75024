package core

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/diff"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/kind"
)

var _ = kind.Add(&Group, kind.Def[corev1.PersistentVolumeClaim]{
	Names:          kind.Names{Plural: "persistentvolumeclaims", Short: []string{"pvc"}},
	ReturnDeleted:  true,
	Default:        DefaultClaim,
	Prepare:        prepareClaim,
	Validate:       validateClaim,
	ValidateStatus: validateClaimStatus,
	Warn:           func(c, _ *corev1.PersistentVolumeClaim) []string { return warnClaim(c) },
	NoGeneration:   true,
	Columns:        claimColumns,
})

// DefaultClaim fills what a claim's author left out. It is idempotent.
func DefaultClaim(c *corev1.PersistentVolumeClaim) {
	defaultTo(&c.Status.Phase, corev1.ClaimPending)
	DefaultClaimSpec(&c.Spec)
	roundUp(c.Status.Capacity)
	roundUp(c.Status.AllocatedResources)
}

// prepareClaim keeps dataSource and dataSourceRef, two names of one thing, equal (KEP-1495). A dataSource that no populator of old knew was
// always ignored, and still is.
func prepareClaim(c, old *corev1.PersistentVolumeClaim) {
	if old == nil {
		c.Status = corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending}
	}
	s := &c.Spec
	// CrossNamespaceVolumeDataSource is off by default.
	if s.DataSourceRef != nil && ptr.Deref(s.DataSourceRef.Namespace, "") != "" && (old == nil || old.Spec.DataSourceRef == nil) {
		s.DataSourceRef = nil
	}
	kept := old != nil && (old.Spec.DataSource != nil || old.Spec.DataSourceRef != nil)
	if s.DataSource != nil && s.DataSourceRef == nil && !kept && !knownDataSource(s.DataSource) {
		s.DataSource = nil
	}
	switch {
	case s.DataSourceRef != nil && ptr.Deref(s.DataSourceRef.Namespace, "") != "":
	case s.DataSource != nil && s.DataSourceRef == nil:
		s.DataSourceRef = &corev1.TypedObjectReference{APIGroup: s.DataSource.APIGroup, Kind: s.DataSource.Kind, Name: s.DataSource.Name}
	case s.DataSourceRef != nil && s.DataSource == nil:
		s.DataSource = &corev1.TypedLocalObjectReference{APIGroup: s.DataSourceRef.APIGroup, Kind: s.DataSourceRef.Kind, Name: s.DataSourceRef.Name}
	}
}

func knownDataSource(r *corev1.TypedLocalObjectReference) bool {
	group := ptr.Deref(r.APIGroup, "")
	return r.Kind == "PersistentVolumeClaim" && group == "" || r.Kind == "VolumeSnapshot" && group == "snapshot.storage.k8s.io"
}

func validateClaim(c, old *corev1.PersistentVolumeClaim) field.ErrorList {
	path := field.NewPath("spec")
	p := problems{list: ValidateClaimSpec(&c.Spec, path)}
	if old != nil {
		checkClaimUpdate(&p, c, old, path)
	}
	return p.list
}

// checkClaimUpdate: a claim is bound once; of a bound one the size may grow and the class of attributes change.
func checkClaimUpdate(p *problems, c, old *corev1.PersistentVolumeClaim, path *field.Path) {
	rest, was := c.Spec.DeepCopy(), old.Spec.DeepCopy()
	if was.VolumeName == "" {
		was.VolumeName = rest.VolumeName
	}
	checkClassUpdate(p, c, old, rest, was)
	if c.Status.Phase == corev1.ClaimBound {
		if size, there := was.Resources.Requests[corev1.ResourceStorage]; there && rest.Resources.Requests != nil {
			rest.Resources.Requests[corev1.ResourceStorage] = size
		}
		rest.VolumeAttributesClassName = was.VolumeAttributesClassName
	}
	if !apiequality.Semantic.DeepEqual(rest, was) {
		p.forbidden(path, fmt.Sprintf("spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims\n%v", diff.Diff(*was, *rest)))
	}
	size, before, real := c.Spec.Resources.Requests[corev1.ResourceStorage], old.Spec.Resources.Requests[corev1.ResourceStorage], old.Status.Capacity[corev1.ResourceStorage]
	if size.Cmp(before) < 0 && size.Cmp(real) <= 0 {
		p.forbidden(path.Child("resources", "requests", "storage"), "field can not be less than status.capacity")
	}
	if !ptr.Equal(c.Spec.VolumeMode, old.Spec.VolumeMode) {
		p.invalid(field.NewPath("volumeMode"), c.Spec.VolumeMode, isImmutable) // clients know the cause by this path
	}
	if now := c.Spec.VolumeAttributesClassName; old.Status.CurrentVolumeAttributesClassName != nil && !ptr.Equal(now, old.Spec.VolumeAttributesClassName) && ptr.Deref(now, "") == "" {
		what := "nil"
		if now != nil {
			what = "empty string"
		}
		p.forbidden(path.Child("volumeAttributesClassName"), "update to "+what+" is forbidden when status.currentVolumeAttributesClassName is not nil")
	}
}

// checkClassUpdate: the storage class may be named where none was, and move from the old annotation to the field.
func checkClassUpdate(p *problems, c, old *corev1.PersistentVolumeClaim, rest, was *corev1.PersistentVolumeClaimSpec) {
	now, set := c.Annotations[corev1.BetaStorageClassAnnotation]
	before, wasSet := old.Annotations[corev1.BetaStorageClassAnnotation]
	class := c.Spec.StorageClassName
	if wasSet && old.Spec.StorageClassName == nil && class != nil && *class == before && (!set || now == before) {
		rest.StorageClassName = nil
		return
	}
	if now != before {
		p.invalid(field.NewPath("metadata", "annotations", corev1.BetaStorageClassAnnotation), now, isImmutable)
	}
	if class != nil && old.Spec.StorageClassName == nil && (!wasSet || *class == before) {
		rest.StorageClassName = was.StorageClassName
	}
}

func validateClaimStatus(c, _ *corev1.PersistentVolumeClaim) field.ErrorList {
	var p problems
	path := field.NewPath("status")
	for name, amount := range c.Status.Capacity {
		if amount.Sign() < 0 {
			p.invalid(path.Child("capacity").Key(string(name)), amount.Value(), "must be a valid resource quantity")
		}
	}
	key := func(name corev1.ResourceName, at *field.Path) {
		before := len(p.list)
		p.qualified(at, string(name))
		if len(p.list) == before && isNative(name) && name != corev1.ResourceStorage {
			p.add(field.NotSupported(at, name, []corev1.ResourceName{corev1.ResourceStorage}))
		}
	}
	for name, status := range c.Status.AllocatedResourceStatuses {
		key(name, path.Child("allocatedResourceStatuses"))
		oneOf(&p, path.Child("allocatedResourceStatuses"), status, corev1.PersistentVolumeClaimControllerResizeInProgress, corev1.PersistentVolumeClaimControllerResizeInfeasible,
			corev1.PersistentVolumeClaimNodeResizePending, corev1.PersistentVolumeClaimNodeResizeInProgress, corev1.PersistentVolumeClaimNodeResizeInfeasible)
	}
	for name, amount := range c.Status.AllocatedResources {
		at := path.Child("allocatedResources")
		key(name, at)
		checkAmount(&p, corev1.ResourceStorage, amount, at.Key(string(name)))
	}
	return p.list
}
