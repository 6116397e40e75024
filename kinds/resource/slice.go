package resource

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/kind"
	"github.com/yare-project/yare/kinds/core"
	"github.com/yare-project/yare/kinds/rule"
)

var _ = kind.Add(&Group, kind.Def[resourcev1.DeviceClass]{
	Names:           kind.Names{Plural: "deviceclasses"},
	AnyGenerateName: true,
	ReturnDeleted:   true,
	Scope:           kind.Cluster,
	Validate:        validateClass,
	ValidateName: func(name string, prefix bool) []string {
		if prefix {
			return rule.PathSegmentName(name, true)
		}
		return apivalidation.NameIsDNSSubdomain(name, false)
	},
})

func validateClass(c, old *resourcev1.DeviceClass) field.ErrorList {
	path := field.NewPath("spec")
	stored := old != nil && equality.Semantic.DeepEqual(c.Spec.Selectors, old.Spec.Selectors)
	errs := validateSelectors(c.Spec.Selectors, stored, path.Child("selectors"))
	errs = append(errs, each(c.Spec.Config, resourcev1.DeviceConfigMaxSize, nil, func(k *resourcev1.DeviceClassConfiguration, at *field.Path) field.ErrorList {
		return validateConfiguration(&k.DeviceConfiguration, at)
	}, path.Child("config"))...)
	if n := c.Spec.ExtendedResourceName; n != nil && !extended(*n) {
		errs = append(errs, field.Invalid(path.Child("extendedResourceName"), *n, "must be a valid extended resource name"))
	}
	return errs
}

// extended says whether a name is that of a resource outside Kubernetes, such as example.com/gpu.
func extended(name string) bool {
	domain, _, ok := strings.Cut(name, "/")
	return ok && !strings.Contains(domain, "kubernetes.io") && !strings.HasPrefix(name, corev1.DefaultResourceRequestsPrefix) &&
		len(validation.IsQualifiedName(corev1.DefaultResourceRequestsPrefix+name)) == 0
}

var _ = kind.Add(&Group, kind.Def[resourcev1.ResourceSlice]{
	Names:           kind.Names{Plural: "resourceslices"},
	AnyGenerateName: true,
	ReturnDeleted:   true,
	Scope:           kind.Cluster,
	Default:         defaultSlice,
	Prepare:         prepareSlice,
	Validate:        validateSlice,
	Columns: []kind.Column[resourcev1.ResourceSlice]{
		{Name: "Node", Description: resourcev1.ResourceSliceSpec{}.SwaggerDoc()["nodeName"],
			Value: func(s *resourcev1.ResourceSlice, _ time.Time) any { return ptr.Deref(s.Spec.NodeName, "") }},
		{Name: "Driver", Description: resourcev1.ResourceSliceSpec{}.SwaggerDoc()["driver"],
			Value: func(s *resourcev1.ResourceSlice, _ time.Time) any { return s.Spec.Driver }},
		{Name: "Pool", Description: resourcev1.ResourcePool{}.SwaggerDoc()["name"],
			Value: func(s *resourcev1.ResourceSlice, _ time.Time) any { return s.Spec.Pool.Name }},
	},
	FieldRefusal: "field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: %s",
	Fields: map[string]func(*resourcev1.ResourceSlice) string{
		resourcev1.ResourceSliceSelectorNodeName: func(s *resourcev1.ResourceSlice) string { return ptr.Deref(s.Spec.NodeName, "") },
		resourcev1.ResourceSliceSelectorDriver:   func(s *resourcev1.ResourceSlice) string { return s.Spec.Driver },
	},
})

func defaultSlice(s *resourcev1.ResourceSlice) {
	for i := range s.Spec.Devices {
		d := &s.Spec.Devices[i]
		for j := range d.Taints {
			if d.Taints[j].TimeAdded == nil {
				d.Taints[j].TimeAdded = ptr.To(metav1.Now())
			}
		}
		for name, m := range d.NodeAllocatableResourceMappings {
			if m.AllocationMultiplier == nil {
				m.AllocationMultiplier = apiresource.NewQuantity(1, apiresource.DecimalSI)
				d.NodeAllocatableResourceMappings[name] = m
			}
		}
	}
}

func validateSlice(s, old *resourcev1.ResourceSlice) field.ErrorList {
	path, spec := field.NewPath("spec"), &s.Spec
	errs := validateDriver(spec.Driver, path.Child("driver"))
	errs = append(errs, validatePool(spec.Pool.Name, path.Child("pool", "name"))...)
	errs = append(errs, rule.Positive(spec.Pool.ResourceSliceCount, path.Child("pool", "resourceSliceCount"))...)
	errs = append(errs, rule.NonNegative(spec.Pool.Generation, path.Child("pool", "generation"))...)
	if old != nil {
		errs = append(errs, rule.Immutable(spec.Pool.Name, old.Spec.Pool.Name, path.Child("pool", "name"))...)
		errs = append(errs, rule.Immutable(spec.Driver, old.Spec.Driver, path.Child("driver"))...)
		errs = append(errs, rule.Immutable(spec.NodeName, old.Spec.NodeName, path.Child("nodeName"))...)
	}
	perDevice := ptr.Deref(spec.PerDeviceNodeSelection, false)
	errs = append(errs, onlyTrue(spec.PerDeviceNodeSelection, path.Child("perDeviceNodeSelection"))...)
	errs = append(errs, validateNodes(spec.NodeName, spec.NodeSelector, spec.AllNodes, path)...)
	errs = append(errs, exactlyOne(path, "`nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection`",
		ptr.Deref(spec.NodeName, "") != "", spec.NodeSelector != nil, ptr.Deref(spec.AllNodes, false), perDevice)...)
	if spec.SharedCounters != nil && spec.Devices != nil {
		errs = append(errs, field.Invalid(path, "", "only one of `sharedCounters` or `devices` is allowed"))
	}
	errs = append(errs, each(spec.Devices, maxDevices(spec.Devices), func(d *resourcev1.Device) string { return d.Name },
		func(d *resourcev1.Device, at *field.Path) field.ErrorList {
			return validateDevice(d, before(old, d.Name), perDevice, at)
		}, path.Child("devices"))...)
	return append(errs, each(spec.SharedCounters, resourcev1.ResourceSliceMaxCounterSets, func(c *resourcev1.CounterSet) string { return c.Name },
		func(c *resourcev1.CounterSet, at *field.Path) field.ErrorList {
			return append(requiredLabel(c.Name, at.Child("name")), validateCounters(c.Counters, resourcev1.ResourceSliceMaxCountersPerCounterSet, at.Child("counters"))...)
		}, path.Child("sharedCounters"))...)
}

// maxDevices is lower for slices with what makes devices large.
func maxDevices(devices []resourcev1.Device) int {
	if slices.ContainsFunc(devices, func(d resourcev1.Device) bool {
		return len(d.Taints) > 0 || len(d.ConsumesCounters) > 0 || hasLists(&d)
	}) {
		return resourcev1.ResourceSliceMaxDevicesWithAdvancedFeatures
	}
	return resourcev1.ResourceSliceMaxDevices
}

func before(old *resourcev1.ResourceSlice, name string) *resourcev1.Device {
	if old == nil {
		return nil
	}
	i := slices.IndexFunc(old.Spec.Devices, func(d resourcev1.Device) bool { return d.Name == name })
	if i < 0 {
		return nil
	}
	return &old.Spec.Devices[i]
}

func requiredLabel(name string, path *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return rule.Label(name, path)
}

func onlyTrue(b *bool, path *field.Path) field.ErrorList {
	if b != nil && !*b {
		return field.ErrorList{field.Invalid(path, false, "must be either unset or set to true")}
	}
	return nil
}

// validateNodes checks where a slice or a device is; that it is in one place is checked elsewhere.
func validateNodes(name *string, selector *corev1.NodeSelector, all *bool, path *field.Path) field.ErrorList {
	errs := onlyTrue(all, path.Child("allNodes"))
	if name != nil {
		if *name == "" {
			errs = append(errs, field.Invalid(path.Child("nodeName"), "", "must be either unset or set to a non-empty string"))
		} else {
			errs = append(errs, rule.Subdomain(*name, path.Child("nodeName"))...)
		}
	}
	if selector != nil {
		errs = append(errs, core.ValidateNodeSelector(selector, path.Child("nodeSelector"))...)
		if len(selector.NodeSelectorTerms) != 1 { // which keeps it simple to merge the selectors of a claim's devices
			errs = append(errs, field.Invalid(path.Child("nodeSelector", "nodeSelectorTerms"), selector.NodeSelectorTerms, "must have exactly one node selector term"))
		}
	}
	return errs
}

func validateCounters(counters map[string]resourcev1.Counter, limit int, path *field.Path) field.ErrorList {
	switch n := len(counters); {
	case n == 0:
		return field.ErrorList{field.Required(path, "")}
	case n > limit:
		return field.ErrorList{field.TooMany(path, n, limit)}
	}
	var errs field.ErrorList
	for name := range counters {
		errs = append(errs, rule.Label(name, path)...)
	}
	return errs
}

func validateDevice(d, old *resourcev1.Device, perDevice bool, path *field.Path) field.ErrorList {
	errs := rule.Label(d.Name, path.Child("name"))
	if n := len(d.Attributes) + len(d.Capacity); n > resourcev1.ResourceSliceMaxAttributesAndCapacitiesPerDevice {
		errs = append(errs, field.Invalid(path, n, fmt.Sprintf("the total number of attributes and capacities must not exceed %d", resourcev1.ResourceSliceMaxAttributesAndCapacitiesPerDevice)))
	}
	for name, a := range d.Attributes {
		at := path.Child("attributes").Key(string(name))
		errs = append(errs, validateQualified(string(name), at)...)
		errs = append(errs, validateAttribute(&a, at)...)
	}
	for name, c := range d.Capacity {
		at := path.Child("capacity").Key(string(name))
		errs = append(errs, validateQualified(string(name), at)...)
		if c.RequestPolicy != nil && !ptr.Deref(d.AllowMultipleAllocations, false) {
			errs = append(errs, field.Forbidden(at.Child("requestPolicy"), "allowMultipleAllocations must be true"))
		}
	}
	if old == nil || !equality.Semantic.DeepEqual(old.Taints, d.Taints) {
		errs = append(errs, each(d.Taints, resourcev1.DeviceTaintsMaxLength, nil, validateTaint, path.Child("taints"))...)
	}
	errs = append(errs, each(d.ConsumesCounters, resourcev1.ResourceSliceMaxDeviceCounterConsumptionsPerDevice,
		func(c *resourcev1.DeviceCounterConsumption) string { return c.CounterSet },
		func(c *resourcev1.DeviceCounterConsumption, at *field.Path) field.ErrorList {
			return append(requiredLabel(c.CounterSet, at.Child("counterSet")),
				validateCounters(c.Counters, resourcev1.ResourceSliceMaxCountersPerDeviceCounterConsumption, at.Child("counters"))...)
		}, path.Child("consumesCounters"))...)
	errs = append(errs, validateNodes(d.NodeName, d.NodeSelector, d.AllNodes, path)...)
	errs = append(errs, validateBinding(d.BindingConditions, d.BindingFailureConditions, path)...)
	if perDevice {
		return append(errs, exactlyOne(path, "`nodeName`, `nodeSelector`, or `allNodes`",
			ptr.Deref(d.NodeName, "") != "", d.NodeSelector != nil, ptr.Deref(d.AllNodes, false))...)
	}
	if d.NodeName != nil || d.NodeSelector != nil || d.AllNodes != nil {
		errs = append(errs, field.Invalid(path, d.Name, "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the ResourceSlice spec"))
	}
	return errs
}

// semver is the grammar of semver.org, version 2.0.0.
var semver = regexp.MustCompile(`^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(\.(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*)?(\+[0-9a-zA-Z-]+(\.[0-9a-zA-Z-]+)*)?$`)

func validateAttribute(a *resourcev1.DeviceAttribute, path *field.Path) field.ErrorList {
	set := 0
	for _, s := range []bool{a.BoolValue != nil, a.IntValue != nil, a.StringValue != nil, a.VersionValue != nil,
		a.BoolValues != nil, a.IntValues != nil, a.StringValues != nil, a.VersionValues != nil} {
		if s {
			set++
		}
	}
	var errs field.ErrorList
	if set != 1 {
		errs = append(errs, field.Invalid(path, field.OmitValueType{}, "exactly one value must be specified"))
	}
	value := func(text, name string, version bool) {
		if len(text) > resourcev1.DeviceAttributeMaxValueLength {
			errs = append(errs, field.TooLong(path.Child(name), "", resourcev1.DeviceAttributeMaxValueLength))
		}
		if version && !semver.MatchString(text) {
			errs = append(errs, field.Invalid(path.Child(name), text, "must be a string compatible with semver.org spec 2.0.0"))
		}
	}
	if a.StringValue != nil {
		value(*a.StringValue, "string", false)
	}
	if a.VersionValue != nil {
		value(*a.VersionValue, "version", true)
	}
	for _, s := range a.StringValues {
		value(s, "strings", false)
	}
	for _, s := range a.VersionValues {
		value(s, "versions", true)
	}
	return errs
}

func validateTaint(t *resourcev1.DeviceTaint, path *field.Path) field.ErrorList {
	errs := metav1validation.ValidateLabelName(t.Key, path.Child("key"))
	if t.Value != "" {
		errs = append(errs, rule.Invalid(t.Value, path.Child("value"), validation.IsValidLabelValue(t.Value))...)
	}
	return append(errs, rule.RequiredOneOf(t.Effect, path.Child("effect"), "",
		resourcev1.DeviceTaintEffectNoExecute, resourcev1.DeviceTaintEffectNoSchedule, resourcev1.DeviceTaintEffectNone)...)
}
