package core

import (
	"reflect"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/yare-project/yare/kinds/rule"
)

// validateClaimTemplate checks the template of a PersistentVolumeClaim that an ephemeral volume or a StatefulSet carries.
func validateClaimTemplate(template *corev1.PersistentVolumeClaimTemplate, path *field.Path) field.ErrorList {
	list := rule.TemplateMeta(&template.ObjectMeta, path.Child("metadata"))
	return append(list, ValidateClaimSpec(&template.Spec, path.Child("spec"))...)
}

// ValidateClaimSpec checks a defaulted claim spec by the rules of Kubernetes 1.36.
func ValidateClaimSpec(spec *corev1.PersistentVolumeClaimSpec, path *field.Path) field.ErrorList {
	var p problems
	if len(spec.AccessModes) == 0 {
		p.required(path.Child("accessModes"), "at least 1 access mode is required")
	}
	checkSelector(&p, spec.Selector, path.Child("selector"))
	checkAccessModes(&p, spec.AccessModes, path.Child("accessModes"))
	storage := path.Child("resources").Key(string(corev1.ResourceStorage))
	if size, there := spec.Resources.Requests[corev1.ResourceStorage]; !there {
		p.required(storage, "")
	} else if size.Sign() <= 0 {
		p.invalid(storage, size.String(), mustBePositive)
	}
	if spec.StorageClassName != nil && *spec.StorageClassName != "" {
		p.subdomain(path.Child("storageClassName"), *spec.StorageClassName)
	}
	optionalOneOf(&p, path.Child("volumeMode"), spec.VolumeMode, corev1.PersistentVolumeBlock, corev1.PersistentVolumeFilesystem)
	checkDataSources(&p, spec, path)
	if class := spec.VolumeAttributesClassName; class != nil && *class != "" {
		p.subdomain(path.Child("volumeAttributesClassName"), *class)
	}
	return p.list
}

func checkAccessModes(p *problems, modes []corev1.PersistentVolumeAccessMode, path *field.Path) {
	single, several := false, false
	for _, mode := range modes {
		oneOf(p, path, mode, corev1.ReadWriteOnce, corev1.ReadOnlyMany, corev1.ReadWriteMany, corev1.ReadWriteOncePod)
		switch mode {
		case corev1.ReadWriteOncePod:
			single = true
		case corev1.ReadWriteOnce, corev1.ReadOnlyMany, corev1.ReadWriteMany:
			several = true
		}
	}
	if single && several {
		p.forbidden(path, "may not use ReadWriteOncePod with other access modes")
	}
}

func checkDataSources(p *problems, spec *corev1.PersistentVolumeClaimSpec, path *field.Path) {
	source, ref := spec.DataSource, spec.DataSourceRef
	if source != nil {
		checkDataSource(p, source.APIGroup, source.Kind, source.Name, path.Child("dataSource"))
	}
	if ref == nil {
		return
	}
	checkDataSource(p, ref.APIGroup, ref.Kind, ref.Name, path.Child("dataSourceRef"))
	across := ref.Namespace != nil && *ref.Namespace != ""
	if across {
		p.label(path.Child("dataSourceRef", "namespace"), *ref.Namespace)
	}
	switch {
	case source == nil:
	case across:
		p.invalid(path, source, "may not be specified when dataSourceRef.namespace is specified")
	case !reflect.DeepEqual(source.APIGroup, ref.APIGroup) || source.Kind != ref.Kind || source.Name != ref.Name:
		p.invalid(path, source, "must match dataSourceRef")
	}
}

func checkDataSource(p *problems, group *string, kind, name string, path *field.Path) {
	p.needs(path.Child("name"), name)
	p.needs(path.Child("kind"), kind)
	if group != nil && *group != "" {
		p.subdomain(path.Child("apiGroup"), *group)
	} else if kind != "PersistentVolumeClaim" {
		p.invalid(path, kind, "must be 'PersistentVolumeClaim' when referencing the default apiGroup")
	}
}
