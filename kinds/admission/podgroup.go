package admission

import (
	"context"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	batchv1 "k8s.io/api/batch/v1"
	schedulingv1alpha2 "k8s.io/api/scheduling/v1alpha2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/kind"
)

// podGroupWorkload refuses a PodGroup of a Workload or a template that does not exist.
type podGroupWorkload struct{}

func (podGroupWorkload) Name() string { return "PodGroupWorkloadExists" }

func (podGroupWorkload) Validate(ctx context.Context, env kind.Env, r *kind.AdmissionRequest) error {
	g, ok := r.Object.(*schedulingv1alpha2.PodGroup)
	if !ok || !on(r, "scheduling.k8s.io", "podgroups", admissionv1.Create) || g.Spec.PodGroupTemplateRef == nil || g.Spec.PodGroupTemplateRef.Workload == nil {
		return nil
	}
	ref := g.Spec.PodGroupTemplateRef.Workload
	w, err := get[*schedulingv1alpha2.Workload](ctx, env, "scheduling.k8s.io", "workloads", r.Ref.Namespace, ref.WorkloadName)
	switch {
	case apierrors.IsNotFound(err):
		return forbid(r, "PodGroup rejected: Workload %q not found", ref.WorkloadName)
	case err != nil:
		return err
	case w.DeletionTimestamp != nil:
		return forbid(r, "PodGroup rejected: Workload %q is being deleted", ref.WorkloadName)
	}
	if !slices.ContainsFunc(w.Spec.PodGroupTemplates, func(t schedulingv1alpha2.PodGroupTemplate) bool { return t.Name == ref.PodGroupTemplateName }) {
		return forbid(r, "PodGroup rejected: PodGroupTemplate %q not found in Workload %q", ref.PodGroupTemplateName, ref.WorkloadName)
	}
	return nil
}

// podGroupProtection puts a finalizer on new PodGroups, so that one whose pods still run stays. The pod group protection loop takes it off.
type podGroupProtection struct{}

func (podGroupProtection) Name() string { return "PodGroupProtection" }

const podGroupFinalizer = "scheduling.k8s.io/podgroup-protection"

func (podGroupProtection) Mutate(_ context.Context, _ kind.Env, r *kind.AdmissionRequest) error {
	if r.Object == nil || !on(r, "scheduling.k8s.io", "podgroups", admissionv1.Create) {
		return nil
	}
	if have := r.Object.GetFinalizers(); !slices.Contains(have, podGroupFinalizer) {
		r.Object.SetFinalizers(append(slices.Clone(have), podGroupFinalizer))
	}
	return nil
}

// jobOfGang keeps the parallelism of a Job whose pods are a gang: the gang's size never changes.
type jobOfGang struct{}

func (jobOfGang) Name() string { return "JobValidation" }

func (jobOfGang) Validate(ctx context.Context, env kind.Env, r *kind.AdmissionRequest) error {
	if !on(r, "batch", "jobs", admissionv1.Update) {
		return nil
	}
	job, isJob := r.Object.(*batchv1.Job)
	old, wasJob := r.Old.(*batchv1.Job)
	if !isJob || !wasJob || ptr.Equal(job.Spec.Parallelism, old.Spec.Parallelism) {
		return nil
	}
	groups, err := groupsOf(ctx, env, old)
	if err != nil {
		return err
	}
	for _, g := range groups {
		if g.Spec.SchedulingPolicy.Gang != nil {
			return forbid(r, "cannot change parallelism for a Job referencing gang-scheduled PodGroup %q", g.Name)
		}
	}
	return nil
}

// groupsOf are the PodGroup that a Job's template names or, if it names none, those that the Job controls.
func groupsOf(ctx context.Context, env kind.Env, job *batchv1.Job) ([]*schedulingv1alpha2.PodGroup, error) {
	if g := job.Spec.Template.Spec.SchedulingGroup; g != nil && g.PodGroupName != nil {
		group, err := get[*schedulingv1alpha2.PodGroup](ctx, env, "scheduling.k8s.io", "podgroups", job.Namespace, *g.PodGroupName)
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		return []*schedulingv1alpha2.PodGroup{group}, nil
	}
	all, err := list[*schedulingv1alpha2.PodGroup](ctx, env, "scheduling.k8s.io", "podgroups", job.Namespace)
	return slices.DeleteFunc(slices.Clone(all), func(g *schedulingv1alpha2.PodGroup) bool { return !metav1.IsControlledBy(g, job) }), err
}
