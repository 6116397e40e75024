// Package scheduling declares the kinds of the group scheduling.k8s.io: PriorityClass, and in v1alpha2 PodGroup and Workload.
package scheduling

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	schedulingv1alpha2 "k8s.io/api/scheduling/v1alpha2"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/kind"
	"github.com/yare-project/yare/kinds/cell"
	"github.com/yare-project/yare/kinds/rule"
)

// Group is scheduling.k8s.io.
var Group = kind.Group{Name: "scheduling.k8s.io", Versions: []string{"v1", "v1alpha2"},
	AddToScheme: []func(*runtime.Scheme) error{schedulingv1.AddToScheme, schedulingv1alpha2.AddToScheme}}

// The priorities of the system's own pods. Users' priorities end below them.
const (
	systemPrefix       = "system-"
	clusterCritical    = 2_000_000_000
	nodeCritical       = clusterCritical + 1000
	highestUserDefined = 1_000_000_000
)

var _ = kind.Add(&Group, kind.Def[schedulingv1.PriorityClass]{
	Names:           kind.Names{Plural: "priorityclasses", Short: []string{"pc"}},
	AnyGenerateName: true,
	Scope:           kind.Cluster,
	Default:         defaultPriorityClass,
	Validate:        validatePriorityClass,
	// What a class means never changes, so its generation stays 1.
	SpecOf: func(*schedulingv1.PriorityClass) any { return struct{}{} },
	NoAge:  true,
	Columns: []kind.Column[schedulingv1.PriorityClass]{
		{Name: "Value", Type: "integer", Description: schedulingv1.PriorityClass{}.SwaggerDoc()["value"],
			Value: func(c *schedulingv1.PriorityClass, _ time.Time) any { return int64(c.Value) }},
		{Name: "Global-Default", Type: "boolean", Description: schedulingv1.PriorityClass{}.SwaggerDoc()["globalDefault"],
			Value: func(c *schedulingv1.PriorityClass, _ time.Time) any { return c.GlobalDefault }},
		{Name: "Age", Description: "Time since the object was created.",
			Value: func(c *schedulingv1.PriorityClass, now time.Time) any { return cell.Age(c.CreationTimestamp, now) }},
		{Name: "PreemptionPolicy", Description: schedulingv1.PriorityClass{}.SwaggerDoc()["preemptionPolicy"],
			Value: func(c *schedulingv1.PriorityClass, _ time.Time) any { return string(ptr.Deref(c.PreemptionPolicy, "")) }},
	},
})

func defaultPriorityClass(c *schedulingv1.PriorityClass) {
	if c.PreemptionPolicy == nil {
		c.PreemptionPolicy = ptr.To(corev1.PreemptLowerPriority)
	}
}

func validatePriorityClass(c, old *schedulingv1.PriorityClass) field.ErrorList {
	value, policy := field.NewPath("value"), field.NewPath("preemptionPolicy")
	var errs field.ErrorList
	if c.PreemptionPolicy != nil {
		errs = append(errs, rule.InOrder(*c.PreemptionPolicy, policy, corev1.PreemptLowerPriority, corev1.PreemptNever)...)
	}
	if old != nil {
		if c.Value != old.Value {
			errs = append(errs, field.Forbidden(value, "may not be changed in an update."))
		}
		return append(errs, rule.Immutable(c.PreemptionPolicy, old.PreemptionPolicy, policy)...)
	}
	switch {
	case strings.HasPrefix(c.Name, systemPrefix):
		if err := checkSystemClass(c); err != nil {
			errs = append(errs, field.Forbidden(field.NewPath("metadata", "name"),
				"priority class names with '"+systemPrefix+"' prefix are reserved for system use only. error: "+err.Error()))
		}
	case c.Value > highestUserDefined:
		errs = append(errs, field.Forbidden(value, fmt.Sprintf("maximum allowed value of a user defined priority is %d", highestUserDefined)))
	}
	return errs
}

func checkSystemClass(c *schedulingv1.PriorityClass) error {
	want, known := map[string]int32{"system-cluster-critical": clusterCritical, "system-node-critical": nodeCritical}[c.Name]
	switch {
	case !known:
		return fmt.Errorf("%s is not a known system priority class", c.Name)
	case c.Value != want:
		return fmt.Errorf("value of %s PriorityClass must be %d", c.Name, want)
	case c.GlobalDefault:
		return fmt.Errorf("globalDefault of %s PriorityClass must be false", c.Name)
	}
	return nil
}
