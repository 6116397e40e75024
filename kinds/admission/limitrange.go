package admission

import (
	"context"
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	podresource "k8s.io/component-helpers/resource"

	"github.com/yare-project/yare/kind"
)

// limitRanger fills the requests and limits that containers leave out from the LimitRanges of their namespace, and refuses pods and
// claims outside of these ranges.
type limitRanger struct{}

// limitRangerAnnotation tells on a pod what was filled in.
const limitRangerAnnotation = "kubernetes.io/limit-ranger"

func (limitRanger) Name() string { return "LimitRanger" }

func (limitRanger) Mutate(ctx context.Context, env kind.Env, r *kind.AdmissionRequest) error {
	pod, ok := r.Object.(*corev1.Pod)
	if !ok || !on(r, "", "pods", admissionv1.Create) {
		return nil
	}
	ranges, err := limitRanges(ctx, env, r.Ref.Namespace)
	if err != nil {
		return err
	}
	for _, lr := range ranges {
		fillPod(pod, lr)
	}
	return nil
}

func (limitRanger) Validate(ctx context.Context, env kind.Env, r *kind.AdmissionRequest) error {
	pod, isPod := r.Object.(*corev1.Pod)
	claim, isClaim := r.Object.(*corev1.PersistentVolumeClaim)
	switch {
	case isPod && (on(r, "", "pods", admissionv1.Create) || onSub(r, "", "pods", "resize", admissionv1.Update)):
	case isClaim && on(r, "", "persistentvolumeclaims", admissionv1.Create, admissionv1.Update):
	default:
		return nil
	}
	if r.Old != nil && r.Old.GetDeletionTimestamp() != nil {
		return nil
	}
	ranges, err := limitRanges(ctx, env, r.Ref.Namespace)
	if err != nil {
		return err
	}
	for _, lr := range ranges {
		for i := range lr.Spec.Limits {
			var errs []error
			if isPod {
				errs = checkPod(pod, &lr.Spec.Limits[i])
			} else {
				errs = checkClaim(claim, &lr.Spec.Limits[i])
			}
			if err := utilerrors.NewAggregate(errs); err != nil {
				return forbid(r, "%w", err)
			}
		}
	}
	return nil
}

// limitRanges are a namespace's, in order of name, so that the first to fill a value is always the same.
func limitRanges(ctx context.Context, env kind.Env, namespace string) ([]*corev1.LimitRange, error) {
	ranges, err := list[*corev1.LimitRange](ctx, env, "", "limitranges", namespace)
	slices.SortFunc(ranges, func(a, b *corev1.LimitRange) int { return strings.Compare(a.Name, b.Name) })
	return ranges, err
}

func fillPod(pod *corev1.Pod, lr *corev1.LimitRange) {
	var filled []string
	for _, limit := range lr.Spec.Limits {
		if limit.Type != corev1.LimitTypeContainer {
			continue
		}
		for i := range pod.Spec.Containers {
			filled = append(filled, fillContainer(&pod.Spec.Containers[i], "container", &limit)...)
		}
		for i := range pod.Spec.InitContainers {
			filled = append(filled, fillContainer(&pod.Spec.InitContainers[i], "init container", &limit)...)
		}
	}
	if len(filled) == 0 {
		return
	}
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Annotations[limitRangerAnnotation] = "LimitRanger plugin set: " + strings.Join(filled, "; ")
}

func fillContainer(c *corev1.Container, what string, limit *corev1.LimitRangeItem) []string {
	var out []string
	if names := fill(&c.Resources.Requests, limit.DefaultRequest); len(names) > 0 {
		out = append(out, fmt.Sprintf("%s request for %s %s", strings.Join(names, ", "), what, c.Name))
	}
	if names := fill(&c.Resources.Limits, limit.Default); len(names) > 0 {
		out = append(out, fmt.Sprintf("%s limit for %s %s", strings.Join(names, ", "), what, c.Name))
	}
	return out
}

// fill adds to a list what it lacks and returns the names.
func fill(to *corev1.ResourceList, from corev1.ResourceList) []string {
	var names []string
	for name, q := range from {
		if _, ok := (*to)[name]; ok {
			continue
		}
		if *to == nil {
			*to = corev1.ResourceList{}
		}
		(*to)[name] = q.DeepCopy()
		names = append(names, string(name))
	}
	slices.Sort(names)
	return names
}

func checkPod(pod *corev1.Pod, limit *corev1.LimitRangeItem) []error {
	var errs []error
	switch limit.Type {
	case corev1.LimitTypeContainer:
		for _, containers := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
			for i := range containers {
				errs = append(errs, checkUse(limit, containers[i].Resources.Requests, containers[i].Resources.Limits)...)
			}
		}
	case corev1.LimitTypePod:
		// The overhead is the cluster's, not the pod's wish.
		opts := podresource.PodResourcesOptions{ExcludeOverhead: true}
		errs = checkUse(limit, podresource.PodRequests(pod, opts), podresource.PodLimits(pod, opts))
	}
	return errs
}

func checkUse(limit *corev1.LimitRangeItem, requests, limits corev1.ResourceList) []error {
	var errs []error
	for _, name := range names(limit.Min) {
		errs = append(errs, atLeast(limit.Type, name, limit.Min[name], requests, limits))
	}
	for _, name := range names(limit.Max) {
		errs = append(errs, atMost(limit.Type, name, limit.Max[name], requests, limits))
	}
	for _, name := range names(limit.MaxLimitRequestRatio) {
		errs = append(errs, inRatio(limit.Type, name, limit.MaxLimitRequestRatio[name], requests, limits))
	}
	return errs
}

// checkClaim looks at requests only: a claim has no limits.
func checkClaim(claim *corev1.PersistentVolumeClaim, limit *corev1.LimitRangeItem) []error {
	if limit.Type != corev1.LimitTypePersistentVolumeClaim {
		return nil
	}
	var errs []error
	requests := claim.Spec.Resources.Requests
	for _, name := range names(limit.Min) {
		errs = append(errs, atLeast(limit.Type, name, limit.Min[name], requests, nil))
	}
	for _, name := range names(limit.Max) {
		bound, q := limit.Max[name], requests[name]
		switch _, ok := requests[name]; {
		case !ok:
			errs = append(errs, fmt.Errorf("maximum %s usage per %s is %s.  No request is specified", name, limit.Type, bound.String()))
		case q.Cmp(bound) > 0:
			errs = append(errs, fmt.Errorf("maximum %s usage per %s is %s, but request is %s", name, limit.Type, bound.String(), q.String()))
		}
	}
	return errs
}

func names(l corev1.ResourceList) []corev1.ResourceName {
	var out []corev1.ResourceName
	for n := range l {
		out = append(out, n)
	}
	slices.Sort(out)
	return out
}

func atLeast(t corev1.LimitType, name corev1.ResourceName, bound resource.Quantity, requests, limits corev1.ResourceList) error {
	request, hasRequest := requests[name]
	limit, hasLimit := limits[name]
	switch {
	case !hasRequest:
		return fmt.Errorf("minimum %s usage per %s is %s.  No request is specified", name, t, bound.String())
	case request.Cmp(bound) < 0:
		return fmt.Errorf("minimum %s usage per %s is %s, but request is %s", name, t, bound.String(), request.String())
	case hasLimit && limit.Cmp(bound) < 0:
		return fmt.Errorf("minimum %s usage per %s is %s, but limit is %s", name, t, bound.String(), limit.String())
	}
	return nil
}

func atMost(t corev1.LimitType, name corev1.ResourceName, bound resource.Quantity, requests, limits corev1.ResourceList) error {
	request, hasRequest := requests[name]
	limit, hasLimit := limits[name]
	switch {
	case !hasLimit:
		return fmt.Errorf("maximum %s usage per %s is %s.  No limit is specified", name, t, bound.String())
	case limit.Cmp(bound) > 0:
		return fmt.Errorf("maximum %s usage per %s is %s, but limit is %s", name, t, bound.String(), limit.String())
	case hasRequest && request.Cmp(bound) > 0:
		return fmt.Errorf("maximum %s usage per %s is %s, but request is %s", name, t, bound.String(), request.String())
	}
	return nil
}

func inRatio(t corev1.LimitType, name corev1.ResourceName, bound resource.Quantity, requests, limits corev1.ResourceList) error {
	request, limit := requests[name], limits[name]
	switch {
	case request.IsZero():
		return fmt.Errorf("%s max limit to request ratio per %s is %s, but no request is specified or request is 0", name, t, bound.String())
	case limit.IsZero():
		return fmt.Errorf("%s max limit to request ratio per %s is %s, but no limit is specified or limit is 0", name, t, bound.String())
	}
	if ratio := limit.AsApproximateFloat64() / request.AsApproximateFloat64(); ratio > bound.AsApproximateFloat64() {
		return fmt.Errorf("%s max limit to request ratio per %s is %s, but provided ratio is %f", name, t, bound.String(), ratio)
	}
	return nil
}
