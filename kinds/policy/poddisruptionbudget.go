package policy

import (
	"time"

	policyv1 "k8s.io/api/policy/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/yare-project/yare/kind"
	"github.com/yare-project/yare/kinds/rule"
)

type budget = policyv1.PodDisruptionBudget

var _ = kind.Add(&Group, kind.Def[budget]{
	Names:          kind.Names{Plural: "poddisruptionbudgets", Short: []string{"pdb"}},
	Validate:       validateBudget,
	ValidateStatus: validateBudgetStatus,
	ValidateName:   rule.PathSegmentName,
	AnyFinalizer:   true,
	RequireVersion: true, // evictions are counted in the status: a blind write could lose one
	Columns: []kind.Column[budget]{
		{Name: "Min Available", Description: "The number of pods that must stay available.",
			Value: func(b *budget, _ time.Time) any { return orNotApplicable(b.Spec.MinAvailable) }},
		{Name: "Max Unavailable", Description: "The number of pods that may be unavailable.",
			Value: func(b *budget, _ time.Time) any { return orNotApplicable(b.Spec.MaxUnavailable) }},
		{Name: "Allowed Disruptions", Type: "integer", Description: "The number of pods that may be disrupted now.",
			Value: func(b *budget, _ time.Time) any { return int64(b.Status.DisruptionsAllowed) }},
	},
})

func orNotApplicable(v *intstr.IntOrString) string {
	if v == nil {
		return "N/A"
	}
	return v.String()
}

func validateBudget(b, _ *budget) field.ErrorList {
	path := field.NewPath("spec")
	var errs field.ErrorList
	if b.Spec.MinAvailable != nil && b.Spec.MaxUnavailable != nil {
		errs = append(errs, field.Invalid(path, b.Spec, "minAvailable and maxUnavailable cannot be both set"))
	}
	if b.Spec.MinAvailable != nil {
		errs = append(errs, rule.IntOrPercent(*b.Spec.MinAvailable, path.Child("minAvailable"))...)
	}
	if b.Spec.MaxUnavailable != nil {
		errs = append(errs, rule.IntOrPercent(*b.Spec.MaxUnavailable, path.Child("maxUnavailable"))...)
	}
	errs = append(errs, rule.Selector(b.Spec.Selector, path.Child("selector"))...)
	if p := b.Spec.UnhealthyPodEvictionPolicy; p != nil {
		errs = append(errs, rule.OneOf(*p, path.Child("unhealthyPodEvictionPolicy"), policyv1.AlwaysAllow, policyv1.IfHealthyBudget)...)
	}
	return errs
}

func validateBudgetStatus(b, _ *budget) field.ErrorList {
	path := field.NewPath("status")
	errs := metav1validation.ValidateConditions(b.Status.Conditions, path.Child("conditions"))
	errs = append(errs, rule.NonNegative(b.Status.DisruptionsAllowed, path.Child("disruptionsAllowed"))...)
	errs = append(errs, rule.NonNegative(b.Status.CurrentHealthy, path.Child("currentHealthy"))...)
	errs = append(errs, rule.NonNegative(b.Status.DesiredHealthy, path.Child("desiredHealthy"))...)
	return append(errs, rule.NonNegative(b.Status.ExpectedPods, path.Child("expectedPods"))...)
}
