package admissionregistration

import (
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/yare-project/yare/kind"
	"github.com/yare-project/yare/kinds/rule"
)

type mutatingPolicy = admissionv1.MutatingAdmissionPolicy

var _ = kind.Add(&Group, kind.Def[mutatingPolicy]{
	Names:          kind.Names{Plural: "mutatingadmissionpolicies", Categories: categories},
	Scope:          kind.Cluster,
	RequireVersion: true,
	Default: func(p *mutatingPolicy) {
		orDefault(&p.Spec.FailurePolicy, admissionv1.Fail)
		defaultMatch(p.Spec.MatchConstraints)
	},
	Validate: validateMutatingPolicy,
	Columns: []kind.Column[mutatingPolicy]{
		{Name: "Mutations", Type: "integer", Description: "The number of mutations.",
			Value: func(p *mutatingPolicy, _ time.Time) any { return int64(len(p.Spec.Mutations)) }},
		{Name: "ParamKind", Description: "The kind of the policy's parameters.",
			Value: func(p *mutatingPolicy, _ time.Time) any { return paramKind(p.Spec.ParamKind) }},
	},
})

var _ = kind.Add(&Group, kind.Def[admissionv1.MutatingAdmissionPolicyBinding]{
	Names:          kind.Names{Plural: "mutatingadmissionpolicybindings", Categories: categories},
	Scope:          kind.Cluster,
	RequireVersion: true,
	Default:        func(b *admissionv1.MutatingAdmissionPolicyBinding) { defaultMatch(b.Spec.MatchResources) },
	Validate: func(b, _ *admissionv1.MutatingAdmissionPolicyBinding) field.ErrorList {
		return validateBinding(b.Spec.PolicyName, b.Spec.ParamRef, b.Spec.MatchResources, true, field.NewPath("spec"))
	},
	Columns: []kind.Column[admissionv1.MutatingAdmissionPolicyBinding]{
		{Name: "PolicyName", Description: "The policy that is bound.",
			Value: func(b *admissionv1.MutatingAdmissionPolicyBinding, _ time.Time) any { return b.Spec.PolicyName }},
		{Name: "ParamRef", Description: "The parameters that the policy is given.",
			Value: func(b *admissionv1.MutatingAdmissionPolicyBinding, _ time.Time) any { return paramRef(b.Spec.ParamRef) }},
	},
})

func validateMutatingPolicy(p, old *mutatingPolicy) field.ErrorList {
	path, spec := field.NewPath("spec"), &p.Spec
	common := policy{spec.FailurePolicy, spec.ParamKind, spec.MatchConstraints, spec.MatchConditions, spec.Variables}
	e, errs := common.validateCommon(true, knownMutations(old), path)
	if len(spec.Mutations) == 0 {
		errs = append(errs, field.Required(path.Child("mutations"), "mutations must contain at least one item"))
	}
	for i := 0; e != nil && i < len(spec.Mutations); i++ {
		errs = append(errs, validateMutation(e, &spec.Mutations[i], path.Child("mutations").Index(i))...)
	}
	return append(errs, rule.RequiredOneOf(spec.ReinvocationPolicy, path.Child("reinvocationPolicy"), "",
		admissionv1.IfNeededReinvocationPolicy, admissionv1.NeverReinvocationPolicy)...)
}

func knownMutations(p *mutatingPolicy) map[string]bool {
	known := map[string]bool{}
	if p == nil {
		return known
	}
	for _, c := range p.Spec.MatchConditions {
		known[c.Expression] = true
	}
	for _, v := range p.Spec.Variables {
		known[v.Expression] = true
	}
	for _, m := range p.Spec.Mutations {
		if m.ApplyConfiguration != nil {
			known[m.ApplyConfiguration.Expression] = true
		}
		if m.JSONPatch != nil {
			known[m.JSONPatch.Expression] = true
		}
	}
	return known
}

func validateMutation(e *expressions, m *admissionv1.Mutation, path *field.Path) field.ErrorList {
	apply, patch := path.Child("applyConfiguration"), path.Child("jsonPatch")
	var errs field.ErrorList
	switch m.PatchType {
	case admissionv1.PatchTypeJSONPatch:
		if m.ApplyConfiguration != nil {
			errs = append(errs, field.Invalid(apply, "{applyConfiguration}", "must not be specified when patchType is JSONPatch"))
		}
		if m.JSONPatch == nil {
			return append(errs, field.Required(patch, "must be specified when patchType is JSONPatch"))
		}
		return append(errs, e.check(&expression{text: m.JSONPatch.Expression, as: asPatch}, true, true, "", patch.Child("expression"))...)
	case admissionv1.PatchTypeApplyConfiguration:
		if m.JSONPatch != nil {
			errs = append(errs, field.Invalid(patch, "{jsonPatch}", "must not be specified when patchType is ApplyConfiguration"))
		}
		if m.ApplyConfiguration == nil {
			return append(errs, field.Required(apply, "must be specified when patchType is ApplyConfiguration"))
		}
		return append(errs, e.check(&expression{text: m.ApplyConfiguration.Expression, as: asObject}, true, true, "", apply.Child("expression"))...)
	}
	return rule.RequiredOneOf(m.PatchType, path.Child("patchType"), "", admissionv1.PatchTypeApplyConfiguration, admissionv1.PatchTypeJSONPatch)
}
