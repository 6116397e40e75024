package autoscaling

import (
	"fmt"
	"slices"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/kinds/core"
	"github.com/yare-project/yare/kinds/rule"
)

// The longest that a scaling rule may look back.
const (
	maxPeriodSeconds = 1800
	maxWindowSeconds = 3600
)

func validateHPA(h, old *hpa) field.ErrorList {
	path := field.NewPath("spec")
	spec := &h.Spec
	var errs field.ErrorList
	// Scaling to zero needs metrics that exist without pods; it is off by default in Kubernetes 1.36 and kept for those who have it.
	lowest := int32(1)
	if old != nil && ptr.Deref(old.Spec.MinReplicas, 1) == 0 {
		lowest = 0
	}
	if spec.MinReplicas != nil && *spec.MinReplicas < lowest {
		errs = append(errs, field.Invalid(path.Child("minReplicas"), *spec.MinReplicas, fmt.Sprintf("must be greater than or equal to %d", lowest)))
	}
	switch {
	case spec.MaxReplicas == 0:
		errs = append(errs, field.Required(path.Child("maxReplicas"), "must be set and greater than 0"))
	case spec.MaxReplicas < 0:
		errs = append(errs, field.Invalid(path.Child("maxReplicas"), spec.MaxReplicas, "must be greater than or equal to 1"))
	}
	if spec.MinReplicas != nil && spec.MaxReplicas < *spec.MinReplicas {
		errs = append(errs, field.Invalid(path.Child("maxReplicas"), spec.MaxReplicas, "must be greater than or equal to `minReplicas`"))
	}
	errs = append(errs, validateScaleTarget(h, old, path.Child("scaleTargetRef"))...)
	errs = append(errs, validateMetrics(h, old, path.Child("metrics"))...)
	if spec.Behavior != nil {
		errs = append(errs, validateRules(spec.Behavior.ScaleUp, path.Child("behavior", "scaleUp"))...)
		errs = append(errs, validateRules(spec.Behavior.ScaleDown, path.Child("behavior", "scaleDown"))...)
	}
	return errs
}

func validateHPAStatus(h, _ *hpa) field.ErrorList {
	errs := rule.NonNegative(h.Status.CurrentReplicas, field.NewPath("status", "currentReplicas"))
	return append(errs, rule.NonNegative(h.Status.DesiredReplicas, field.NewPath("status", "desiredReplicas"))...)
}

// reference says how strictly the apiVersion of a reference is taken.
type reference int

const (
	groupRequired reference = iota
	groupOptional
	unchecked
)

func validateScaleTarget(h, old *hpa, path *field.Path) field.ErrorList {
	ref, strictness := h.Spec.ScaleTargetRef, groupRequired
	switch {
	case old != nil && old.Spec.ScaleTargetRef.APIVersion == ref.APIVersion && old.Spec.ScaleTargetRef.Kind == ref.Kind:
		strictness = unchecked
	case ref.Kind == "ReplicationController": // the only scalable kind of the core group
		strictness = groupOptional
	}
	return validateReference(ref, strictness, path)
}

func validateReference(ref autoscalingv2.CrossVersionObjectReference, strictness reference, path *field.Path) field.ErrorList {
	errs := validateSegment(ref.Kind, "", path.Child("kind"))
	errs = append(errs, validateSegment(ref.Name, "", path.Child("name"))...)
	if err := checkAPIVersion(ref.APIVersion, strictness); err != nil {
		errs = append(errs, field.Invalid(path.Child("apiVersion"), ref.APIVersion, err.Error()))
	}
	return errs
}

func checkAPIVersion(text string, strictness reference) error {
	if strictness == unchecked {
		return nil
	}
	gv, err := schema.ParseGroupVersion(text)
	if err == nil && strictness == groupRequired && gv.Group == "" {
		return fmt.Errorf("apiVersion must specify API group")
	}
	return err
}

func validateSegment(name, missing string, path *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path, missing)}
	}
	return rule.Invalid(name, path, rule.PathSegment(name))
}

func validateMetrics(h, old *hpa, path *field.Path) field.ErrorList {
	objects := groupOptional
	if old != nil && slices.ContainsFunc(old.Spec.Metrics, func(m autoscalingv2.MetricSpec) bool {
		return m.Object != nil && checkAPIVersion(m.Object.DescribedObject.APIVersion, groupOptional) != nil
	}) {
		objects = unchecked
	}
	var errs field.ErrorList
	outside := false
	for i := range h.Spec.Metrics {
		m := &h.Spec.Metrics[i]
		errs = append(errs, validateMetric(m, objects, path.Index(i))...)
		outside = outside || m.Type == autoscalingv2.ObjectMetricSourceType || m.Type == autoscalingv2.ExternalMetricSourceType
	}
	if ptr.Deref(h.Spec.MinReplicas, 1) == 0 && !outside {
		errs = append(errs, field.Forbidden(path, "must specify at least one Object or External metric to support scaling to zero replicas"))
	}
	return errs
}

var sourceTypes = []autoscalingv2.MetricSourceType{
	autoscalingv2.ContainerResourceMetricSourceType, autoscalingv2.ExternalMetricSourceType, autoscalingv2.ObjectMetricSourceType,
	autoscalingv2.PodsMetricSourceType, autoscalingv2.ResourceMetricSourceType,
}

// source is one of a metric's alternatives, of which the one that the type names must be the only one set.
type source struct {
	name     string
	kind     autoscalingv2.MetricSourceType
	set      bool
	validate func(path *field.Path) field.ErrorList
}

func sources(m *autoscalingv2.MetricSpec, objects reference) []source {
	return []source{
		{"object", autoscalingv2.ObjectMetricSourceType, m.Object != nil, func(p *field.Path) field.ErrorList { return validateObject(m.Object, objects, p) }},
		{"external", autoscalingv2.ExternalMetricSourceType, m.External != nil, func(p *field.Path) field.ErrorList { return validateExternal(m.External, p) }},
		{"pods", autoscalingv2.PodsMetricSourceType, m.Pods != nil, func(p *field.Path) field.ErrorList { return validatePods(m.Pods, p) }},
		{"resource", autoscalingv2.ResourceMetricSourceType, m.Resource != nil, func(p *field.Path) field.ErrorList {
			return validateResource(string(m.Resource.Name), &m.Resource.Target, p)
		}},
		{"containerResource", autoscalingv2.ContainerResourceMetricSourceType, m.ContainerResource != nil, func(p *field.Path) field.ErrorList {
			errs := validateResource(string(m.ContainerResource.Name), &m.ContainerResource.Target, p)
			if m.ContainerResource.Name != "" {
				errs = append(errs, core.CheckContainerResourceName(m.ContainerResource.Name, p.Child("name"))...)
			}
			if m.ContainerResource.Container == "" {
				return append(errs, field.Required(p.Child("container"), "must specify a container"))
			}
			return append(errs, rule.Label(m.ContainerResource.Container, p.Child("container"))...)
		}},
	}
}

func validateMetric(m *autoscalingv2.MetricSpec, objects reference, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if m.Type == "" {
		errs = append(errs, field.Required(path.Child("type"), "must specify a metric source type"))
	}
	errs = append(errs, rule.OneOf(m.Type, path.Child("type"), sourceTypes...)...)
	var set []source
	for _, s := range sources(m, objects) {
		if s.set {
			set = append(set, s)
		} else if s.kind == m.Type {
			errs = append(errs, field.Required(path.Child(s.name), "must populate information for the given metric source"))
		}
	}
	for i, s := range set {
		if i == 0 {
			errs = append(errs, s.validate(path.Child(s.name))...)
		}
		if s.kind != m.Type && slices.Contains(sourceTypes, m.Type) {
			errs = append(errs, field.Forbidden(path.Child(s.name), "must populate the given metric source only"))
		}
	}
	return errs
}

func validateObject(m *autoscalingv2.ObjectMetricSource, strictness reference, path *field.Path) field.ErrorList {
	errs := validateReference(m.DescribedObject, strictness, path.Child("describedObject"))
	errs = append(errs, validateSegment(m.Metric.Name, "must specify a metric name", path.Child("metric", "name"))...)
	errs = append(errs, validateTarget(&m.Target, path.Child("target"))...)
	if m.Target.Value == nil && m.Target.AverageValue == nil {
		errs = append(errs, field.Required(path.Child("target", "averageValue"), "must set either a target value or averageValue"))
	}
	return errs
}

func validateExternal(m *autoscalingv2.ExternalMetricSource, path *field.Path) field.ErrorList {
	errs := validateSegment(m.Metric.Name, "must specify a metric name", path.Child("metric", "name"))
	errs = append(errs, validateTarget(&m.Target, path.Child("target"))...)
	switch value, average := m.Target.Value != nil, m.Target.AverageValue != nil; {
	case !value && !average:
		errs = append(errs, field.Required(path.Child("target", "averageValue"), "must set either a target value for metric or a per-pod target"))
	case value && average:
		errs = append(errs, field.Forbidden(path.Child("target", "value"), "may not set both a target value for metric and a per-pod target"))
	}
	return errs
}

func validatePods(m *autoscalingv2.PodsMetricSource, path *field.Path) field.ErrorList {
	errs := validateSegment(m.Metric.Name, "must specify a metric name", path.Child("metric", "name"))
	errs = append(errs, validateTarget(&m.Target, path.Child("target"))...)
	if m.Target.AverageValue == nil {
		errs = append(errs, field.Required(path.Child("target", "averageValue"), "must specify a positive target averageValue"))
	}
	return errs
}

func validateResource(name string, t *autoscalingv2.MetricTarget, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if name == "" {
		errs = append(errs, field.Required(path.Child("name"), "must specify a resource name"))
	}
	errs = append(errs, validateTarget(t, path.Child("target"))...)
	switch utilization, average := t.AverageUtilization != nil, t.AverageValue != nil; {
	case !utilization && !average:
		errs = append(errs, field.Required(path.Child("target", "averageUtilization"), "must set either a target raw value or a target utilization"))
	case utilization && average:
		errs = append(errs, field.Forbidden(path.Child("target", "averageValue"), "may not set both a target raw value and a target utilization"))
	}
	return errs
}

func validateTarget(t *autoscalingv2.MetricTarget, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch t.Type {
	case autoscalingv2.UtilizationMetricType, autoscalingv2.ValueMetricType, autoscalingv2.AverageValueMetricType:
	case "":
		errs = append(errs, field.Required(path.Child("type"), "must specify a metric target type"))
		fallthrough
	default:
		errs = append(errs, field.Invalid(path.Child("type"), t.Type, "must be either Utilization, Value, or AverageValue"))
	}
	if t.Value != nil && t.Value.Sign() != 1 {
		errs = append(errs, field.Invalid(path.Child("value"), t.Value, "must be positive"))
	}
	if t.AverageValue != nil && t.AverageValue.Sign() != 1 {
		errs = append(errs, field.Invalid(path.Child("averageValue"), t.AverageValue, "must be positive"))
	}
	if t.AverageUtilization != nil && *t.AverageUtilization < 1 {
		errs = append(errs, field.Invalid(path.Child("averageUtilization"), *t.AverageUtilization, "must be greater than 0"))
	}
	return errs
}

func validateRules(r *autoscalingv2.HPAScalingRules, path *field.Path) field.ErrorList {
	if r == nil {
		return nil
	}
	var errs field.ErrorList
	switch window := ptr.Deref(r.StabilizationWindowSeconds, 0); {
	case window < 0:
		errs = append(errs, field.Invalid(path.Child("stabilizationWindowSeconds"), window, "must be greater than or equal to zero"))
	case window > maxWindowSeconds:
		errs = append(errs, field.Invalid(path.Child("stabilizationWindowSeconds"), window, fmt.Sprintf("must be less than or equal to %d", maxWindowSeconds)))
	}
	if r.SelectPolicy != nil {
		errs = append(errs, rule.OneOf(*r.SelectPolicy, path.Child("selectPolicy"), autoscalingv2.DisabledPolicySelect,
			autoscalingv2.MaxChangePolicySelect, autoscalingv2.MinChangePolicySelect)...)
	}
	if len(r.Policies) == 0 {
		errs = append(errs, field.Required(path.Child("policies"), "must specify at least one Policy"))
	}
	for i, p := range r.Policies {
		at := path.Child("policies").Index(i)
		errs = append(errs, rule.OneOf(p.Type, at.Child("type"), autoscalingv2.PercentScalingPolicy, autoscalingv2.PodsScalingPolicy)...)
		errs = append(errs, rule.Positive(p.Value, at.Child("value"))...)
		errs = append(errs, rule.Positive(p.PeriodSeconds, at.Child("periodSeconds"))...)
		if p.PeriodSeconds > maxPeriodSeconds {
			errs = append(errs, field.Invalid(at.Child("periodSeconds"), p.PeriodSeconds, fmt.Sprintf("must be less than or equal to %d", maxPeriodSeconds)))
		}
	}
	if r.Tolerance != nil && r.Tolerance.Sign() < 0 {
		errs = append(errs, field.Invalid(path.Child("tolerance"), r.Tolerance.String(), "must be greater than or equal to 0"))
	}
	return errs
}
