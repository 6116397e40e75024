package scheduling

import (
	"k8s.io/api/scheduling/v1alpha2"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/yare-project/yare/kind"
	"github.com/yare-project/yare/kinds/rule"
)

const maxPodGroupTemplates = v1alpha2.WorkloadMaxPodGroupTemplates

var _ = kind.Add(&Group, kind.Def[v1alpha2.Workload]{
	Names:    kind.Names{Plural: "workloads"},
	Scope:    kind.Namespaced,
	Version:  "v1alpha2",
	Prepare:  prepareWorkload,
	Validate: validateWorkload,
})

func prepareWorkload(new, old *v1alpha2.Workload) {
	used := false
	if old != nil {
		for i := range old.Spec.PodGroupTemplates {
			used = used || len(old.Spec.PodGroupTemplates[i].ResourceClaims) > 0
		}
	}
	for i := range new.Spec.PodGroupTemplates {
		dropClaims(&new.Spec.PodGroupTemplates[i].ResourceClaims, used)
	}
}

func validateWorkload(w, old *v1alpha2.Workload) field.ErrorList {
	spec := field.NewPath("spec")
	templates := spec.Child("podGroupTemplates")
	if old != nil {
		errs := rule.Immutable(w.Spec.ControllerRef, old.Spec.ControllerRef, spec.Child("controllerRef"))
		return append(errs, rule.Immutable(w.Spec.PodGroupTemplates, old.Spec.PodGroupTemplates, templates)...)
	}
	var errs field.ErrorList
	if ref := w.Spec.ControllerRef; ref != nil {
		errs = append(errs, validateControllerRef(ref, spec.Child("controllerRef"))...)
	}
	switch n := len(w.Spec.PodGroupTemplates); {
	case n == 0:
		return append(errs, field.Required(templates, ""))
	case n > maxPodGroupTemplates:
		return append(errs, field.TooMany(templates, n, maxPodGroupTemplates))
	}
	seen := map[string]bool{}
	for i := range w.Spec.PodGroupTemplates {
		t, at := &w.Spec.PodGroupTemplates[i], templates.Index(i)
		if seen[t.Name] {
			errs = append(errs, field.Duplicate(at, map[string]any{"name": t.Name}))
		}
		seen[t.Name] = true
		errs = append(errs, requiredLabel(t.Name, at.Child("name"))...)
		errs = append(errs, validatePolicyOf(&t.SchedulingPolicy, at.Child("schedulingPolicy"))...)
		errs = append(errs, validateConstraints(t.SchedulingConstraints, at.Child("schedulingConstraints"))...)
		errs = append(errs, disruption(t.DisruptionMode, t.PriorityClassName, t.Priority, at)...)
	}
	return errs
}

func validateControllerRef(ref *v1alpha2.TypedLocalObjectReference, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if ref.APIGroup != "" {
		errs = append(errs, rule.Subdomain(ref.APIGroup, path.Child("apiGroup"))...)
	}
	for _, part := range []struct{ name, value string }{{"kind", ref.Kind}, {"name", ref.Name}} {
		if at := path.Child(part.name); part.value == "" {
			errs = append(errs, field.Required(at, ""))
		} else {
			errs = append(errs, rule.Invalid(part.value, at, rule.PathSegment(part.value))...)
		}
	}
	return errs
}
