package authorization

import (
	"errors"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Selectors in a review narrow the question. Requirements that are not understood are left out, which only makes the question broader,
// and are told as an evaluation error.

func fieldRequirements(s *authorizationv1.FieldSelectorAttributes) (fields.Requirements, error) {
	if s == nil {
		return nil, nil
	}
	if s.RawSelector != "" {
		parsed, err := fields.ParseSelector(s.RawSelector)
		if err != nil {
			return nil, err
		}
		return parsed.Requirements(), nil
	}
	var out fields.Requirements
	var errs []error
	for _, r := range s.Requirements {
		operator, ok := map[metav1.FieldSelectorOperator]selection.Operator{metav1.FieldSelectorOpIn: selection.Equals, metav1.FieldSelectorOpNotIn: selection.NotEquals}[r.Operator]
		if !ok || len(r.Values) != 1 {
			errs = append(errs, fmt.Errorf("field selector %q %s %q is not supported: only In and NotIn with one value are", r.Key, r.Operator, r.Values))
			continue
		}
		out = append(out, fields.Requirement{Field: r.Key, Operator: operator, Value: r.Values[0]})
	}
	return out, errors.Join(errs...)
}

func labelRequirements(s *authorizationv1.LabelSelectorAttributes) (labels.Requirements, error) {
	if s == nil {
		return nil, nil
	}
	if s.RawSelector != "" {
		parsed, err := labels.Parse(s.RawSelector)
		if err != nil {
			return nil, err
		}
		out, _ := parsed.Requirements()
		return out, nil
	}
	operators := map[metav1.LabelSelectorOperator]selection.Operator{
		metav1.LabelSelectorOpIn: selection.In, metav1.LabelSelectorOpNotIn: selection.NotIn,
		metav1.LabelSelectorOpExists: selection.Exists, metav1.LabelSelectorOpDoesNotExist: selection.DoesNotExist,
	}
	var out labels.Requirements
	var errs []error
	for _, r := range s.Requirements {
		operator, ok := operators[r.Operator]
		if !ok {
			errs = append(errs, fmt.Errorf("%q is not a valid label selector operator", r.Operator))
			continue
		}
		requirement, err := labels.NewRequirement(r.Key, operator, r.Values)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		out = append(out, *requirement)
	}
	return out, errors.Join(errs...)
}

func validateSelectors(r *authorizationv1.ResourceAttributes, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if s := r.FieldSelector; s != nil {
		at := path.Child("fieldSelector")
		errs = append(errs, oneForm(s.RawSelector, len(s.Requirements), at)...)
		for i := range s.Requirements {
			errs = append(errs, metav1validation.ValidateFieldSelectorRequirement(s.Requirements[i],
				metav1validation.FieldSelectorValidationOptions{AllowUnknownOperatorInRequirement: true}, at.Child("requirements").Index(i))...)
		}
	}
	if s := r.LabelSelector; s != nil {
		at := path.Child("labelSelector")
		errs = append(errs, oneForm(s.RawSelector, len(s.Requirements), at)...)
		for i := range s.Requirements {
			errs = append(errs, metav1validation.ValidateLabelSelectorRequirement(s.Requirements[i],
				metav1validation.LabelSelectorValidationOptions{AllowUnknownOperatorInRequirement: true}, at.Child("requirements").Index(i))...)
		}
	}
	return errs
}

func oneForm(raw string, requirements int, at *field.Path) field.ErrorList {
	switch {
	case raw != "" && requirements > 0:
		return field.ErrorList{field.Invalid(at.Child("rawSelector"), raw, "may not specified at the same time as requirements")}
	case raw == "" && requirements == 0:
		return field.ErrorList{field.Required(at.Child("requirements"), fmt.Sprintf("when %s is specified, requirements or rawSelector is required", at))}
	}
	return nil
}
