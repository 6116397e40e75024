// Package yarescheduling declares the kinds of Yare's own group scheduling.yare.io: the SchedulingPolicy.
package yarescheduling

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yare-project/yare/api/scheduling/v1alpha1"
	"github.com/yare-project/yare/internal/nodeexpr"
	"github.com/yare-project/yare/kind"
	"github.com/yare-project/yare/kinds/cell"
	"github.com/yare-project/yare/kinds/rule"
)

// Group is scheduling.yare.io.
var Group = kind.Group{Name: v1alpha1.GroupVersion.Group, Versions: []string{v1alpha1.GroupVersion.Version}, AddToScheme: []func(*runtime.Scheme) error{v1alpha1.AddToScheme}}

type policy = v1alpha1.SchedulingPolicy

// The limits of a policy.
const (
	maxExpressions = 16 // of each sort
	maxText        = 4096
	maxMessage     = 256
	maxWeight      = 100
	maxSchedulers  = 16
)

var _ = kind.Add(&Group, kind.Def[policy]{
	Names:          kind.Names{Plural: "schedulingpolicies", Singular: "schedulingpolicy", Short: []string{"schedpol"}},
	Scope:          kind.Cluster,
	Default:        defaultPolicy,
	Validate:       validatePolicy,
	ValidateStatus: validateStatus,
	Columns: []kind.Column[policy]{
		{Name: "Pods", Description: "Which pods the policy selects.", Value: func(p *policy, _ time.Time) any { return selects(p) }},
		{Name: "Filters", Type: "integer", Description: "How many filters it has.", Value: func(p *policy, _ time.Time) any { return int64(len(p.Spec.Filters)) }},
		{Name: "Scores", Type: "integer", Description: "How many scores it has.", Value: func(p *policy, _ time.Time) any { return int64(len(p.Spec.Scores)) }},
		{Name: "Active", Description: "Whether the scheduler places pods by it.", Value: func(p *policy, _ time.Time) any { return active(p) }},
	},
})

func selects(p *policy) string {
	if s := p.Spec.PodSelector; s != nil && len(s.MatchLabels)+len(s.MatchExpressions) > 0 {
		return cell.Selector(s)
	}
	return "<all>"
}

// active is the condition's status, Unknown while the scheduler has not seen the newest state.
func active(p *policy) string {
	c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.PolicyActive)
	if c == nil || p.Status.ObservedGeneration != p.Generation {
		return string(metav1.ConditionUnknown)
	}
	return string(c.Status)
}

func defaultPolicy(p *policy) {
	for i := range p.Spec.Filters {
		if f := &p.Spec.Filters[i]; f.FailurePolicy == "" {
			f.FailurePolicy = v1alpha1.FailRefuse
		}
	}
	for i := range p.Spec.Scores {
		s := &p.Spec.Scores[i]
		if s.FailurePolicy == "" {
			s.FailurePolicy = v1alpha1.FailSkip
		}
		if s.Weight == 0 {
			s.Weight = 1
		}
		if s.Worst == nil {
			s.Worst = resource.NewQuantity(0, resource.DecimalSI)
		}
		if s.Best == nil {
			s.Best = resource.NewQuantity(100, resource.DecimalSI)
		}
	}
}

func validatePolicy(p, old *policy) field.ErrorList {
	spec := field.NewPath("spec")
	errs := append(rule.Selector(p.Spec.PodSelector, spec.Child("podSelector")), rule.Selector(p.Spec.NamespaceSelector, spec.Child("namespaceSelector"))...)
	errs = append(errs, validateSchedulers(p.Spec.SchedulerNames, spec.Child("schedulerNames"))...)
	if len(p.Spec.Filters)+len(p.Spec.Scores) == 0 {
		errs = append(errs, field.Required(spec.Child("filters"), "a policy needs a filter or a score"))
	}
	for _, list := range []struct {
		name string
		size int
	}{{"variables", len(p.Spec.Variables)}, {"filters", len(p.Spec.Filters)}, {"scores", len(p.Spec.Scores)}} {
		if list.size > maxExpressions {
			errs = append(errs, field.TooMany(spec.Child(list.name), list.size, maxExpressions))
		}
	}
	if len(errs) > 0 {
		return errs // what is too much is not compiled
	}
	return validateExpressions(&p.Spec, old != nil && sameExpressions(&p.Spec, &old.Spec), spec)
}

func validateSchedulers(names []string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(names) > maxSchedulers {
		return field.ErrorList{field.TooMany(path, len(names), maxSchedulers)}
	}
	seen := map[string]bool{}
	for i, name := range names {
		errs = append(errs, rule.RequiredSubdomain(name, path.Index(i))...)
		if seen[name] {
			errs = append(errs, field.Duplicate(path.Index(i), name))
		}
		seen[name] = true
	}
	return errs
}

// sameExpressions tells whether an update leaves the expressions alone. They are then compiled as what is stored is, so that a later version that refuses more
// does not freeze the object.
func sameExpressions(a, b *v1alpha1.SchedulingPolicySpec) bool {
	texts := func(s *v1alpha1.SchedulingPolicySpec) string {
		var out strings.Builder
		for _, v := range s.Variables {
			fmt.Fprintf(&out, "%q=%q\n", v.Name, v.Expression)
		}
		for _, f := range s.Filters {
			fmt.Fprintf(&out, "filter %q\n", f.Expression)
		}
		for _, x := range s.Scores {
			fmt.Fprintf(&out, "score %q\n", x.Expression)
		}
		return out.String()
	}
	return texts(a) == texts(b)
}

func validateExpressions(s *v1alpha1.SchedulingPolicySpec, stored bool, spec *field.Path) field.ErrorList {
	c, err := nodeexpr.NewCompiler(stored)
	if err != nil {
		return field.ErrorList{field.InternalError(spec, err)}
	}
	errs := validateVariables(c, s.Variables, spec.Child("variables"))
	for i := range s.Filters {
		errs = append(errs, validateFilter(c, &s.Filters[i], spec.Child("filters").Index(i))...)
	}
	for i := range s.Scores {
		errs = append(errs, validateScore(c, &s.Scores[i], spec.Child("scores").Index(i))...)
	}
	return errs
}

var (
	identifier = regexp.MustCompile("^[_a-zA-Z][_a-zA-Z0-9]{0,62}$")
	reserved   = " true false null in as break const continue else for function if import let loop package namespace return var void while "
)

func validateVariables(c *nodeexpr.Compiler, list []v1alpha1.PolicyVariable, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := map[string]bool{}
	for i, v := range list {
		name, text := path.Index(i).Child("name"), path.Index(i).Child("expression")
		switch {
		case v.Name == "":
			errs = append(errs, field.Required(name, ""))
		case !identifier.MatchString(v.Name) || strings.Contains(reserved, " "+v.Name+" "):
			errs = append(errs, field.Invalid(name, v.Name, "must be a CEL identifier of at most 63 characters"))
		case seen[v.Name]:
			errs = append(errs, field.Duplicate(name, v.Name))
		default:
			errs = append(errs, compiles(v.Expression, text, func() error { _, err := c.Variable(v.Name, v.Expression); return err })...)
		}
		seen[v.Name] = true
	}
	return errs
}

func compiles(text string, path *field.Path, compile func() error) field.ErrorList {
	if strings.TrimSpace(text) == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	if len(text) > maxText {
		return field.ErrorList{field.TooLong(path, "", maxText)}
	}
	if err := compile(); err != nil {
		return field.ErrorList{field.Invalid(path, text, err.Error())}
	}
	return nil
}

func validateFilter(c *nodeexpr.Compiler, f *v1alpha1.PolicyFilter, path *field.Path) field.ErrorList {
	errs := compiles(f.Expression, path.Child("expression"), func() error { _, err := c.Compile(f.Expression, nodeexpr.Bool); return err })
	if len(f.Message) > maxMessage {
		errs = append(errs, field.TooLong(path.Child("message"), "", maxMessage))
	}
	if strings.ContainsAny(f.Message, "\r\n") {
		errs = append(errs, field.Invalid(path.Child("message"), f.Message, "must be one line"))
	}
	return append(errs, rule.OneOf(f.FailurePolicy, path.Child("failurePolicy"), v1alpha1.FailRefuse, v1alpha1.FailSkip)...)
}

func validateScore(c *nodeexpr.Compiler, s *v1alpha1.PolicyScore, path *field.Path) field.ErrorList {
	errs := compiles(s.Expression, path.Child("expression"), func() error { _, err := c.Compile(s.Expression, nodeexpr.Number); return err })
	if s.Weight < 1 || s.Weight > maxWeight {
		errs = append(errs, field.Invalid(path.Child("weight"), s.Weight, fmt.Sprintf("must be from 1 to %d", maxWeight)))
	}
	if s.Worst != nil && s.Best != nil && s.Worst.AsApproximateFloat64() == s.Best.AsApproximateFloat64() {
		errs = append(errs, field.Invalid(path.Child("best"), s.Best.String(), "must differ from worst"))
	}
	return append(errs, rule.OneOf(s.FailurePolicy, path.Child("failurePolicy"), v1alpha1.FailRefuse, v1alpha1.FailSkip)...)
}

func validateStatus(p, _ *policy) field.ErrorList {
	path := field.NewPath("status")
	return append(metav1validation.ValidateConditions(p.Status.Conditions, path.Child("conditions")),
		rule.NonNegative(p.Status.ObservedGeneration, path.Child("observedGeneration"))...)
}
