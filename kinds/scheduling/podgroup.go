package scheduling

import (
	"time"

	"k8s.io/api/scheduling/v1alpha2"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/yare-project/yare/kind"
	"github.com/yare-project/yare/kinds/rule"
)

// Pods that belong together (KEP-4671). Kubernetes 1.36 has these kinds behind the gates GenericWorkload, GangScheduling and TopologyAwareWorkloadScheduling,
// which are on here. Fields behind WorkloadAwarePreemption and DRAWorkloadResourceClaims are refused, respectively dropped, as where those gates are off.
var _ = kind.Add(&Group, kind.Def[v1alpha2.PodGroup]{
	Names:   kind.Names{Plural: "podgroups"},
	Scope:   kind.Namespaced,
	Version: "v1alpha2",
	Prepare: func(new, old *v1alpha2.PodGroup) {
		dropClaims(&new.Spec.ResourceClaims, old != nil && len(old.Spec.ResourceClaims) > 0)
	},
	Validate:       validatePodGroup,
	ValidateStatus: validatePodGroupStatus,
	Columns: []kind.Column[v1alpha2.PodGroup]{
		{Name: "Policy", Description: v1alpha2.PodGroupSpec{}.SwaggerDoc()["schedulingPolicy"],
			Value: func(g *v1alpha2.PodGroup, _ time.Time) any { return policyOf(g) }},
		{Name: "Workload", Description: "Name of the referenced Workload object",
			Value: func(g *v1alpha2.PodGroup, _ time.Time) any { return workloadOf(g) }},
		{Name: "Status", Description: "Status of the PodGroup",
			Value: func(g *v1alpha2.PodGroup, _ time.Time) any { return statusOf(g) }},
	},
})

func policyOf(g *v1alpha2.PodGroup) string {
	if g.Spec.SchedulingPolicy.Gang != nil {
		return "Gang"
	}
	return "Basic"
}

func workloadOf(g *v1alpha2.PodGroup) string {
	if ref := g.Spec.PodGroupTemplateRef; ref != nil && ref.Workload != nil {
		return ref.Workload.WorkloadName
	}
	return "<none>"
}

func statusOf(g *v1alpha2.PodGroup) string {
	if c := meta.FindStatusCondition(g.Status.Conditions, v1alpha2.DisruptionTarget); c != nil {
		return c.Reason
	}
	switch c := meta.FindStatusCondition(g.Status.Conditions, v1alpha2.PodGroupScheduled); {
	case c == nil:
		return "Pending"
	case c.Status == metav1.ConditionTrue:
		return "Scheduled"
	}
	return "Unschedulable"
}

// dropClaims takes out what a gate that is off has no room for, unless it is there already.
func dropClaims(claims *[]v1alpha2.PodGroupResourceClaim, used bool) {
	if !used {
		*claims = nil
	}
}

func validatePodGroup(g, old *v1alpha2.PodGroup) field.ErrorList {
	spec := field.NewPath("spec")
	if old != nil {
		errs := rule.Immutable(g.Spec.PodGroupTemplateRef, old.Spec.PodGroupTemplateRef, spec.Child("podGroupTemplateRef"))
		errs = append(errs, rule.Immutable(g.Spec.SchedulingPolicy, old.Spec.SchedulingPolicy, spec.Child("schedulingPolicy"))...)
		errs = append(errs, rule.Immutable(g.Spec.SchedulingConstraints, old.Spec.SchedulingConstraints, spec.Child("schedulingConstraints"))...)
		errs = append(errs, rule.Immutable(g.Spec.ResourceClaims, old.Spec.ResourceClaims, spec.Child("resourceClaims"))...)
		return append(errs, disruption(g.Spec.DisruptionMode, g.Spec.PriorityClassName, g.Spec.Priority, spec)...)
	}
	var errs field.ErrorList
	if ref := g.Spec.PodGroupTemplateRef; ref != nil {
		errs = append(errs, validateTemplateRef(ref, spec.Child("podGroupTemplateRef"))...)
	}
	errs = append(errs, validatePolicyOf(&g.Spec.SchedulingPolicy, spec.Child("schedulingPolicy"))...)
	errs = append(errs, validateConstraints(g.Spec.SchedulingConstraints, spec.Child("schedulingConstraints"))...)
	return append(errs, disruption(g.Spec.DisruptionMode, g.Spec.PriorityClassName, g.Spec.Priority, spec)...)
}

func validateTemplateRef(ref *v1alpha2.PodGroupTemplateReference, path *field.Path) field.ErrorList {
	if ref.Workload == nil {
		return field.ErrorList{field.Invalid(path, "", "must specify one of: `workload`")}
	}
	path = path.Child("workload")
	errs := rule.RequiredSubdomain(ref.Workload.WorkloadName, path.Child("workloadName"))
	return append(errs, requiredLabel(ref.Workload.PodGroupTemplateName, path.Child("podGroupTemplateName"))...)
}

func requiredLabel(name string, path *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return rule.Label(name, path)
}

// validatePolicyOf wants exactly one policy.
func validatePolicyOf(p *v1alpha2.PodGroupSchedulingPolicy, path *field.Path) field.ErrorList {
	switch {
	case p.Basic == nil && p.Gang == nil:
		return field.ErrorList{field.Invalid(path, "", "must specify one of: `basic`, `gang`")}
	case p.Basic != nil && p.Gang != nil:
		return field.ErrorList{field.Invalid(path, "{`basic`, `gang`}", "must specify exactly one of: `basic`, `gang`")}
	case p.Gang == nil:
		return nil
	}
	switch at := path.Child("gang", "minCount"); {
	case p.Gang.MinCount == 0:
		return field.ErrorList{field.Required(at, "")}
	case p.Gang.MinCount < 1:
		return field.ErrorList{field.Invalid(at, p.Gang.MinCount, "must be greater than or equal to 1")}
	}
	return nil
}

func validateConstraints(c *v1alpha2.PodGroupSchedulingConstraints, path *field.Path) field.ErrorList {
	if c == nil {
		return nil
	}
	path = path.Child("topology")
	if len(c.Topology) > 1 {
		return field.ErrorList{field.TooMany(path, len(c.Topology), 1)}
	}
	var errs field.ErrorList
	for i := range c.Topology {
		at := path.Index(i).Child("key")
		if c.Topology[i].Key == "" {
			errs = append(errs, field.Required(at, ""))
			continue
		}
		errs = append(errs, rule.Invalid(c.Topology[i].Key, at, validation.IsQualifiedName(c.Topology[i].Key))...)
	}
	return errs
}

// disruption refuses what is behind the gate WorkloadAwarePreemption.
func disruption(mode *v1alpha2.DisruptionMode, class string, priority *int32, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if mode != nil {
		errs = append(errs, field.Forbidden(path.Child("disruptionMode"), ""))
	}
	if class != "" {
		errs = append(errs, field.Forbidden(path.Child("priorityClassName"), ""))
	}
	if priority != nil {
		errs = append(errs, field.Forbidden(path.Child("priority"), ""))
	}
	return errs
}

func validatePodGroupStatus(g, _ *v1alpha2.PodGroup) field.ErrorList {
	path := field.NewPath("status")
	errs := metav1validation.ValidateConditions(g.Status.Conditions, path.Child("conditions"))
	for i, s := range g.Status.ResourceClaimStatuses { // there are no claims that these could be of
		errs = append(errs, field.Invalid(path.Child("resourceClaimStatuses").Index(i).Child("name"), s.Name, "must match the name of an entry in `spec.resourceClaims`"))
	}
	return errs
}
