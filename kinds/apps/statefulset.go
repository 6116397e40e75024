package apps

import (
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/kind"
	"github.com/yare-project/yare/kinds/core"
	"github.com/yare-project/yare/kinds/rule"
)

var _ = kind.Add(&Group, kind.Def[appsv1.StatefulSet]{
	Names:           kind.Names{Plural: "statefulsets", Short: []string{"sts"}, Categories: []string{"all"}},
	AnyGenerateName: true,
	Default:         DefaultStatefulSet,
	Prepare:         prepareStatefulSet,
	Validate:        validateStatefulSet,
	ValidateStatus:  validateStatefulSetStatus,
	ValidateName:    apivalidation.NameIsDNSLabel,
	Warn:            warnStatefulSet,
	Columns: append([]kind.Column[appsv1.StatefulSet]{
		{Name: "Ready", Description: "Number of the pod with ready state", Value: func(s *appsv1.StatefulSet, _ time.Time) any {
			return fmt.Sprintf("%d/%d", s.Status.ReadyReplicas, ptr.Deref(s.Spec.Replicas, 0))
		}},
	}, templateColumns(func(s *appsv1.StatefulSet) *corev1.PodTemplateSpec { return &s.Spec.Template })...),
	Scale: &kind.Scale[appsv1.StatefulSet]{
		Replicas:       func(s *appsv1.StatefulSet) int32 { return ptr.Deref(s.Spec.Replicas, 0) },
		SetReplicas:    func(s *appsv1.StatefulSet, n int32) { s.Spec.Replicas = &n },
		StatusReplicas: func(s *appsv1.StatefulSet) int32 { return s.Status.Replicas },
		Selector:       func(s *appsv1.StatefulSet) string { return selectorText(s.Spec.Selector) },
	},
})

// DefaultStatefulSet fills what the author left out. It is idempotent.
func DefaultStatefulSet(s *appsv1.StatefulSet) {
	core.DefaultPodTemplate(&s.Spec.Template)
	for i := range s.Spec.VolumeClaimTemplates {
		claim := &s.Spec.VolumeClaimTemplates[i]
		core.DefaultClaim(claim)
		// A template can only be a claim, whatever its author called it.
		claim.Kind, claim.APIVersion = "PersistentVolumeClaim", "v1"
	}
	if s.Spec.PodManagementPolicy == "" {
		s.Spec.PodManagementPolicy = appsv1.OrderedReadyPodManagement
	}
	u := &s.Spec.UpdateStrategy
	if u.Type == "" {
		u.Type = appsv1.RollingUpdateStatefulSetStrategyType
		defaultPtr(&u.RollingUpdate, appsv1.RollingUpdateStatefulSetStrategy{})
	}
	if u.Type == appsv1.RollingUpdateStatefulSetStrategyType && u.RollingUpdate != nil {
		defaultPtr(&u.RollingUpdate.Partition, 0)
	}
	defaultPtr(&s.Spec.PersistentVolumeClaimRetentionPolicy, appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{})
	for _, policy := range []*appsv1.PersistentVolumeClaimRetentionPolicyType{&s.Spec.PersistentVolumeClaimRetentionPolicy.WhenDeleted, &s.Spec.PersistentVolumeClaimRetentionPolicy.WhenScaled} {
		if *policy == "" {
			*policy = appsv1.RetainPersistentVolumeClaimRetentionPolicyType
		}
	}
	defaultPtr(&s.Spec.Replicas, 1)
	defaultPtr(&s.Spec.RevisionHistoryLimit, 10)
}

// prepareStatefulSet drops what Kubernetes 1.36 has off by default (MaxUnavailableStatefulSet, and what templates have).
func prepareStatefulSet(s, old *appsv1.StatefulSet) {
	if old == nil {
		old = &appsv1.StatefulSet{}
	}
	core.DropDisabled(&s.Spec.Template, &old.Spec.Template)
	u, was := s.Spec.UpdateStrategy.RollingUpdate, old.Spec.UpdateStrategy.RollingUpdate
	if u != nil && (was == nil || was.MaxUnavailable == nil) {
		u.MaxUnavailable = nil
	}
}

func validateStatefulSet(s, old *appsv1.StatefulSet) field.ErrorList {
	path := field.NewPath("spec")
	errs := checkStatefulStrategy(s, path)
	if p, at := s.Spec.PersistentVolumeClaimRetentionPolicy, path.Child("persistentVolumeClaimRetentionPolicy"); p != nil {
		allowed := []appsv1.PersistentVolumeClaimRetentionPolicyType{appsv1.RetainPersistentVolumeClaimRetentionPolicyType, appsv1.DeletePersistentVolumeClaimRetentionPolicyType}
		errs = append(errs, rule.InOrder(p.WhenDeleted, at.Child("whenDeleted"), allowed...)...)
		errs = append(errs, rule.InOrder(p.WhenScaled, at.Child("whenScaled"), allowed...)...)
	}
	errs = append(errs, rule.NonNegativePtr(s.Spec.Replicas, path.Child("replicas"))...)
	errs = append(errs, rule.NonNegative(s.Spec.MinReadySeconds, path.Child("minReadySeconds"))...)
	if s.Spec.Ordinals != nil {
		errs = append(errs, rule.NonNegative(s.Spec.Ordinals.Start, path.Child("ordinals", "start"))...)
	}
	errs = append(errs, checkSelector(s.Spec.Selector, &s.Spec.Template, statefulSetSelector, path)...)
	if old == nil {
		for i := range s.Spec.VolumeClaimTemplates {
			errs = append(errs, core.ValidateClaimSpec(&s.Spec.VolumeClaimTemplates[i].Spec, path.Child("volumeClaimTemplates").Index(i).Child("spec"))...)
		}
		if s.Spec.ServiceName != "" {
			errs = append(errs, rule.Label(s.Spec.ServiceName, path.Child("serviceName"))...)
		}
	}
	if old == nil || !apiequality.Semantic.DeepEqual(s.Spec.Template, old.Spec.Template) || !apiequality.Semantic.DeepEqual(s.Spec.VolumeClaimTemplates, old.Spec.VolumeClaimTemplates) {
		errs = append(errs, checkTemplate(templateAsRun(&s.Spec), "StatefulSet", path.Child("template"))...)
	}
	if old != nil {
		errs = append(errs, checkStatefulUpdate(s, old, path)...)
	}
	return errs
}

func checkStatefulStrategy(s *appsv1.StatefulSet, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch s.Spec.PodManagementPolicy {
	case appsv1.OrderedReadyPodManagement, appsv1.ParallelPodManagement:
	case "":
		errs = append(errs, field.Required(path.Child("podManagementPolicy"), ""))
	default:
		errs = append(errs, field.Invalid(path.Child("podManagementPolicy"), s.Spec.PodManagementPolicy, "must be 'OrderedReady' or 'Parallel'"))
	}
	u, at := &s.Spec.UpdateStrategy, path.Child("updateStrategy")
	switch u.Type {
	case "":
		errs = append(errs, field.Required(at, ""))
	case appsv1.OnDeleteStatefulSetStrategyType:
		if u.RollingUpdate != nil {
			errs = append(errs, field.Invalid(at.Child("rollingUpdate"), u.RollingUpdate, "only allowed for updateStrategy 'RollingUpdate'"))
		}
	case appsv1.RollingUpdateStatefulSetStrategyType:
		if r := u.RollingUpdate; r != nil {
			errs = append(errs, rule.NonNegativePtr(r.Partition, at.Child("rollingUpdate", "partition"))...)
			if max := r.MaxUnavailable; max != nil {
				errs = append(errs, rule.IntOrPercent(*max, at.Child("rollingUpdate", "maxUnavailable"))...)
				if amount(max) == 0 {
					errs = append(errs, field.Invalid(at.Child("rollingUpdate", "maxUnavailable"), *max, "cannot be 0"))
				}
			}
		}
	default:
		errs = append(errs, field.Invalid(at, *u, "must be 'RollingUpdate' or 'OnDelete'"))
	}
	return errs
}

// templateAsRun is the template with what the controller puts into each pod: the claims' volumes, and its own names.
func templateAsRun(spec *appsv1.StatefulSetSpec) *corev1.PodTemplateSpec {
	t := spec.Template.DeepCopy()
	t.Spec.Subdomain, t.Spec.Hostname = "", ""
	claims := sets.New[string]()
	var volumes []corev1.Volume
	for _, c := range spec.VolumeClaimTemplates {
		if claims.Has(c.Name) {
			continue
		}
		claims.Insert(c.Name)
		volumes = append(volumes, corev1.Volume{Name: c.Name, VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: c.Name}}})
	}
	for _, v := range t.Spec.Volumes {
		if !claims.Has(v.Name) {
			volumes = append(volumes, v)
		}
	}
	t.Spec.Volumes = volumes
	return t
}

func checkStatefulUpdate(s, old *appsv1.StatefulSet, path *field.Path) field.ErrorList {
	rest, was := s.Spec, &old.Spec
	rest.Replicas, rest.Template, rest.UpdateStrategy, rest.MinReadySeconds = was.Replicas, was.Template, was.UpdateStrategy, was.MinReadySeconds
	rest.Ordinals, rest.RevisionHistoryLimit, rest.PersistentVolumeClaimRetentionPolicy = was.Ordinals, was.RevisionHistoryLimit, was.PersistentVolumeClaimRetentionPolicy
	if apiequality.Semantic.DeepEqual(rest, *was) {
		return nil
	}
	return field.ErrorList{field.Forbidden(path, "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden")}
}

func validateStatefulSetStatus(s, old *appsv1.StatefulSet) field.ErrorList {
	path, st := field.NewPath("status"), &s.Status
	errs := checkCounts(path, st.Replicas, "status.readyReplicas", map[string]int32{"readyReplicas": st.ReadyReplicas, "currentReplicas": st.CurrentReplicas, "updatedReplicas": st.UpdatedReplicas, "availableReplicas": st.AvailableReplicas})
	errs = append(errs, rule.NonNegative(st.ObservedGeneration, path.Child("observedGeneration"))...)
	return append(errs, checkCollisions(st.CollisionCount, old.Status.CollisionCount, path.Child("collisionCount"))...)
}

func warnStatefulSet(s, old *appsv1.StatefulSet) []string {
	var out []string
	if old == nil || !apiequality.Semantic.DeepEqual(s.Spec, old.Spec) {
		out = core.WarnPodTemplate(&s.Spec.Template, field.NewPath("spec", "template"))
		for i := range s.Spec.VolumeClaimTemplates {
			out = append(out, core.WarnClaimSpec(&s.Spec.VolumeClaimTemplates[i].Spec, field.NewPath("spec", "volumeClaimTemplates").Index(i).Child("spec"))...)
		}
	}
	if n := s.Spec.RevisionHistoryLimit; n != nil && *n < 0 {
		out = append(out, "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended")
	}
	return out
}
