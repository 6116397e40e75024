package admission

import (
	"context"
	"fmt"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	admissionapi "k8s.io/pod-security-admission/admission/api"
	"k8s.io/pod-security-admission/admission/api/load"
	"k8s.io/pod-security-admission/admission/api/validation"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"

	"github.com/yare-project/yare/kind"
)

// podSecurity holds pods to the Pod Security Standard that their namespace's labels name, or else the configuration: it refuses a pod that violates the
// enforced level, and warns about and notes for the audit log one that violates the levels for that, also in templates of pods.
type podSecurity struct {
	evaluator policy.Evaluator
	// problem is why there is no evaluator; pods in a namespace with a level are then refused.
	problem error
	// defaults hold where a namespace has no labels; exempt are never looked at.
	defaults api.Policy
	exempt   admissionapi.PodSecurityExemptions
}

func newPodSecurity() podSecurity {
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	privileged := api.LevelVersion{Level: api.LevelPrivileged, Version: api.LatestVersion()}
	return podSecurity{evaluator: evaluator, problem: err, defaults: api.Policy{Enforce: privileged, Audit: privileged, Warn: privileged}}
}

// configure reads a PodSecurityConfiguration (pod-security.admission.config.k8s.io/v1).
func (p *podSecurity) configure(text []byte) error {
	file, err := load.LoadFromData(text)
	if err != nil {
		return err
	}
	if faults := validation.ValidatePodSecurityConfiguration(file); len(faults) > 0 {
		return faults.ToAggregate()
	}
	p.exempt = file.Exemptions
	p.defaults, err = admissionapi.ToPolicy(file.Defaults)
	return err
}

func (podSecurity) Name() string { return "PodSecurity" }

func (p podSecurity) Validate(ctx context.Context, env kind.Env, r *kind.AdmissionRequest) error {
	if r.Object == nil || r.Operation != admissionv1.Create && r.Operation != admissionv1.Update {
		return nil
	}
	if ns, ok := r.Object.(*corev1.Namespace); ok {
		return p.namespace(ctx, env, r, ns)
	}
	meta, spec := template(r.Object)
	if spec == nil || !p.concerns(r) {
		return nil
	}
	if why := p.exempts(r, spec); why != "" {
		securityNote(r, "exempt", why)
		return nil
	}
	ns, err := get[*corev1.Namespace](ctx, env, "", "namespaces", "", r.Ref.Namespace)
	if err != nil {
		return err
	}
	// A label that is not a level counts as the strictest: the library says so, and an error tells.
	levels, problems := api.PolicyToEvaluate(ns.Labels, p.defaults)
	_, isPod := r.Object.(*corev1.Pod)
	if levels.FullyPrivileged() && len(problems) == 0 {
		if isPod {
			securityNote(r, api.EnforcedPolicyAnnotationKey, "privileged:latest")
		}
		return nil
	}
	if p.problem != nil {
		return apierrors.NewInternalError(p.problem)
	}
	if len(problems) > 0 {
		securityNote(r, "error", fmt.Sprintf("Failed to parse policy: %v", problems.ToAggregate()))
	}
	return p.judge(r, levels, isPod, meta, spec)
}

// judge evaluates a pod by each level, the same level once.
func (p podSecurity) judge(r *kind.AdmissionRequest, levels api.Policy, isPod bool, meta *metav1.ObjectMeta, spec *corev1.PodSpec) error {
	known := map[api.LevelVersion]policy.AggregateCheckResult{}
	check := func(level api.LevelVersion) policy.AggregateCheckResult {
		if _, ok := known[level]; !ok {
			known[level] = p.check(level, meta, spec)
		}
		return known[level]
	}
	if result := check(levels.Audit); !result.Allowed {
		securityNote(r, api.AuditViolationsAnnotationKey, fmt.Sprintf("would violate PodSecurity %q: %s", levels.Audit.String(), result.ForbiddenDetail()))
	}
	if isPod {
		securityNote(r, api.EnforcedPolicyAnnotationKey, levels.Enforce.String())
		if result := check(levels.Enforce); !result.Allowed {
			return forbid(r, "violates PodSecurity %q: %s", levels.Enforce.String(), result.ForbiddenDetail())
		}
	}
	if result := check(levels.Warn); !result.Allowed && r.Warn != nil {
		r.Warn(fmt.Sprintf("would violate PodSecurity %q: %s", levels.Warn.String(), result.ForbiddenDetail()))
	}
	return nil
}

func securityNote(r *kind.AdmissionRequest, key, value string) {
	note(r, "pod-security.kubernetes.io/"+key, value)
}

// exempts says by what a request is exempt.
func (p podSecurity) exempts(r *kind.AdmissionRequest, spec *corev1.PodSpec) string {
	switch e := &p.exempt; {
	case slices.Contains(e.Namespaces, r.Ref.Namespace):
		return "namespace"
	case r.User != nil && slices.Contains(e.Usernames, r.User.GetName()):
		return "user"
	case spec.RuntimeClassName != nil && slices.Contains(e.RuntimeClasses, *spec.RuntimeClassName):
		return "runtimeClass"
	}
	return ""
}

func (p podSecurity) check(level api.LevelVersion, meta *metav1.ObjectMeta, spec *corev1.PodSpec) policy.AggregateCheckResult {
	if level.Level == api.LevelPrivileged {
		return policy.AggregateCheckResult{Allowed: true}
	}
	return policy.AggregateCheckResults(p.evaluator.EvaluatePod(level, meta, spec))
}

// concerns tells whether the request may change what a pod is allowed to do.
func (podSecurity) concerns(r *kind.AdmissionRequest) bool {
	pod, isPod := r.Object.(*corev1.Pod)
	if !isPod || r.Operation == admissionv1.Create {
		return r.Ref.Subresource == ""
	}
	if sub := r.Ref.Subresource; sub != "" && sub != "ephemeralcontainers" && sub != "resize" {
		return false
	}
	old, ok := r.Old.(*corev1.Pod)
	return !ok || significant(&pod.Spec, &old.Spec)
}

// significant tells whether a pod gets other images or containers: what else of it can change at all changes nothing about its rights. So a pod
// of before a stricter level can go on.
func significant(pod, old *corev1.PodSpec) bool {
	if len(pod.Containers) != len(old.Containers) || len(pod.InitContainers) != len(old.InitContainers) {
		return true
	}
	image := func(a, b corev1.Container) bool { return a.Image == b.Image }
	if !slices.EqualFunc(pod.Containers, old.Containers, image) || !slices.EqualFunc(pod.InitContainers, old.InitContainers, image) {
		return true
	}
	for _, c := range pod.EphemeralContainers {
		if !slices.ContainsFunc(old.EphemeralContainers, func(o corev1.EphemeralContainer) bool { return o.Name == c.Name && o.Image == c.Image }) {
			return true
		}
	}
	return false
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
