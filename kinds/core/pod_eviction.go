package core

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/yare-project/yare/kind"
)

var (
	evictionKind   = policyv1.SchemeGroupVersion.WithKind("Eviction")
	olderEvictions = []schema.GroupVersion{{Group: policyv1.GroupName, Version: "v1beta1"}}
	budgetResource = schema.GroupResource{Group: policyv1.GroupName, Resource: "poddisruptionbudgets"}
)

const (
	// maxDisrupted bounds evictions that the disruption controller has not seen yet.
	maxDisrupted     = 2000
	wouldViolate     = "Cannot evict pod as it would violate the pod's disruption budget."
	evictionAttempts = 20
)

func newEviction() runtime.Object { return &policyv1.Eviction{} }

// evict answers POST pods/<name>/eviction: it deletes the pod if the budget that covers it allows that now, and else answers 429 with the
// budget's reason, so that the client tries again.
func evict(ctx context.Context, env kind.Env, pod *corev1.Pod, body runtime.Object, opts metav1.CreateOptions) (runtime.Object, error) {
	e, ok := body.(*policyv1.Eviction)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("not a Eviction object: %T", body))
	}
	if e.Name != pod.Name {
		return nil, apierrors.NewBadRequest("name in URL does not match name in Eviction object")
	}
	options, err := evictionOptions(e, pod.Name, opts)
	if err != nil {
		return nil, err
	}
	pinned := options.Preconditions != nil && options.Preconditions.ResourceVersion != nil
	for range evictionAttempts {
		err = tryEvict(ctx, env, pod.Namespace, pod.Name, *options.DeepCopy(), pinned)
		if !apierrors.IsConflict(err) || pinned || ctx.Err() != nil {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	return &metav1.Status{Status: metav1.StatusSuccess}, nil
}

func evictionOptions(e *policyv1.Eviction, name string, opts metav1.CreateOptions) (*metav1.DeleteOptions, error) {
	options := e.DeleteOptions.DeepCopy()
	if options == nil {
		options = &metav1.DeleteOptions{}
	}
	if options.IgnoreStoreReadErrorWithClusterBreakingPotential != nil && *options.IgnoreStoreReadErrorWithClusterBreakingPotential {
		return nil, apierrors.NewInvalid(evictionKind.GroupKind(), name, field.ErrorList{field.Invalid(
			field.NewPath("deleteOptions", "ignoreStoreReadErrorWithClusterBreakingPotential"), true, "can not be set for pod eviction, try after removing the option")})
	}
	switch {
	case len(options.DryRun) == 0:
		options.DryRun = opts.DryRun
	case len(opts.DryRun) > 0 && !slices.Equal(opts.DryRun, options.DryRun):
		return nil, apierrors.NewBadRequest(fmt.Sprintf("Non-matching dry-run options in request and content: %v and %v", opts.DryRun, options.DryRun))
	}
	return options, nil
}

// tryEvict decides on the newest state. A conflict means that the pod or its budget changed meanwhile.
func tryEvict(ctx context.Context, env kind.Env, namespace, name string, options metav1.DeleteOptions, pinned bool) error {
	obj, err := env.Get(ctx, podResource, namespace, name)
	if err != nil {
		return err
	}
	pod := obj.(*corev1.Pod)
	ended := isTerminal(pod) || pod.DeletionTimestamp != nil
	// A pod that has not run yet serves nobody; but it must not begin to while it is being judged.
	exact := !ended && pod.Status.Phase == corev1.PodPending
	if !ended && !exact {
		budget, err := budgetOf(ctx, env, pod)
		if err != nil {
			return err
		}
		if budget != nil {
			if exact = freeToGo(pod, budget); !exact {
				if err := spend(ctx, env, budget, pod, isDryRun(options.DryRun)); err != nil {
					return err
				}
			}
		}
	}
	if exact && !pinned {
		if options.Preconditions == nil {
			options.Preconditions = &metav1.Preconditions{}
		}
		options.Preconditions.ResourceVersion = &pod.ResourceVersion
	}
	return markAndDelete(ctx, env, pod, options)
}

// budgetOf finds the one budget that covers a pod; nil if there is none.
func budgetOf(ctx context.Context, env kind.Env, pod *corev1.Pod) (*policyv1.PodDisruptionBudget, error) {
	list, err := env.List(ctx, budgetResource, pod.Namespace)
	if err != nil {
		return nil, fmt.Errorf("list disruption budgets: %w", err)
	}
	var found *policyv1.PodDisruptionBudget
	for _, obj := range list {
		budget := obj.(*policyv1.PodDisruptionBudget)
		selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
		if err != nil || !selector.Matches(labels.Set(pod.Labels)) {
			continue
		}
		if found != nil {
			return nil, &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: 500, Reason: metav1.StatusReasonInternalError,
				Message: "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."}}
		}
		found = budget
	}
	return found, nil
}

// freeToGo: an unready pod costs the budget nothing, if the budget's policy says so or enough others are healthy.
func freeToGo(pod *corev1.Pod, budget *policyv1.PodDisruptionBudget) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			return false
		}
	}
	if policy := budget.Spec.UnhealthyPodEvictionPolicy; policy != nil && *policy == policyv1.AlwaysAllow {
		return true
	}
	return budget.Status.CurrentHealthy >= budget.Status.DesiredHealthy && budget.Status.DesiredHealthy > 0
}

// spend takes one disruption from the budget, or says why there is none.
func spend(ctx context.Context, env kind.Env, budget *policyv1.PodDisruptionBudget, pod *corev1.Pod, dryRun bool) error {
	take := func(obj kind.Object) error {
		b := obj.(*policyv1.PodDisruptionBudget)
		if err := refusal(b); err != nil {
			return err
		}
		b.Status.DisruptionsAllowed--
		if b.Status.DisruptionsAllowed == 0 {
			meta.SetStatusCondition(&b.Status.Conditions, metav1.Condition{Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionFalse,
				Reason: policyv1.InsufficientPodsReason, ObservedGeneration: b.Status.ObservedGeneration, LastTransitionTime: timestamp(env)})
		}
		if b.Status.DisruptedPods == nil {
			b.Status.DisruptedPods = map[string]metav1.Time{}
		}
		b.Status.DisruptedPods[pod.Name] = timestamp(env)
		return nil
	}
	if dryRun {
		return take(budget.DeepCopy())
	}
	_, err := env.Change(ctx, budgetResource, budget.Namespace, budget.Name, take)
	return err
}

func refusal(b *policyv1.PodDisruptionBudget) error {
	s := &b.Status
	switch {
	case s.ObservedGeneration < b.Generation:
		return tooManyRequests(10, fmt.Sprintf("The disruption budget %s is still being processed by the server.", b.Name))
	case s.DisruptionsAllowed < 0:
		return apierrors.NewForbidden(budgetResource, b.Name, fmt.Errorf("pdb disruptions allowed is negative"))
	case len(s.DisruptedPods) > maxDisrupted:
		return apierrors.NewForbidden(budgetResource, b.Name, fmt.Errorf("DisruptedPods map too big - too many evictions not confirmed by PDB controller"))
	case s.DisruptionsAllowed > 0:
		return nil
	}
	why := fmt.Sprintf("The disruption budget %s does not allow evicting pods currently", b.Name)
	c := meta.FindStatusCondition(s.Conditions, policyv1.DisruptionAllowedCondition)
	told := c != nil && c.Status == metav1.ConditionFalse && c.Message != ""
	switch {
	case told && c.Reason == policyv1.SyncFailedReason:
		why += " because it failed sync: " + c.Message
	case s.CurrentHealthy <= s.DesiredHealthy:
		why = fmt.Sprintf("The disruption budget %s needs %d healthy pods and has %d currently", b.Name, s.DesiredHealthy, s.CurrentHealthy)
	case told:
		why += fmt.Sprintf(" (%s): %s", c.Reason, c.Message)
	}
	return tooManyRequests(0, why)
}

func tooManyRequests(afterSeconds int, why string) error {
	err := apierrors.NewTooManyRequests(wouldViolate, afterSeconds)
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Type: policyv1.DisruptionBudgetCause, Message: why})
	return err
}

// markAndDelete tells controllers and users why the pod goes, and deletes it.
func markAndDelete(ctx context.Context, env kind.Env, pod *corev1.Pod, options metav1.DeleteOptions) error {
	if !isDryRun(options.DryRun) {
		changed, err := env.Change(ctx, podResource, pod.Namespace, pod.Name, func(obj kind.Object) error {
			p := obj.(*corev1.Pod)
			if !matches(options.Preconditions, p.UID, p.ResourceVersion) {
				return apierrors.NewConflict(podResource, p.Name, fmt.Errorf("the precondition of the eviction does not match the pod, which was changed or made anew (uid %s, resourceVersion %s)", p.UID, p.ResourceVersion))
			}
			setPodCondition(&p.Status, corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, ObservedGeneration: p.Generation,
				Reason: "EvictionByEvictionAPI", Message: "Eviction API: evicting"}, timestamp(env))
			return nil
		})
		if err != nil {
			return err
		}
		if options.Preconditions != nil && options.Preconditions.ResourceVersion != nil {
			version := changed.GetResourceVersion()
			options.Preconditions.ResourceVersion = &version
		}
	}
	_, err := env.Delete(ctx, podResource, pod.Namespace, pod.Name, options)
	return err
}
