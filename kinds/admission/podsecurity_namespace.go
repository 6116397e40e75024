package admission

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/pod-security-admission/api"

	"github.com/yare-project/yare/kind"
)

// namespace refuses new labels that name no level, and tells who makes a namespace stricter which of its pods would no longer be let in.
func (p podSecurity) namespace(ctx context.Context, env kind.Env, r *kind.AdmissionRequest, ns *corev1.Namespace) error {
	if r.Ref.Subresource != "" {
		return nil
	}
	now, problems := api.PolicyToEvaluate(ns.Labels, p.defaults)
	old, isUpdate := r.Old.(*corev1.Namespace)
	var was api.Policy
	if isUpdate {
		var before field.ErrorList
		if was, before = api.PolicyToEvaluate(old.Labels, p.defaults); sameProblems(before, problems) {
			problems = nil
		}
	}
	if len(problems) > 0 {
		return apierrors.NewInvalid(schema.GroupKind{Kind: "Namespace"}, ns.Name, problems)
	}
	switch {
	case isUpdate && !stricter(now.Enforce, was.Enforce):
	case slices.Contains(p.exempt.Namespaces, ns.Name):
		p.warnExempt(r, ns, now)
	case isUpdate && p.problem == nil && r.Warn != nil:
		for _, text := range p.existing(ctx, env, ns.Name, now.Enforce) {
			r.Warn(text)
		}
	}
	return nil
}

func sameProblems(a, b field.ErrorList) bool {
	return len(a) > 0 && equality.Semantic.DeepEqual(a.ToAggregate().Error(), b.ToAggregate().Error())
}

// stricter tells whether pods that were let in might not be any more.
func stricter(now, was api.LevelVersion) bool {
	return now != was && now.Level != api.LevelPrivileged && (now.Version != was.Version || api.CompareLevels(now.Level, was.Level) > 0)
}

// warnExempt tells that labels of an exempt namespace have no effect.
func (p podSecurity) warnExempt(r *kind.AdmissionRequest, ns *corev1.Namespace, now api.Policy) {
	if now.FullyPrivileged() || now.Equivalent(&p.defaults) || r.Warn == nil {
		return
	}
	var modes []string
	for _, m := range []struct {
		name           string
		level          api.LevelVersion
		label, version string
	}{{"enforce", now.Enforce, api.EnforceLevelLabel, api.EnforceVersionLabel}, {"audit", now.Audit, api.AuditLevelLabel, api.AuditVersionLabel},
		{"warn", now.Warn, api.WarnLevelLabel, api.WarnVersionLabel}} {
		_, level := ns.Labels[m.label]
		_, version := ns.Labels[m.version]
		if m.level.Level != api.LevelPrivileged && (level || version) {
			modes = append(modes, m.name+"="+m.level.String())
		}
	}
	if len(modes) > 0 {
		r.Warn(fmt.Sprintf("namespace %q is exempt from Pod Security, and the policy (%s) will be ignored", ns.Name, strings.Join(modes, ", ")))
	}
}

const (
	// maxExisting and existingTime bound the look at a namespace's pods, as Kubernetes.
	maxExisting  = 3000
	existingTime = time.Second
)

// violation is a reason with the pods that it holds for.
type violation struct {
	reason, first string
	pods          int
}

// existing tells which pods of a namespace violate a level.
func (p podSecurity) existing(ctx context.Context, env kind.Env, namespace string, level api.LevelVersion) []string {
	pods, err := list[*corev1.Pod](ctx, env, "", "pods", namespace)
	if err != nil {
		return []string{"failed to list pods while checking new PodSecurity enforce level"}
	}
	pods = p.oneOfEachFirst(pods)
	ctx, cancel := context.WithTimeout(ctx, existingTime)
	defer cancel()
	found := map[string]*violation{}
	checked := 0
	for _, pod := range pods[:min(len(pods), maxExisting)] {
		if checked++; ctx.Err() != nil {
			break
		}
		result := p.check(level, &pod.ObjectMeta, &pod.Spec)
		if result.Allowed {
			continue
		}
		v := found[result.ForbiddenReason()]
		if v == nil {
			v = &violation{reason: result.ForbiddenReason(), first: pod.Name}
			found[v.reason] = v
		}
		v.first = min(v.first, pod.Name)
		v.pods++
	}
	return warningsOf(namespace, level, found, checked, len(pods))
}

// oneOfEachFirst puts one pod of each controller before its others: they are alike.
func (p podSecurity) oneOfEachFirst(pods []*corev1.Pod) []*corev1.Pod {
	var first, rest []*corev1.Pod
	seen := map[types.UID]bool{}
	for _, pod := range pods {
		owner := metav1.GetControllerOfNoCopy(pod)
		switch {
		case pod.Spec.RuntimeClassName != nil && slices.Contains(p.exempt.RuntimeClasses, *pod.Spec.RuntimeClassName):
		case owner != nil && seen[owner.UID]:
			rest = append(rest, pod)
		default:
			if owner != nil {
				seen[owner.UID] = true
			}
			first = append(first, pod)
		}
	}
	return append(first, rest...)
}

func warningsOf(namespace string, level api.LevelVersion, found map[string]*violation, checked, all int) []string {
	var out, lines []string
	if checked < all {
		out = append(out, fmt.Sprintf("new PodSecurity enforce level only checked against the first %d of %d existing pods", checked, all))
	}
	if len(found) > 0 {
		out = append(out, fmt.Sprintf("existing pods in namespace %q violate the new PodSecurity enforce level %q", namespace, level.String()))
	}
	for _, v := range found {
		who := v.first
		switch {
		case v.pods == 2:
			who += " (and 1 other pod)"
		case v.pods > 2:
			who += fmt.Sprintf(" (and %d other pods)", v.pods-1)
		}
		lines = append(lines, who+": "+v.reason)
	}
	slices.SortFunc(lines, cmp.Compare[string])
	return append(out, lines...)
}
