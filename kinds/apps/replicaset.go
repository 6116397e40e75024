package apps

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/kind"
	"github.com/yare-project/yare/kinds/core"
	"github.com/yare-project/yare/kinds/rule"
)

var _ = kind.Add(&Group, kind.Def[appsv1.ReplicaSet]{
	Names:           kind.Names{Plural: "replicasets", Short: []string{"rs"}, Categories: []string{"all"}},
	AnyGenerateName: true,
	Default:         DefaultReplicaSet,
	Prepare: func(now, old *appsv1.ReplicaSet) {
		if old == nil {
			old = &appsv1.ReplicaSet{}
		}
		core.DropDisabled(&now.Spec.Template, &old.Spec.Template)
	},
	Validate:       validateReplicaSet,
	ValidateStatus: validateReplicaSetStatus,
	Warn: func(r, old *appsv1.ReplicaSet) []string {
		if old != nil && apiequality.Semantic.DeepEqual(r.Spec, old.Spec) {
			return nil
		}
		return warnTemplate(r.Name, &r.Spec.Template, old == nil)
	},
	Columns: append([]kind.Column[appsv1.ReplicaSet]{
		{Name: "Desired", Type: "integer", Description: "Number of pods wanted.", Value: func(r *appsv1.ReplicaSet, _ time.Time) any { return int64(ptr.Deref(r.Spec.Replicas, 0)) }},
		{Name: "Current", Type: "integer", Description: "Number of pods there are.", Value: func(r *appsv1.ReplicaSet, _ time.Time) any { return int64(r.Status.Replicas) }},
		{Name: "Ready", Type: "integer", Description: "Number of pods that are ready.", Value: func(r *appsv1.ReplicaSet, _ time.Time) any { return int64(r.Status.ReadyReplicas) }},
	}, append(templateColumns(func(r *appsv1.ReplicaSet) *corev1.PodTemplateSpec { return &r.Spec.Template }),
		formatSelector(func(r *appsv1.ReplicaSet) *metav1.LabelSelector { return r.Spec.Selector }))...),
	Scale: &kind.Scale[appsv1.ReplicaSet]{
		Replicas:       func(r *appsv1.ReplicaSet) int32 { return ptr.Deref(r.Spec.Replicas, 0) },
		SetReplicas:    func(r *appsv1.ReplicaSet, n int32) { r.Spec.Replicas = &n },
		StatusReplicas: func(r *appsv1.ReplicaSet) int32 { return r.Status.Replicas },
		Selector:       func(r *appsv1.ReplicaSet) string { return selectorText(r.Spec.Selector) },
	},
})

// DefaultReplicaSet fills what the author left out. It is idempotent.
func DefaultReplicaSet(r *appsv1.ReplicaSet) {
	core.DefaultPodTemplate(&r.Spec.Template)
	defaultPtr(&r.Spec.Replicas, 1)
}

func validateReplicaSet(r, old *appsv1.ReplicaSet) field.ErrorList {
	path := field.NewPath("spec")
	errs := rule.NonNegativePtr(r.Spec.Replicas, path.Child("replicas"))
	errs = append(errs, rule.NonNegative(r.Spec.MinReadySeconds, path.Child("minReadySeconds"))...)
	errs = append(errs, checkSelector(r.Spec.Selector, &r.Spec.Template, deploymentSelector, path)...)
	if old == nil || !apiequality.Semantic.DeepEqual(r.Spec.Template, old.Spec.Template) {
		errs = append(errs, checkTemplate(&r.Spec.Template, "ReplicaSet", path.Child("template"))...)
	}
	if old != nil {
		errs = append(errs, rule.Immutable(r.Spec.Selector, old.Spec.Selector, path.Child("selector"))...)
	}
	return errs
}

func validateReplicaSetStatus(r, _ *appsv1.ReplicaSet) field.ErrorList {
	path, s := field.NewPath("status"), &r.Status
	errs := checkCounts(path, s.Replicas, "readyReplicas", map[string]int32{"fullyLabeledReplicas": s.FullyLabeledReplicas, "readyReplicas": s.ReadyReplicas, "availableReplicas": s.AvailableReplicas})
	errs = append(errs, rule.NonNegative(s.ObservedGeneration, path.Child("observedGeneration"))...)
	return append(errs, rule.NonNegativePtr(s.TerminatingReplicas, path.Child("terminatingReplicas"))...)
}
