package admission

import (
	"context"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	schedulingv1alpha2 "k8s.io/api/scheduling/v1alpha2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

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
