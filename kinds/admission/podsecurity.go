package admission

import (
	"context"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"

	"github.com/yare-project/yare/kind"
)

// podSecurity holds pods to the Pod Security Standard that their namespace's labels name: it refuses a pod that violates the enforced
// level, and warns about one that violates the level to warn of, also in templates of pods.
type podSecurity struct {
	evaluator policy.Evaluator
	// problem is why there is no evaluator; pods in a namespace with a level are then refused.
	problem error
}

func newPodSecurity() podSecurity {
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	return podSecurity{evaluator, err}
}

func (podSecurity) Name() string { return "PodSecurity" }

// privileged is what holds in a namespace without labels.
var privileged = api.Policy{
	Enforce: api.LevelVersion{Level: api.LevelPrivileged, Version: api.LatestVersion()},
	Audit:   api.LevelVersion{Level: api.LevelPrivileged, Version: api.LatestVersion()},
	Warn:    api.LevelVersion{Level: api.LevelPrivileged, Version: api.LatestVersion()},
}

func (p podSecurity) Validate(ctx context.Context, env kind.Env, r *kind.AdmissionRequest) error {
	if r.Object == nil || r.Operation != admissionv1.Create && r.Operation != admissionv1.Update {
		return nil
	}
	if ns, ok := r.Object.(*corev1.Namespace); ok {
		return validateLevels(r, ns)
	}
	meta, spec := template(r.Object)
	if spec == nil || !p.concerns(r) {
		return nil
	}
	ns, err := get[*corev1.Namespace](ctx, env, "", "namespaces", "", r.Ref.Namespace)
	if err != nil {
		return err
	}
	// A label that is not a level counts as the strictest: the library says so, and an error tells.
	levels, problems := api.PolicyToEvaluate(ns.Labels, privileged)
	if levels.FullyPrivileged() && len(problems) == 0 {
		return nil
	}
	if p.problem != nil {
		return apierrors.NewInternalError(p.problem)
	}
	_, isPod := r.Object.(*corev1.Pod)
	if isPod {
		if result := p.check(levels.Enforce, meta, spec); !result.Allowed {
			return forbid(r, "violates PodSecurity %q: %s", levels.Enforce.String(), result.ForbiddenDetail())
		}
	}
	if result := p.check(levels.Warn, meta, spec); !result.Allowed && r.Warn != nil {
		r.Warn(fmt.Sprintf("would violate PodSecurity %q: %s", levels.Warn.String(), result.ForbiddenDetail()))
	}
	return nil
}

func (p podSecurity) check(level api.LevelVersion, meta *metav1.ObjectMeta, spec *corev1.PodSpec) policy.AggregateCheckResult {
	if level.Level == api.LevelPrivileged {
		return policy.AggregateCheckResult{Allowed: true}
	}
	return policy.AggregateCheckResults(p.evaluator.EvaluatePod(level, meta, spec))
}

// concerns tells whether the request may change what a pod is allowed to do.
func (podSecurity) concerns(r *kind.AdmissionRequest) bool {
	if _, isPod := r.Object.(*corev1.Pod); !isPod {
		return r.Ref.Subresource == ""
	}
	if r.Operation == admissionv1.Create {
		return r.Ref.Subresource == ""
	}
	if sub := r.Ref.Subresource; sub != "" && sub != "ephemeralcontainers" && sub != "resize" {
		return false
	}
	old, ok := r.Old.(*corev1.Pod)
	pod := r.Object.(*corev1.Pod)
	return !ok || !equality.Semantic.DeepEqual(old.Spec, pod.Spec) || !equality.Semantic.DeepEqual(old.Annotations, pod.Annotations)
}

// template finds the pod in an object that is one or makes some.
func template(obj kind.Object) (*metav1.ObjectMeta, *corev1.PodSpec) {
	of := func(t *corev1.PodTemplateSpec) (*metav1.ObjectMeta, *corev1.PodSpec) {
		if t == nil {
			return nil, nil
		}
		return &t.ObjectMeta, &t.Spec
	}
	switch o := obj.(type) {
	case *corev1.Pod:
		return &o.ObjectMeta, &o.Spec
	case *corev1.PodTemplate:
		return of(&o.Template)
	case *corev1.ReplicationController:
		return of(o.Spec.Template)
	case *appsv1.ReplicaSet:
		return of(&o.Spec.Template)
	case *appsv1.Deployment:
		return of(&o.Spec.Template)
	case *appsv1.StatefulSet:
		return of(&o.Spec.Template)
	case *appsv1.DaemonSet:
		return of(&o.Spec.Template)
	case *batchv1.Job:
		return of(&o.Spec.Template)
	case *batchv1.CronJob:
		return of(&o.Spec.JobTemplate.Spec.Template)
	}
	return nil, nil
}

// validateLevels refuses new labels that name no level.
func validateLevels(r *kind.AdmissionRequest, ns *corev1.Namespace) error {
	_, problems := api.PolicyToEvaluate(ns.Labels, privileged)
	if len(problems) == 0 || r.Ref.Subresource != "" {
		return nil
	}
	if old, ok := r.Old.(*corev1.Namespace); ok {
		if _, before := api.PolicyToEvaluate(old.Labels, privileged); sameProblems(before, problems) {
			return nil
		}
	}
	return apierrors.NewInvalid(schema.GroupKind{Kind: "Namespace"}, ns.Name, problems)
}

func sameProblems(a, b field.ErrorList) bool {
	return len(a) > 0 && equality.Semantic.DeepEqual(a.ToAggregate().Error(), b.ToAggregate().Error())
}
