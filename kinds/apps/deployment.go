package apps

import (
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/kind"
	"github.com/yare-project/yare/kinds/cell"
	"github.com/yare-project/yare/kinds/core"
	"github.com/yare-project/yare/kinds/rule"
)

var _ = kind.Add(&Group, kind.Def[appsv1.Deployment]{
	Names:           kind.Names{Plural: "deployments", Short: []string{"deploy"}, Categories: []string{"all"}},
	AnyGenerateName: true,
	Default:         DefaultDeployment,
	Prepare: func(now, old *appsv1.Deployment) {
		if old == nil {
			old = &appsv1.Deployment{}
		}
		core.DropDisabled(&now.Spec.Template, &old.Spec.Template)
	},
	Validate:       validateDeployment,
	ValidateStatus: validateDeploymentStatus,
	PrepareStatus:  func(now, was *appsv1.Deployment) { now.Labels = was.Labels },
	Warn: func(d, old *appsv1.Deployment) []string {
		if old != nil && apiequality.Semantic.DeepEqual(d.Spec, old.Spec) {
			return nil
		}
		return warnTemplate(d.Name, &d.Spec.Template, old == nil)
	},
	Columns: append([]kind.Column[appsv1.Deployment]{
		{Name: "Ready", Description: "Number of the pod with ready state", Value: func(d *appsv1.Deployment, _ time.Time) any {
			return fmt.Sprintf("%d/%d", d.Status.ReadyReplicas, ptr.Deref(d.Spec.Replicas, 0))
		}},
		{Name: "Up-to-date", Description: "Number of pods of the newest template.", Value: func(d *appsv1.Deployment, _ time.Time) any { return int64(d.Status.UpdatedReplicas) }},
		{Name: "Available", Description: "Number of pods that have been ready for minReadySeconds.", Value: func(d *appsv1.Deployment, _ time.Time) any { return int64(d.Status.AvailableReplicas) }},
	}, append(templateColumns(func(d *appsv1.Deployment) *corev1.PodTemplateSpec { return &d.Spec.Template }), kind.Column[appsv1.Deployment]{
		Name: "Selector", Priority: 1, Description: "Labels of the pods.", Value: func(d *appsv1.Deployment, _ time.Time) any { return selectorText(d.Spec.Selector) },
	})...),
	// Annotations count, because they are copied to the ReplicaSets.
	SpecOf: func(d *appsv1.Deployment) any {
		return &struct {
			Spec        *appsv1.DeploymentSpec
			Annotations map[string]string
		}{&d.Spec, d.Annotations}
	},
	Scale: &kind.Scale[appsv1.Deployment]{
		Replicas:       func(d *appsv1.Deployment) int32 { return ptr.Deref(d.Spec.Replicas, 0) },
		SetReplicas:    func(d *appsv1.Deployment, n int32) { d.Spec.Replicas = &n },
		StatusReplicas: func(d *appsv1.Deployment) int32 { return d.Status.Replicas },
		Selector:       func(d *appsv1.Deployment) string { return selectorText(d.Spec.Selector) },
	},
})

// DefaultDeployment fills what the author left out. It is idempotent.
func DefaultDeployment(d *appsv1.Deployment) {
	core.DefaultPodTemplate(&d.Spec.Template)
	defaultPtr(&d.Spec.Replicas, 1)
	s := &d.Spec.Strategy
	if s.Type == "" {
		s.Type = appsv1.RollingUpdateDeploymentStrategyType
	}
	if s.Type == appsv1.RollingUpdateDeploymentStrategyType {
		defaultPtr(&s.RollingUpdate, appsv1.RollingUpdateDeployment{})
		defaultPtr(&s.RollingUpdate.MaxUnavailable, intstr.FromString("25%"))
		defaultPtr(&s.RollingUpdate.MaxSurge, intstr.FromString("25%"))
	}
	defaultPtr(&d.Spec.RevisionHistoryLimit, 10)
	defaultPtr(&d.Spec.ProgressDeadlineSeconds, 600)
}

func validateDeployment(d, old *appsv1.Deployment) field.ErrorList {
	path := field.NewPath("spec")
	errs := rule.NonNegativePtr(d.Spec.Replicas, path.Child("replicas"))
	errs = append(errs, checkSelector(d.Spec.Selector, &d.Spec.Template, deploymentSelector, path)...)
	if old == nil || !apiequality.Semantic.DeepEqual(d.Spec.Template, old.Spec.Template) {
		errs = append(errs, checkTemplate(&d.Spec.Template, "ReplicaSet", path.Child("template"))...)
	}
	errs = append(errs, checkDeploymentStrategy(&d.Spec.Strategy, path.Child("strategy"))...)
	errs = append(errs, rule.NonNegative(d.Spec.MinReadySeconds, path.Child("minReadySeconds"))...)
	errs = append(errs, rule.NonNegativePtr(d.Spec.RevisionHistoryLimit, path.Child("revisionHistoryLimit"))...)
	if s := d.Spec.ProgressDeadlineSeconds; s != nil {
		errs = append(errs, rule.NonNegative(*s, path.Child("progressDeadlineSeconds"))...)
		if *s <= d.Spec.MinReadySeconds {
			errs = append(errs, field.Invalid(path.Child("progressDeadlineSeconds"), *s, "must be greater than minReadySeconds"))
		}
	}
	if old != nil {
		errs = append(errs, rule.Immutable(d.Spec.Selector, old.Spec.Selector, path.Child("selector"))...)
	}
	return errs
}

func checkDeploymentStrategy(s *appsv1.DeploymentStrategy, path *field.Path) field.ErrorList {
	at := path.Child("rollingUpdate")
	switch {
	case s.Type == appsv1.RecreateDeploymentStrategyType && s.RollingUpdate != nil:
		return field.ErrorList{field.Forbidden(at, "may not be specified when strategy `type` is 'Recreate'")}
	case s.Type == appsv1.RecreateDeploymentStrategyType:
		return nil
	case s.Type != appsv1.RollingUpdateDeploymentStrategyType:
		return field.ErrorList{field.NotSupported(path, s, []appsv1.DeploymentStrategyType{appsv1.RecreateDeploymentStrategyType, appsv1.RollingUpdateDeploymentStrategyType})}
	case s.RollingUpdate == nil:
		return field.ErrorList{field.Required(at, "must be set when strategy `type` is 'RollingUpdate'")}
	}
	return checkRolling(s.RollingUpdate.MaxUnavailable, s.RollingUpdate.MaxSurge, at)
}

// checkRolling: some pods must be allowed to be missing or to be too many, or nothing could ever change.
func checkRolling(unavailable, surge *intstr.IntOrString, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if unavailable != nil {
		errs = append(errs, rule.IntOrPercent(*unavailable, path.Child("maxUnavailable"))...)
	}
	if surge != nil {
		for _, e := range rule.IntOrPercent(*surge, path.Child("maxSurge")) {
			// A surge above 100% is allowed: more pods than wanted may come at once.
			if e.Detail != "must not be greater than 100%" {
				errs = append(errs, e)
			}
		}
	}
	if amount(unavailable) == 0 && amount(surge) == 0 {
		errs = append(errs, field.Invalid(path.Child("maxUnavailable"), unavailable, "may not be 0 when `maxSurge` is 0"))
	}
	return errs
}

func validateDeploymentStatus(d, old *appsv1.Deployment) field.ErrorList {
	path, s := field.NewPath("status"), &d.Status
	errs := checkCounts(path, s.Replicas, "readyReplicas", map[string]int32{"updatedReplicas": s.UpdatedReplicas, "readyReplicas": s.ReadyReplicas, "availableReplicas": s.AvailableReplicas})
	errs = append(errs, rule.NonNegative(s.ObservedGeneration, path.Child("observedGeneration"))...)
	errs = append(errs, rule.NonNegative(s.UnavailableReplicas, path.Child("unavailableReplicas"))...)
	errs = append(errs, rule.NonNegativePtr(s.TerminatingReplicas, path.Child("terminatingReplicas"))...)
	return append(errs, checkCollisions(s.CollisionCount, old.Status.CollisionCount, path.Child("collisionCount"))...)
}

// formatSelector is how most tables show a selector.
func formatSelector[T any](selector func(*T) *metav1.LabelSelector) kind.Column[T] {
	return kind.Column[T]{Name: "Selector", Priority: 1, Description: "Labels of the pods.", Value: func(o *T, _ time.Time) any { return cell.Selector(selector(o)) }}
}
