package apps

import (
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/yare-project/yare/kind"
	"github.com/yare-project/yare/kinds/core"
	"github.com/yare-project/yare/kinds/rule"
)

var _ = kind.Add(&Group, kind.Def[appsv1.DaemonSet]{
	Names:           kind.Names{Plural: "daemonsets", Short: []string{"ds"}, Categories: []string{"all"}},
	AnyGenerateName: true,
	Default:         DefaultDaemonSet,
	Prepare:         prepareDaemonSet,
	Validate:        validateDaemonSet,
	ValidateStatus:  validateDaemonSetStatus,
	Warn: func(d, old *appsv1.DaemonSet) []string {
		if old != nil && apiequality.Semantic.DeepEqual(d.Spec.Template, old.Spec.Template) {
			return nil
		}
		return core.WarnPodTemplate(&d.Spec.Template, field.NewPath("spec", "template"))
	},
	Columns: append([]kind.Column[appsv1.DaemonSet]{
		{Name: "Desired", Type: "integer", Description: "Number of nodes that should run the pod.", Value: func(d *appsv1.DaemonSet, _ time.Time) any { return int64(d.Status.DesiredNumberScheduled) }},
		{Name: "Current", Type: "integer", Description: "Number of nodes that run the pod and should.", Value: func(d *appsv1.DaemonSet, _ time.Time) any { return int64(d.Status.CurrentNumberScheduled) }},
		{Name: "Ready", Type: "integer", Description: "Number of nodes on which the pod is ready.", Value: func(d *appsv1.DaemonSet, _ time.Time) any { return int64(d.Status.NumberReady) }},
		{Name: "Up-to-date", Type: "integer", Description: "Number of nodes that run the newest template.", Value: func(d *appsv1.DaemonSet, _ time.Time) any { return int64(d.Status.UpdatedNumberScheduled) }},
		{Name: "Available", Type: "integer", Description: "Number of nodes on which the pod has been ready for minReadySeconds.", Value: func(d *appsv1.DaemonSet, _ time.Time) any { return int64(d.Status.NumberAvailable) }},
		{Name: "Node Selector", Description: "Labels of the nodes.", Value: func(d *appsv1.DaemonSet, _ time.Time) any {
			return labels.FormatLabels(d.Spec.Template.Spec.NodeSelector)
		}},
	}, append(templateColumns(func(d *appsv1.DaemonSet) *corev1.PodTemplateSpec { return &d.Spec.Template }),
		formatSelector(func(d *appsv1.DaemonSet) *metav1.LabelSelector { return d.Spec.Selector }))...),
})

// DefaultDaemonSet fills what the author left out. It is idempotent.
func DefaultDaemonSet(d *appsv1.DaemonSet) {
	core.DefaultPodTemplate(&d.Spec.Template)
	u := &d.Spec.UpdateStrategy
	if u.Type == "" {
		u.Type = appsv1.RollingUpdateDaemonSetStrategyType
	}
	if u.Type == appsv1.RollingUpdateDaemonSetStrategyType {
		defaultPtr(&u.RollingUpdate, appsv1.RollingUpdateDaemonSet{})
		defaultPtr(&u.RollingUpdate.MaxUnavailable, intstr.FromInt32(1))
		defaultPtr(&u.RollingUpdate.MaxSurge, intstr.FromInt32(0))
	}
	defaultPtr(&d.Spec.RevisionHistoryLimit, 10)
}

// prepareDaemonSet counts the changes of the template in the annotation that clients know.
func prepareDaemonSet(d, old *appsv1.DaemonSet) {
	n := int64(1)
	if old != nil {
		core.DropDisabled(&d.Spec.Template, &old.Spec.Template)
		if was, err := strconv.ParseInt(old.Annotations[appsv1.DeprecatedTemplateGeneration], 10, 64); err == nil {
			n = was
		}
		if !apiequality.Semantic.DeepEqual(d.Spec.Template, old.Spec.Template) {
			n++
		}
	} else if given, err := strconv.ParseInt(d.Annotations[appsv1.DeprecatedTemplateGeneration], 10, 64); err == nil && given > 1 {
		n = given
	}
	if old == nil {
		core.DropDisabled(&d.Spec.Template, nil)
	}
	if d.Annotations == nil {
		d.Annotations = map[string]string{}
	}
	d.Annotations[appsv1.DeprecatedTemplateGeneration] = strconv.FormatInt(n, 10)
}

func validateDaemonSet(d, old *appsv1.DaemonSet) field.ErrorList {
	path := field.NewPath("spec")
	errs := checkSelector(d.Spec.Selector, &d.Spec.Template, daemonSetSelector, path)
	if old == nil || !apiequality.Semantic.DeepEqual(d.Spec.Template, old.Spec.Template) {
		errs = append(errs, checkTemplate(&d.Spec.Template, "DaemonSet", path.Child("template"))...)
	}
	errs = append(errs, rule.NonNegative(d.Spec.MinReadySeconds, path.Child("minReadySeconds"))...)
	errs = append(errs, rule.NonNegativePtr(d.Spec.RevisionHistoryLimit, path.Child("revisionHistoryLimit"))...)
	errs = append(errs, checkDaemonStrategy(&d.Spec.UpdateStrategy, path.Child("updateStrategy"))...)
	if old != nil {
		errs = append(errs, rule.Immutable(d.Spec.Selector, old.Spec.Selector, path.Child("selector"))...)
	}
	return errs
}

func checkDaemonStrategy(u *appsv1.DaemonSetUpdateStrategy, path *field.Path) field.ErrorList {
	switch {
	case u.Type == appsv1.OnDeleteDaemonSetStrategyType:
		return nil
	case u.Type != appsv1.RollingUpdateDaemonSetStrategyType:
		return field.ErrorList{field.NotSupported(path, u, []appsv1.DaemonSetUpdateStrategyType{appsv1.RollingUpdateDaemonSetStrategyType, appsv1.OnDeleteDaemonSetStrategyType})}
	case u.RollingUpdate == nil:
		return field.ErrorList{field.Required(path.Child("rollingUpdate"), "")}
	}
	r, at := u.RollingUpdate, path.Child("rollingUpdate")
	var errs field.ErrorList
	if r.MaxUnavailable != nil {
		errs = append(errs, rule.IntOrPercent(*r.MaxUnavailable, at.Child("maxUnavailable"))...)
	}
	if r.MaxSurge != nil {
		errs = append(errs, rule.IntOrPercent(*r.MaxSurge, at.Child("maxSurge"))...)
	}
	unavailable, surge := amount(r.MaxUnavailable), amount(r.MaxSurge)
	switch {
	case unavailable != 0 && surge != 0:
		errs = append(errs, field.Invalid(at.Child("maxSurge"), r.MaxSurge, "may not be set when maxUnavailable is non-zero"))
	case unavailable == 0 && surge == 0:
		errs = append(errs, field.Required(at.Child("maxUnavailable"), "cannot be 0 when maxSurge is 0"))
	}
	return errs
}

func validateDaemonSetStatus(d, old *appsv1.DaemonSet) field.ErrorList {
	path, s := field.NewPath("status"), &d.Status
	var errs field.ErrorList
	for name, n := range map[string]int32{
		"currentNumberScheduled": s.CurrentNumberScheduled, "numberMisscheduled": s.NumberMisscheduled, "desiredNumberScheduled": s.DesiredNumberScheduled,
		"numberReady": s.NumberReady, "updatedNumberScheduled": s.UpdatedNumberScheduled, "numberAvailable": s.NumberAvailable, "numberUnavailable": s.NumberUnavailable,
	} {
		errs = append(errs, rule.NonNegative(n, path.Child(name))...)
	}
	errs = append(errs, rule.NonNegative(s.ObservedGeneration, path.Child("observedGeneration"))...)
	return append(errs, checkCollisions(s.CollisionCount, old.Status.CollisionCount, path.Child("collisionCount"))...)
}
