package storage

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/kind"
	"github.com/yare-project/yare/kinds/rule"
)

// The annotations that make a class the default; the second is from before the API was stable.
const (
	defaultAnnotation     = "storageclass.kubernetes.io/is-default-class"
	betaDefaultAnnotation = "storageclass.beta.kubernetes.io/is-default-class"
)

// IsDefault says whether claims without a class get this one.
func IsDefault(c *storagev1.StorageClass) bool {
	return c.Annotations[defaultAnnotation] == "true" || c.Annotations[betaDefaultAnnotation] == "true"
}

var _ = kind.Add(&Group, kind.Def[storagev1.StorageClass]{
	Names:         kind.Names{Plural: "storageclasses", Short: []string{"sc"}},
	ReturnDeleted: true,
	Scope:         kind.Cluster,
	Default:       defaultStorageClass,
	Validate:      validateStorageClass,
	NoName:        true,
	Columns: []kind.Column[storagev1.StorageClass]{
		{Name: "Name", Format: "name", Description: "The class's name; the cluster's default is marked.",
			Value: func(c *storagev1.StorageClass, _ time.Time) any {
				if IsDefault(c) {
					return c.Name + " (default)"
				}
				return c.Name
			}},
		{Name: "Provisioner", Description: storagev1.StorageClass{}.SwaggerDoc()["provisioner"],
			Value: func(c *storagev1.StorageClass, _ time.Time) any { return c.Provisioner }},
		{Name: "ReclaimPolicy", Description: storagev1.StorageClass{}.SwaggerDoc()["reclaimPolicy"],
			Value: func(c *storagev1.StorageClass, _ time.Time) any {
				return string(ptr.Deref(c.ReclaimPolicy, corev1.PersistentVolumeReclaimDelete))
			}},
		{Name: "VolumeBindingMode", Description: storagev1.StorageClass{}.SwaggerDoc()["volumeBindingMode"],
			Value: func(c *storagev1.StorageClass, _ time.Time) any {
				return string(ptr.Deref(c.VolumeBindingMode, storagev1.VolumeBindingImmediate))
			}},
		{Name: "AllowVolumeExpansion", Description: storagev1.StorageClass{}.SwaggerDoc()["allowVolumeExpansion"],
			Value: func(c *storagev1.StorageClass, _ time.Time) any { return ptr.Deref(c.AllowVolumeExpansion, false) }},
	},
})

func defaultStorageClass(c *storagev1.StorageClass) {
	if c.ReclaimPolicy == nil {
		c.ReclaimPolicy = ptr.To(corev1.PersistentVolumeReclaimDelete)
	}
	if c.VolumeBindingMode == nil {
		c.VolumeBindingMode = ptr.To(storagev1.VolumeBindingImmediate)
	}
}

func validateStorageClass(c, old *storagev1.StorageClass) field.ErrorList {
	errs := validateProvisioner(c.Provisioner, field.NewPath("provisioner"))
	errs = append(errs, validateParameters(c.Parameters, field.NewPath("parameters"))...)
	if p := ptr.Deref(c.ReclaimPolicy, ""); p != "" {
		errs = append(errs, rule.OneOf(p, field.NewPath("reclaimPolicy"), corev1.PersistentVolumeReclaimDelete, corev1.PersistentVolumeReclaimRetain)...)
	}
	errs = append(errs, rule.OneOf(ptr.Deref(c.VolumeBindingMode, ""), field.NewPath("volumeBindingMode"),
		storagev1.VolumeBindingImmediate, storagev1.VolumeBindingWaitForFirstConsumer)...)
	errs = append(errs, validateTopologies(c.AllowedTopologies, field.NewPath("allowedTopologies"))...)
	if old == nil {
		return errs
	}
	errs = append(errs, rule.Immutable(c.Parameters, old.Parameters, field.NewPath("parameters"))...)
	errs = append(errs, rule.Immutable(c.Provisioner, old.Provisioner, field.NewPath("provisioner"))...)
	errs = append(errs, rule.Immutable(c.ReclaimPolicy, old.ReclaimPolicy, field.NewPath("reclaimPolicy"))...)
	return append(errs, rule.Immutable(c.VolumeBindingMode, old.VolumeBindingMode, field.NewPath("volumeBindingMode"))...)
}

func validateTopologies(terms []corev1.TopologySelectorTerm, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	var seen []map[string][]string
	for i, term := range terms {
		at := path.Index(i).Child("matchLabelExpressions")
		values := map[string][]string{}
		for n, e := range term.MatchLabelExpressions {
			errs = append(errs, validateExpression(&e, at.Index(n))...)
			if _, twice := values[e.Key]; twice {
				errs = append(errs, field.Duplicate(at.Index(n).Child("key"), e.Key))
			}
			values[e.Key] = slices.Sorted(slices.Values(e.Values))
		}
		// A term without expressions counts as one that was there before.
		if len(values) == 0 || slices.ContainsFunc(seen, func(other map[string][]string) bool { return maps.EqualFunc(values, other, slices.Equal) }) {
			errs = append(errs, field.Duplicate(at, ""))
		}
		seen = append(seen, values)
	}
	return errs
}

func validateExpression(e *corev1.TopologySelectorLabelRequirement, path *field.Path) field.ErrorList {
	errs := metav1validation.ValidateLabelName(e.Key, path.Child("key"))
	if len(e.Values) == 0 {
		errs = append(errs, field.Required(path.Child("values"), ""))
	}
	for i, v := range e.Values {
		if slices.Contains(e.Values[:i], v) {
			errs = append(errs, field.Duplicate(path.Child("values").Index(i), v))
		}
	}
	return errs
}

var _ = kind.Add(&Group, kind.Def[storagev1.VolumeAttributesClass]{
	Names:         kind.Names{Plural: "volumeattributesclasses", Short: []string{"vac"}},
	ReturnDeleted: true,
	Scope:         kind.Cluster,
	Validate:      validateAttributesClass,
	Columns: []kind.Column[storagev1.VolumeAttributesClass]{
		{Name: "DriverName", Description: storagev1.VolumeAttributesClass{}.SwaggerDoc()["driverName"],
			Value: func(c *storagev1.VolumeAttributesClass, _ time.Time) any { return c.DriverName }},
	},
})

func validateAttributesClass(c, old *storagev1.VolumeAttributesClass) field.ErrorList {
	driver, parameters := field.NewPath("driverName"), field.NewPath("parameters")
	errs := validateProvisioner(c.DriverName, driver)
	errs = append(errs, validateParameters(c.Parameters, parameters)...)
	if len(c.Parameters) == 0 {
		errs = append(errs, field.Required(parameters, "must contain at least one key/value pair"))
	}
	if old != nil {
		if c.DriverName != old.DriverName {
			errs = append(errs, field.Forbidden(driver, "updates to driverName are forbidden."))
		}
		if !equality.Semantic.DeepEqual(c.Parameters, old.Parameters) {
			errs = append(errs, field.Forbidden(parameters, "updates to parameters are forbidden."))
		}
	}
	return errs
}
