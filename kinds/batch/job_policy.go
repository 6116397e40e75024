package batch

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/kinds/rule"
)

// The limits of a job's policies.
const (
	maxFailureRules      = 20
	maxExitCodes         = 255
	maxPodConditions     = 20
	maxSuccessRules      = 20
	maxSucceededIndexes  = 64 << 10
	failureActions       = `valid values: ["Count" "FailIndex" "FailJob" "Ignore"]`
	conditionStatuses    = `valid values: ["False" "True" "Unknown"]`
	exitCodeOperators    = `valid values: ["In" "NotIn"]`
	bothRequirements     = "specifying both OnExitCodes and OnPodConditions is not supported"
	neitherRequirement   = "specifying one of OnExitCodes and OnPodConditions is required"
	unknownContainer     = "must be one of the container or initContainer names in the pod template"
	successRulesRequired = "at least one rules must be specified when the successPolicy is specified"
	successRuleEmpty     = "at least one of succeededCount or succeededIndexes must be specified"
)

func validateFailurePolicy(spec *batchv1.JobSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	rules := spec.PodFailurePolicy.Rules
	if len(rules) > maxFailureRules {
		errs = append(errs, field.TooMany(path.Child("rules"), len(rules), maxFailureRules))
	}
	var containers []string
	for _, c := range append(slices.Clone(spec.Template.Spec.Containers), spec.Template.Spec.InitContainers...) {
		containers = append(containers, c.Name)
	}
	for i := range rules {
		errs = append(errs, validateFailureRule(spec, &rules[i], containers, path.Child("rules").Index(i))...)
	}
	return errs
}

func validateFailureRule(spec *batchv1.JobSpec, r *batchv1.PodFailurePolicyRule, containers []string, path *field.Path) field.ErrorList {
	errs := rule.RequiredOneOf(r.Action, path.Child("action"), failureActions, batchv1.PodFailurePolicyActionCount,
		batchv1.PodFailurePolicyActionFailIndex, batchv1.PodFailurePolicyActionFailJob, batchv1.PodFailurePolicyActionIgnore)
	if r.Action == batchv1.PodFailurePolicyActionFailIndex && spec.BackoffLimitPerIndex == nil {
		errs = append(errs, field.Invalid(path.Child("action"), r.Action, "requires the backoffLimitPerIndex to be set"))
	}
	if r.OnExitCodes != nil {
		errs = append(errs, validateExitCodes(r.OnExitCodes, containers, path.Child("onExitCodes"))...)
	}
	errs = append(errs, validatePodConditions(r.OnPodConditions, path.Child("onPodConditions"))...)
	switch hasCodes, hasConditions := r.OnExitCodes != nil, len(r.OnPodConditions) > 0; {
	case hasCodes && hasConditions:
		errs = append(errs, field.Invalid(path, field.OmitValueType{}, bothRequirements))
	case !hasCodes && !hasConditions:
		errs = append(errs, field.Invalid(path, field.OmitValueType{}, neitherRequirement))
	}
	return errs
}

func validatePodConditions(patterns []batchv1.PodFailurePolicyOnPodConditionsPattern, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(patterns) > maxPodConditions {
		errs = append(errs, field.TooMany(path, len(patterns), maxPodConditions))
	}
	for i, p := range patterns {
		errs = append(errs, rule.QualifiedName(string(p.Type), path.Index(i).Child("type"))...)
		errs = append(errs, rule.RequiredOneOf(p.Status, path.Index(i).Child("status"), conditionStatuses,
			corev1.ConditionFalse, corev1.ConditionTrue, corev1.ConditionUnknown)...)
	}
	return errs
}

func validateExitCodes(r *batchv1.PodFailurePolicyOnExitCodesRequirement, containers []string, path *field.Path) field.ErrorList {
	errs := rule.RequiredOneOf(r.Operator, path.Child("operator"), exitCodeOperators,
		batchv1.PodFailurePolicyOnExitCodesOpIn, batchv1.PodFailurePolicyOnExitCodesOpNotIn)
	if r.ContainerName != nil && !slices.Contains(containers, *r.ContainerName) {
		errs = append(errs, field.Invalid(path.Child("containerName"), *r.ContainerName, unknownContainer))
	}
	values := path.Child("values")
	switch n := len(r.Values); {
	case n == 0:
		errs = append(errs, field.Invalid(values, r.Values, "at least one value is required"))
	case n > maxExitCodes:
		errs = append(errs, field.TooMany(values, n, maxExitCodes))
	}
	for i, code := range r.Values {
		if r.Operator == batchv1.PodFailurePolicyOnExitCodesOpIn && code == 0 {
			errs = append(errs, field.Invalid(values.Index(i), code, "must not be 0 for the In operator"))
		}
		if slices.Contains(r.Values[:i], code) {
			errs = append(errs, field.Duplicate(values.Index(i), code))
		}
	}
	if !slices.IsSorted(r.Values) {
		errs = append(errs, field.Invalid(values, r.Values, "must be ordered"))
	}
	return errs
}

func validateSuccessPolicy(spec *batchv1.JobSpec, path *field.Path) field.ErrorList {
	if ptr.Deref(spec.CompletionMode, "") != batchv1.IndexedCompletion {
		return field.ErrorList{field.Invalid(path, *spec.SuccessPolicy, "requires indexed completion mode")}
	}
	if spec.Completions == nil {
		return nil // refused already: an indexed job needs completions
	}
	var errs field.ErrorList
	rules, rulesPath := spec.SuccessPolicy.Rules, path.Child("rules")
	switch n := len(rules); {
	case n == 0:
		errs = append(errs, field.Required(rulesPath, successRulesRequired))
	case n > maxSuccessRules:
		errs = append(errs, field.TooMany(rulesPath, n, maxSuccessRules))
	}
	for i := range rules {
		errs = append(errs, validateSuccessRule(&rules[i], *spec.Completions, rulesPath.Index(i))...)
	}
	return errs
}

func validateSuccessRule(r *batchv1.SuccessPolicyRule, completions int32, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	var total int32
	if r.SucceededCount == nil && r.SucceededIndexes == nil {
		errs = append(errs, field.Required(path, successRuleEmpty))
	}
	if r.SucceededIndexes != nil {
		at := path.Child("succeededIndexes")
		if len(*r.SucceededIndexes) > maxSucceededIndexes {
			errs = append(errs, field.TooLong(at, "", maxSucceededIndexes))
		}
		indexes, err := parseIndexes(*r.SucceededIndexes, completions)
		if err != nil {
			errs = append(errs, field.Invalid(at, *r.SucceededIndexes, fmt.Sprintf("error parsing succeededIndexes: %s", err)))
		}
		total = indexes.count()
	}
	if r.SucceededCount != nil {
		at, n := path.Child("succeededCount"), *r.SucceededCount
		errs = append(errs, rule.NonNegative(n, at)...)
		if n > completions {
			errs = append(errs, field.Invalid(at, n, fmt.Sprintf("must be less than or equal to %d (the number of specified completions)", completions)))
		}
		if r.SucceededIndexes != nil && n > total {
			errs = append(errs, field.Invalid(at, n, fmt.Sprintf("must be less than or equal to %d (the number of indexes in the specified succeededIndexes field)", total)))
		}
	}
	return errs
}

// intervals are sets of indexes in rising order, both ends included: 1,3-5 is {{1,1},{3,5}}.
type intervals [][2]int32

func (s intervals) count() (n int32) {
	for _, i := range s {
		n += i[1] - i[0] + 1
	}
	return n
}

// overlaps says whether both hold an index.
func (s intervals) overlaps(other intervals) bool {
	for len(s) > 0 && len(other) > 0 {
		switch {
		case s[0][1] < other[0][0]:
			s = s[1:]
		case other[0][1] < s[0][0]:
			other = other[1:]
		default:
			return true
		}
	}
	return false
}

// parseIndexes reads the compressed form of a set of indexes below completions. It returns what it read before an error.
func parseIndexes(text string, completions int32) (intervals, error) {
	var out intervals
	if text == "" {
		return nil, nil
	}
	last := int32(-1)
	for item := range strings.SplitSeq(text, ",") {
		ends := strings.Split(item, "-")
		if len(ends) > 2 {
			return out, fmt.Errorf("the fragment %q violates the requirement that an index interval can have at most two parts separated by '-'", item)
		}
		x, err := parseIndex(ends[0], completions)
		if err != nil {
			return out, err
		}
		y := x
		if len(ends) == 2 {
			if y, err = parseIndex(ends[1], completions); err != nil {
				return out, err
			}
			if x >= y {
				return out, fmt.Errorf("non-increasing order, previous: %d, current: %d", x, y)
			}
		}
		if x <= last {
			return out, fmt.Errorf("non-increasing order, previous: %d, current: %d", last, x)
		}
		out, last = append(out, [2]int32{x, y}), y
	}
	return out, nil
}

func parseIndex(text string, completions int32) (int32, error) {
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0, fmt.Errorf("cannot convert string to integer for index: %q", text)
	}
	if n < 0 {
		return 0, fmt.Errorf("index is negative: %q", text)
	}
	if n >= int(completions) {
		return 0, fmt.Errorf("too large index: %q", text)
	}
	return int32(n), nil
}
