package storage

import (
	"time"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/kind"
	"github.com/yare-project/yare/kinds/rule"
)

var _ = kind.Add(&Group, kind.Def[storagev1.VolumeAttachment]{
	Names:          kind.Names{Plural: "volumeattachments"},
	ReturnDeleted:  true,
	Scope:          kind.Cluster,
	NoGeneration:   true, // its spec never changes
	RequireVersion: true,
	Validate:       validateAttachment,
	ValidateStatus: func(a, _ *storagev1.VolumeAttachment) field.ErrorList { return validateAttachmentStatus(&a.Status) },
	Columns: []kind.Column[storagev1.VolumeAttachment]{
		{Name: "Attacher", Format: "name", Description: storagev1.VolumeAttachmentSpec{}.SwaggerDoc()["attacher"],
			Value: func(a *storagev1.VolumeAttachment, _ time.Time) any { return a.Spec.Attacher }},
		{Name: "PV", Description: storagev1.VolumeAttachmentSource{}.SwaggerDoc()["persistentVolumeName"],
			Value: func(a *storagev1.VolumeAttachment, _ time.Time) any {
				return ptr.Deref(a.Spec.Source.PersistentVolumeName, "")
			}},
		{Name: "Node", Description: storagev1.VolumeAttachmentSpec{}.SwaggerDoc()["nodeName"],
			Value: func(a *storagev1.VolumeAttachment, _ time.Time) any { return a.Spec.NodeName }},
		{Name: "Attached", Type: "boolean", Description: storagev1.VolumeAttachmentStatus{}.SwaggerDoc()["attached"],
			Value: func(a *storagev1.VolumeAttachment, _ time.Time) any { return a.Status.Attached }},
	},
})

func validateAttachment(a, old *storagev1.VolumeAttachment) field.ErrorList {
	path := field.NewPath("spec")
	errs := validateDriverName(a.Spec.Attacher, path.Child("attacher"))
	source := path.Child("source")
	const exactlyOne = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"
	switch volume, inline := a.Spec.Source.PersistentVolumeName, a.Spec.Source.InlineVolumeSpec; {
	case volume == nil && inline == nil:
		errs = append(errs, field.Required(source, exactlyOne))
	case volume != nil && inline != nil:
		errs = append(errs, field.Forbidden(source, exactlyOne))
	case volume != nil && *volume == "":
		errs = append(errs, field.Required(source.Child("persistentVolumeName"), "must specify non empty persistentVolumeName"))
		errs = append(errs, rule.Subdomain(*volume, source.Child("persistentVolumeName"))...)
	case volume != nil:
		errs = append(errs, rule.Subdomain(*volume, source.Child("persistentVolumeName"))...)
	case inline.CSI == nil: // an inline volume of a pod that was migrated from an in-tree driver
		errs = append(errs, field.Required(source.Child("inlineVolumeSpec", "csi"), "an inline volume is attached by a CSI driver"))
	default:
		errs = append(errs, validateDriverName(inline.CSI.Driver, source.Child("inlineVolumeSpec", "csi", "driver"))...)
		if inline.CSI.VolumeHandle == "" {
			errs = append(errs, field.Required(source.Child("inlineVolumeSpec", "csi", "volumeHandle"), ""))
		}
	}
	errs = append(errs, rule.Subdomain(a.Spec.NodeName, path.Child("nodeName"))...)
	if old != nil {
		errs = append(errs, rule.Immutable(a.Spec, old.Spec, path)...)
	}
	return errs
}

const (
	maxAttachmentMetadata = 256 << 10
	maxVolumeError        = 1024
)

func validateAttachmentStatus(s *storagev1.VolumeAttachmentStatus) field.ErrorList {
	path := field.NewPath("status")
	var errs field.ErrorList
	size := 0
	for k, v := range s.AttachmentMetadata {
		size += len(k) + len(v)
	}
	if size > maxAttachmentMetadata {
		errs = append(errs, field.TooLong(path.Child("attachmentMetadata"), "", maxAttachmentMetadata))
	}
	errs = append(errs, validateVolumeError(s.AttachError, path.Child("attachError"))...)
	return append(errs, validateVolumeError(s.DetachError, path.Child("detachError"))...)
}

func validateVolumeError(e *storagev1.VolumeError, path *field.Path) field.ErrorList {
	if e == nil {
		return nil
	}
	errs := rule.NonNegativePtr(e.ErrorCode, path.Child("errorCode"))
	if len(e.Message) > maxVolumeError {
		errs = append(errs, field.TooLong(path.Child("message"), "", maxVolumeError))
	}
	return errs
}
