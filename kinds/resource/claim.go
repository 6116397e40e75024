package resource

import (
	"fmt"
	"strings"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/yare-project/yare/kind"
	"github.com/yare-project/yare/kinds/rule"
)

var _ = kind.Add(&Group, kind.Def[resourcev1.ResourceClaim]{
	Names:          kind.Names{Plural: "resourceclaims"},
	ReturnDeleted:  true,
	NoGeneration:   true, // its spec never changes
	Default:        defaultClaim,
	PrepareStatus:  dropDeallocated,
	Validate:       validateClaim,
	ValidateStatus: validateClaimStatus,
	Columns: []kind.Column[resourcev1.ResourceClaim]{
		{Name: "State", Description: "Whether the claim waits, is allocated, reserved, or being deleted.",
			Value: func(c *resourcev1.ResourceClaim, _ time.Time) any { return claimState(c) }},
	},
})

var _ = kind.Add(&Group, kind.Def[resourcev1.ResourceClaimTemplate]{
	Names:         kind.Names{Plural: "resourceclaimtemplates"},
	ReturnDeleted: true,
	NoGeneration:  true,
	Default:       func(t *resourcev1.ResourceClaimTemplate) { defaultRequests(t.Spec.Spec.Devices.Requests) },
	Validate: func(t, old *resourcev1.ResourceClaimTemplate) field.ErrorList {
		path := field.NewPath("spec")
		errs := rule.TemplateMeta(&t.Spec.ObjectMeta, path.Child("metadata"))
		errs = append(errs, validateDeviceClaim(&t.Spec.Spec.Devices, path.Child("spec", "devices"))...)
		if old != nil {
			errs = append(errs, rule.Immutable(t.Spec, old.Spec, path)...)
		}
		return errs
	},
})

func claimState(c *resourcev1.ResourceClaim) string {
	var states []string
	if c.DeletionTimestamp != nil {
		states = append(states, "deleted")
	}
	switch {
	case c.Status.Allocation != nil:
		states = append(states, "allocated")
		if len(c.Status.ReservedFor) > 0 {
			states = append(states, "reserved")
		}
	case c.DeletionTimestamp == nil:
		states = append(states, "pending")
	}
	return strings.Join(states, ",")
}

func defaultClaim(c *resourcev1.ResourceClaim) {
	defaultRequests(c.Spec.Devices.Requests)
	if a := c.Status.Allocation; a != nil {
		for i := range a.Devices.Results {
			defaultTolerations(a.Devices.Results[i].Tolerations)
		}
	}
}

func defaultTolerations(list []resourcev1.DeviceToleration) {
	for i := range list {
		if list[i].Operator == "" {
			list[i].Operator = resourcev1.DeviceTolerationOpEqual
		}
	}
}

func defaultRequests(list []resourcev1.DeviceRequest) {
	for i := range list {
		if e := list[i].Exactly; e != nil {
			defaultCount(&e.AllocationMode, &e.Count)
			defaultTolerations(e.Tolerations)
		}
		for j := range list[i].FirstAvailable {
			s := &list[i].FirstAvailable[j]
			defaultCount(&s.AllocationMode, &s.Count)
			defaultTolerations(s.Tolerations)
		}
	}
}

func defaultCount(mode *resourcev1.DeviceAllocationMode, count *int64) {
	if *mode == "" {
		*mode = resourcev1.DeviceAllocationModeExactCount
	}
	if *mode == resourcev1.DeviceAllocationModeExactCount && *count == 0 {
		*count = 1
	}
}

func validateClaim(c, old *resourcev1.ResourceClaim) field.ErrorList {
	path := field.NewPath("spec")
	if old != nil {
		return rule.Immutable(c.Spec, old.Spec, path)
	}
	return validateDeviceClaim(&c.Spec.Devices, path.Child("devices"))
}

func validateDeviceClaim(c *resourcev1.DeviceClaim, path *field.Path) field.ErrorList {
	names := requestsOf(c)
	errs := each(c.Requests, resourcev1.DeviceRequestsMaxSize, func(r *resourcev1.DeviceRequest) string { return r.Name }, validateRequest, path.Child("requests"))
	errs = append(errs, each(c.Constraints, resourcev1.DeviceConstraintsMaxSize, nil,
		func(k *resourcev1.DeviceConstraint, at *field.Path) field.ErrorList {
			return validateConstraint(k, names, at)
		}, path.Child("constraints"))...)
	return append(errs, each(c.Config, resourcev1.DeviceConfigMaxSize, nil, func(k *resourcev1.DeviceClaimConfiguration, at *field.Path) field.ErrorList {
		return append(names.checkAll(k.Requests, at.Child("requests")), validateConfiguration(&k.DeviceConfiguration, at)...)
	}, path.Child("config"))...)
}

func validateRequest(r *resourcev1.DeviceRequest, path *field.Path) field.ErrorList {
	errs := rule.Label(r.Name, path.Child("name"))
	errs = append(errs, exactlyOne(path, "`exactly` or `firstAvailable`", r.Exactly != nil, len(r.FirstAvailable) > 0)...)
	if e := r.Exactly; e != nil {
		errs = append(errs, validateDevices(e.DeviceClassName, e.Selectors, e.AllocationMode, e.Count, e.Tolerations, path.Child("exactly"))...)
	}
	return append(errs, each(r.FirstAvailable, resourcev1.FirstAvailableDeviceRequestMaxSize, func(s *resourcev1.DeviceSubRequest) string { return s.Name },
		func(s *resourcev1.DeviceSubRequest, at *field.Path) field.ErrorList {
			errs := rule.Label(s.Name, at.Child("name"))
			return append(errs, validateDevices(s.DeviceClassName, s.Selectors, s.AllocationMode, s.Count, s.Tolerations, at)...)
		}, path.Child("firstAvailable"))...)
}

func validateDevices(class string, selectors []resourcev1.DeviceSelector, mode resourcev1.DeviceAllocationMode, count int64,
	tolerations []resourcev1.DeviceToleration, path *field.Path) field.ErrorList {
	errs := rule.RequiredSubdomain(class, path.Child("deviceClassName"))
	errs = append(errs, validateSelectors(selectors, false, path.Child("selectors"))...)
	switch mode {
	case resourcev1.DeviceAllocationModeAll:
		if count != 0 {
			errs = append(errs, field.Invalid(path.Child("count"), count, fmt.Sprintf("must not be specified when allocationMode is '%s'", mode)))
		}
	case resourcev1.DeviceAllocationModeExactCount:
		errs = append(errs, rule.Positive(count, path.Child("count"))...)
	default:
		errs = append(errs, rule.OneOf(mode, path.Child("allocationMode"), resourcev1.DeviceAllocationModeAll, resourcev1.DeviceAllocationModeExactCount)...)
	}
	return append(errs, each(tolerations, resourcev1.DeviceTolerationsMaxLength, nil, validateToleration, path.Child("tolerations"))...)
}

func validateToleration(t *resourcev1.DeviceToleration, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if t.Key != "" {
		errs = append(errs, metav1validation.ValidateLabelName(t.Key, path.Child("key"))...)
	}
	switch t.Operator {
	case resourcev1.DeviceTolerationOpExists:
		if t.Value != "" {
			errs = append(errs, field.Invalid(path.Child("value"), t.Value, "must be empty for operator `Exists`"))
		}
	case resourcev1.DeviceTolerationOpEqual, "":
		errs = append(errs, rule.Invalid(t.Value, path.Child("value"), validation.IsValidLabelValue(t.Value))...)
	default:
		errs = append(errs, rule.OneOf(t.Operator, path.Child("operator"), resourcev1.DeviceTolerationOpEqual, resourcev1.DeviceTolerationOpExists)...)
	}
	if t.Effect != "" {
		errs = append(errs, rule.OneOf(t.Effect, path.Child("effect"), resourcev1.DeviceTaintEffectNoExecute, resourcev1.DeviceTaintEffectNoSchedule, resourcev1.DeviceTaintEffectNone)...)
	}
	return errs
}

func validateConstraint(k *resourcev1.DeviceConstraint, names requests, path *field.Path) field.ErrorList {
	errs := names.checkAll(k.Requests, path.Child("requests"))
	switch { // one of both counts, and the first is it
	case k.MatchAttribute != nil:
		return append(errs, validateFullyQualified(string(*k.MatchAttribute), path.Child("matchAttribute"))...)
	case k.DistinctAttribute != nil:
		return append(errs, validateFullyQualified(string(*k.DistinctAttribute), path.Child("distinctAttribute"))...)
	}
	return append(errs, field.Required(path, `exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are set`))
}
