package plugins

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// What follows checks arguments by the rules, and with the texts, of kubescheduler.config.k8s.io/v1.

// invalid names the plugin whose arguments have errs; nil if there are none.
func invalid(plugin string, errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("arguments of plugin %s: %w", plugin, errs.ToAggregate())
}

// inRange refuses a value outside of the range.
func inRange(path *field.Path, v, least, most int64) field.ErrorList {
	if v < least || v > most {
		return field.ErrorList{field.Invalid(path, v, fmt.Sprintf("not in valid range [%d, %d]", least, most))}
	}
	return nil
}

// checkShape wants points of rising utilization (0 to 100) with scores of 0 to 10.
func checkShape(shape []shapePoint, path *field.Path) (errs field.ErrorList) {
	if len(shape) == 0 {
		return field.ErrorList{field.Required(path, "at least one point must be specified")}
	}
	for k := 1; k < len(shape); k++ {
		if shape[k-1].Utilization >= shape[k].Utilization {
			errs = append(errs, field.Invalid(path.Index(k).Child("utilization"), shape[k].Utilization, "values must be sorted in increasing order"))
			break
		}
	}
	for k, p := range shape {
		errs = append(errs, inRange(path.Index(k).Child("utilization"), int64(p.Utilization), 0, 100)...)
		errs = append(errs, inRange(path.Index(k).Child("score"), int64(p.Score), 0, 10)...)
	}
	return errs
}

// check wants a known strategy, weights of 1 to 100, and a shape exactly where the strategy has one.
func (s *scoringStrategy) check(path *field.Path) (errs field.ErrorList) {
	known := []string{"LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"}
	if !slices.Contains(known, s.Type) {
		errs = append(errs, field.NotSupported(path.Child("type"), s.Type, known))
	}
	for k, r := range s.Resources {
		if r.Weight < 0 || r.Weight > 100 { // zero stands for the default
			errs = append(errs, field.Invalid(path.Child("resources").Index(k).Child("weight"), r.Weight, fmt.Sprintf("resource weight of %v not in valid range (0, 100]", r.Name)))
		}
		if r.Name == "" {
			errs = append(errs, field.Required(path.Child("resources").Index(k).Child("name"), "a weight needs a resource"))
		}
	}
	ratio := path.Child("requestedToCapacityRatio")
	switch {
	case s.Type == "RequestedToCapacityRatio" && s.RequestedToCapacityRatio == nil:
		errs = append(errs, field.Required(ratio, "must be specified when type is RequestedToCapacityRatio"))
	case s.Type == "RequestedToCapacityRatio":
		errs = append(errs, checkShape(s.RequestedToCapacityRatio.Shape, ratio.Child("shape"))...)
	case s.RequestedToCapacityRatio != nil:
		errs = append(errs, field.Forbidden(ratio, "must be nil when type is not RequestedToCapacityRatio"))
	}
	return errs
}

func (a *fitArgs) check() (errs field.ErrorList) {
	for k, name := range a.IgnoredResources {
		errs = append(errs, metav1validation.ValidateLabelName(name, field.NewPath("ignoredResources").Index(k))...)
	}
	for k, group := range a.IgnoredResourceGroups {
		path := field.NewPath("ignoredResourceGroups").Index(k)
		if strings.Contains(group, "/") {
			errs = append(errs, field.Invalid(path, group, "resource group name can't contain '/'"))
		}
		errs = append(errs, metav1validation.ValidateLabelName(group, path)...)
	}
	if a.ScoringStrategy != nil {
		errs = append(errs, a.ScoringStrategy.check(field.NewPath("scoringStrategy"))...)
	}
	return errs
}

// checkBalanced wants each resource once, and no weight but 1.
func checkBalanced(list []resourceSpec) (errs field.ErrorList) {
	seen := map[string]bool{}
	for k, r := range list {
		path := field.NewPath("resources").Index(k)
		if seen[r.Name] {
			errs = append(errs, field.Duplicate(path.Child("name"), r.Name))
		}
		seen[r.Name] = true
		if r.Name == "" {
			errs = append(errs, field.Required(path.Child("name"), "a weight needs a resource"))
		}
		if r.Weight > 1 || r.Weight < 0 {
			errs = append(errs, field.Invalid(path.Child("weight"), r.Weight, "must be 1"))
		}
	}
	return errs
}

func (a *preemptionArgs) check(percentage, absolute int64) (errs field.ErrorList) {
	p, n := field.NewPath("minCandidateNodesPercentage"), field.NewPath("minCandidateNodesAbsolute")
	errs = inRange(p, percentage, 0, 100)
	if absolute < 0 {
		errs = append(errs, field.Invalid(n, absolute, "not in valid range [0, inf)"))
	}
	if percentage == 0 && absolute == 0 {
		errs = append(errs, field.Invalid(p, percentage, "cannot be zero at the same time as minCandidateNodesAbsolute"),
			field.Invalid(n, absolute, "cannot be zero at the same time as minCandidateNodesPercentage"))
	}
	return errs
}

func (a *spreadArgs) check() (errs field.ErrorList) {
	path := field.NewPath("defaultingType")
	switch {
	case a.DefaultingType != "System" && a.DefaultingType != "List":
		errs = append(errs, field.NotSupported(path, a.DefaultingType, []string{"System", "List"}))
	case a.DefaultingType == "System" && len(a.DefaultConstraints) > 0:
		errs = append(errs, field.Invalid(path, a.DefaultingType, "when .defaultConstraints are not empty"))
	}
	for k := range a.DefaultConstraints {
		errs = append(errs, checkDefaultConstraint(a.DefaultConstraints, k, field.NewPath("defaultConstraints"))...)
	}
	return errs
}

func checkDefaultConstraint(list []corev1.TopologySpreadConstraint, k int, all *field.Path) (errs field.ErrorList) {
	c, path := &list[k], all.Index(k)
	if c.MaxSkew <= 0 {
		errs = append(errs, field.Invalid(path.Child("maxSkew"), c.MaxSkew, "not in valid range (0, inf)"))
	}
	if c.TopologyKey == "" {
		errs = append(errs, field.Required(path.Child("topologyKey"), "can not be empty"))
	} else {
		errs = append(errs, metav1validation.ValidateLabelName(c.TopologyKey, path.Child("topologyKey"))...)
	}
	actions := []corev1.UnsatisfiableConstraintAction{corev1.DoNotSchedule, corev1.ScheduleAnyway}
	switch {
	case c.WhenUnsatisfiable == "":
		errs = append(errs, field.Required(path.Child("whenUnsatisfiable"), "can not be empty"))
	case !slices.Contains(actions, c.WhenUnsatisfiable):
		errs = append(errs, field.NotSupported(path.Child("whenUnsatisfiable"), c.WhenUnsatisfiable, actions))
	}
	if c.LabelSelector != nil {
		errs = append(errs, field.Forbidden(path.Child("labelSelector"), "constraint must not define a selector, as they deduced for each pod"))
	}
	for _, other := range list[:k] {
		if c.TopologyKey == other.TopologyKey && c.WhenUnsatisfiable == other.WhenUnsatisfiable {
			errs = append(errs, field.Duplicate(path, fmt.Sprintf("{%v, %v}", c.TopologyKey, c.WhenUnsatisfiable)))
			break
		}
	}
	return errs
}
