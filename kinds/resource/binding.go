package resource

import (
	"slices"

	resourcev1 "k8s.io/api/resource/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validateBinding checks the conditions on which a pod waits before it is bound: those that it needs and those that end the wait, both or none.
func validateBinding(needed, ending []string, path *field.Path) field.ErrorList {
	at, endAt := path.Child("bindingConditions"), path.Child("bindingFailureConditions")
	name := func(s *string, at *field.Path) field.ErrorList { return metav1validation.ValidateLabelName(*s, at) }
	errs := each(needed, resourcev1.BindingConditionsMaxSize, text, name, at)
	errs = append(errs, each(ending, resourcev1.BindingFailureConditionsMaxSize, text, name, endAt)...)
	for i, condition := range ending {
		if slices.Contains(needed, condition) {
			errs = append(errs, field.Invalid(endAt.Index(i), condition, "bindingFailureConditions must not overlap with bindingConditions"))
		}
	}
	if len(needed) == 0 && len(ending) > 0 {
		errs = append(errs, field.Invalid(at, needed, "bindingConditions are required to use bindingFailureConditions"))
	}
	if len(ending) == 0 && len(needed) > 0 {
		errs = append(errs, field.Invalid(endAt, ending, "bindingFailureConditions are required to use bindingConditions"))
	}
	return errs
}
