package admissionregistration

import (
	"fmt"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/kind"
	"github.com/yare-project/yare/kinds/rule"
)

type validatingPolicy = admissionv1.ValidatingAdmissionPolicy

var _ = kind.Add(&Group, kind.Def[validatingPolicy]{
	Names:          kind.Names{Plural: "validatingadmissionpolicies", Categories: categories},
	Scope:          kind.Cluster,
	RequireVersion: true,
	Default: func(p *validatingPolicy) {
		orDefault(&p.Spec.FailurePolicy, admissionv1.Fail)
		defaultMatch(p.Spec.MatchConstraints)
	},
	Validate: validatePolicy,
	ValidateStatus: func(p, _ *validatingPolicy) field.ErrorList {
		return validatePolicyStatus(&p.Status, field.NewPath("status"))
	},
	Columns: []kind.Column[validatingPolicy]{
		{Name: "Validations", Type: "integer", Description: "The number of validations.",
			Value: func(p *validatingPolicy, _ time.Time) any { return int64(len(p.Spec.Validations)) }},
		{Name: "ParamKind", Description: "The kind of the policy's parameters.",
			Value: func(p *validatingPolicy, _ time.Time) any { return paramKind(p.Spec.ParamKind) }},
	},
})

var _ = kind.Add(&Group, kind.Def[admissionv1.ValidatingAdmissionPolicyBinding]{
	Names:          kind.Names{Plural: "validatingadmissionpolicybindings", Categories: categories},
	Scope:          kind.Cluster,
	RequireVersion: true,
	Default:        func(b *admissionv1.ValidatingAdmissionPolicyBinding) { defaultMatch(b.Spec.MatchResources) },
	Validate: func(b, _ *admissionv1.ValidatingAdmissionPolicyBinding) field.ErrorList {
		path := field.NewPath("spec")
		errs := validateBinding(b.Spec.PolicyName, b.Spec.ParamRef, b.Spec.MatchResources, false, path)
		return append(errs, validateActions(b.Spec.ValidationActions, path.Child("validationActions"))...)
	},
	Columns: []kind.Column[admissionv1.ValidatingAdmissionPolicyBinding]{
		{Name: "PolicyName", Description: "The policy that is bound.",
			Value: func(b *admissionv1.ValidatingAdmissionPolicyBinding, _ time.Time) any { return b.Spec.PolicyName }},
		{Name: "ParamRef", Description: "The parameters that the policy is given.",
			Value: func(b *admissionv1.ValidatingAdmissionPolicyBinding, _ time.Time) any {
				return paramRef(b.Spec.ParamRef)
			}},
	},
})

func validateBinding(policy string, params *admissionv1.ParamRef, match *admissionv1.MatchResources, mutating bool, path *field.Path) field.ErrorList {
	errs := rule.RequiredSubdomain(policy, path.Child("policyName"))
	errs = append(errs, validateParamRef(params, path.Child("paramRef"))...)
	if match != nil {
		errs = append(errs, validateMatch(match, mutating, path.Child("matchResources"))...)
	}
	return errs
}

func validateActions(actions []admissionv1.ValidationAction, path *field.Path) field.ErrorList {
	if len(actions) == 0 {
		return field.ErrorList{field.Required(path, "at least one validation action is required")}
	}
	var errs field.ErrorList
	for i, a := range actions {
		errs = append(errs, rule.OneOf(a, path.Index(i), admissionv1.Audit, admissionv1.Deny, admissionv1.Warn)...)
		if slices.Contains(actions[:i], a) {
			errs = append(errs, field.Duplicate(path.Index(i), a))
		}
	}
	if slices.Contains(actions, admissionv1.Deny) && slices.Contains(actions, admissionv1.Warn) {
		errs = append(errs, field.Invalid(path, actions, "must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)"))
	}
	return errs
}

// policy is what policies of both sorts have.
type policy struct {
	failure    *admissionv1.FailurePolicyType
	params     *admissionv1.ParamKind
	match      *admissionv1.MatchResources
	conditions []admissionv1.MatchCondition
	variables  []admissionv1.Variable
}

// validateCommon checks the common part and returns the checker that knows the policy's variables; it is nil if there can be none.
func (p *policy) validateCommon(mutating bool, known map[string]bool, path *field.Path) (*expressions, field.ErrorList) {
	errs := rule.OneOf(ptr.Deref(p.failure, ""), path.Child("failurePolicy"), admissionv1.Fail, admissionv1.Ignore)
	if p.params != nil {
		errs = append(errs, validateParamKind(p.params, path.Child("paramKind"))...)
	}
	constraints := path.Child("matchConstraints")
	if p.match == nil {
		errs = append(errs, field.Required(constraints, ""))
	} else {
		errs = append(errs, validateMatch(p.match, mutating, constraints)...)
		if len(p.match.ResourceRules) == 0 { // they tell the types that expressions see
			errs = append(errs, field.Required(constraints.Child("resourceRules"), ""))
		}
	}
	errs = append(errs, validateConditions(p.conditions, p.params != nil, known, path.Child("matchConditions"))...)
	e, err := newExpressions(p.params != nil, mutating || len(p.variables) > 0, known)
	if err != nil {
		return nil, append(errs, field.InternalError(path, err))
	}
	for i := range p.variables {
		errs = append(errs, e.variable(&p.variables[i], path.Child("variables").Index(i))...)
	}
	return e, errs
}

const (
	maxAuditAnnotations = 20
	maxAuditExpression  = 5 << 10
)

func validatePolicy(p, old *validatingPolicy) field.ErrorList {
	path, spec := field.NewPath("spec"), &p.Spec
	common := policy{spec.FailurePolicy, spec.ParamKind, spec.MatchConstraints, spec.MatchConditions, spec.Variables}
	e, errs := common.validateCommon(false, knownExpressions(old), path)
	if len(spec.Validations) == 0 && len(spec.AuditAnnotations) == 0 {
		const atLeastOne = "validations or auditAnnotations must contain at least one item"
		return append(errs, field.Required(path.Child("validations"), atLeastOne), field.Required(path.Child("auditAnnotations"), atLeastOne))
	}
	if e == nil {
		return errs
	}
	for i := range spec.Validations {
		errs = append(errs, validateValidation(e, &spec.Validations[i], path.Child("validations").Index(i))...)
	}
	annotations := path.Child("auditAnnotations")
	if len(spec.AuditAnnotations) > maxAuditAnnotations {
		errs = append(errs, field.Invalid(annotations, len(spec.AuditAnnotations), fmt.Sprintf("must not have more than %d auditAnnotations", maxAuditAnnotations)))
	}
	seen := map[string]bool{}
	for i, a := range spec.AuditAnnotations {
		errs = append(errs, validateAnnotation(e, p.Name, &a, annotations.Index(i))...)
		if seen[a.Key] {
			errs = append(errs, field.Duplicate(annotations.Index(i).Child("key"), a.Key))
		}
		seen[a.Key] = true
	}
	return errs
}

func knownExpressions(p *validatingPolicy) map[string]bool {
	known := map[string]bool{}
	if p == nil {
		return known
	}
	for _, c := range p.Spec.MatchConditions {
		known[c.Expression] = true
	}
	for _, v := range p.Spec.Validations {
		known[v.Expression], known[v.MessageExpression] = true, true
	}
	for _, a := range p.Spec.AuditAnnotations {
		known[a.ValueExpression] = true
	}
	for _, v := range p.Spec.Variables {
		known[v.Expression] = true
	}
	return known
}

func validateValidation(e *expressions, v *admissionv1.Validation, path *field.Path) field.ErrorList {
	errs := e.check(&expression{text: v.Expression, as: asBool}, true, false, "expression is not specified", path.Child("expression"))
	if at := path.Child("messageExpression"); v.MessageExpression != "" {
		if strings.TrimSpace(v.MessageExpression) == "" {
			errs = append(errs, field.Invalid(at, v.MessageExpression, "must be non-empty if specified"))
		} else {
			errs = append(errs, e.check(&expression{text: v.MessageExpression, as: asString}, false, false, "", at)...)
		}
	}
	message := strings.TrimSpace(v.Message)
	switch at := path.Child("message"); {
	case v.Message != "" && message == "":
		errs = append(errs, field.Invalid(at, v.Message, "must be non-empty if specified"))
	case strings.ContainsAny(message, "\n\r"):
		errs = append(errs, field.Invalid(at, v.Message, "must not contain line breaks"))
	}
	if v.Reason != nil {
		errs = append(errs, rule.OneOf(*v.Reason, path.Child("reason"), metav1.StatusReasonForbidden, metav1.StatusReasonInvalid,
			metav1.StatusReasonRequestEntityTooLarge)...)
	}
	return errs
}

func validateAnnotation(e *expressions, policy string, a *admissionv1.AuditAnnotation, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if policy == "" {
		errs = append(errs, field.Invalid(path.Child("key"), a.Key, "requires metadata.name be non-empty"))
	} else {
		errs = append(errs, rule.QualifiedName(annotationKey(policy, a.Key), path.Child("key"))...)
	}
	at := path.Child("valueExpression")
	if len(strings.TrimSpace(a.ValueExpression)) > maxAuditExpression {
		return append(errs, field.Required(at, fmt.Sprintf("must not exceed %d bytes in length", maxAuditExpression)))
	}
	return append(errs, e.check(&expression{text: a.ValueExpression, as: asOptionalText}, true, false, "valueExpression is not specified", at)...)
}

func validatePolicyStatus(s *admissionv1.ValidatingAdmissionPolicyStatus, path *field.Path) field.ErrorList {
	errs := metav1validation.ValidateConditions(s.Conditions, path.Child("conditions"))
	if s.TypeChecking == nil {
		return errs
	}
	for i, w := range s.TypeChecking.ExpressionWarnings {
		at := path.Child("typeChecking", "expressionWarnings").Index(i)
		if w.Warning == "" {
			errs = append(errs, field.Required(at.Child("warning"), ""))
		}
		if strings.TrimSpace(w.FieldRef) == "" {
			errs = append(errs, field.Required(at.Child("fieldRef"), ""))
		}
	}
	return errs
}
