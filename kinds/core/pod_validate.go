package core

import (
	"fmt"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/diff"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func validatePod(pod, old *corev1.Pod) field.ErrorList {
	if old != nil {
		return validatePodUpdate(pod, old)
	}
	var p problems
	path := field.NewPath("spec")
	p.add(validateWholePod(pod)...)
	if len(pod.Spec.EphemeralContainers) > 0 {
		p.forbidden(path.Child("ephemeralContainers"), "cannot be set on create")
	}
	if pod.Spec.NodeName != "" && len(pod.Spec.SchedulingGates) > 0 {
		p.forbidden(path.Child("nodeName"), "cannot be set until all schedulingGates have been cleared")
	}
	p.add(validateProfileAnnotations(pod.Annotations, &pod.Spec, path)...)
	return p.list
}

// validateWholePod checks a pod for itself, not against what it was.
func validateWholePod(pod *corev1.Pod) field.ErrorList {
	var p problems
	path := field.NewPath("spec")
	p.add(validatePodAnnotations(pod.Annotations, &pod.Spec, field.NewPath("metadata", "annotations"))...)
	p.add(checkPodSpec(&pod.Spec, &pod.ObjectMeta, path)...)
	if pod.Spec.ServiceAccountName != "" {
		return p.list
	}
	for i, v := range pod.Spec.Volumes {
		for j := 0; v.Projected != nil && j < len(v.Projected.Sources); j++ {
			if v.Projected.Sources[j].ServiceAccountToken != nil {
				p.forbidden(path.Child("volumes").Index(i).Child("projected", "sources").Index(j).Child("serviceAccountToken"), "must not be specified when serviceAccountName is not set")
			}
		}
	}
	return p.list
}

// validatePodUpdate: of a pod's spec only images, the deadline, additional tolerations, fewer gates, and while gated a narrower choice of nodes
// may change. A spec that did not change is not checked again: it was good when it came in.
func validatePodUpdate(pod, old *corev1.Pod) field.ErrorList {
	var p problems
	p.add(validateAnnotationUpdate(pod, old)...)
	if apiequality.Semantic.DeepEqual(pod.Spec, old.Spec) {
		return p.list
	}
	path := field.NewPath("spec")
	p.add(validateWholePod(pod)...)
	for _, l := range []struct {
		name     string
		now, was []corev1.Container
	}{{"containers", pod.Spec.Containers, old.Spec.Containers}, {"initContainers", pod.Spec.InitContainers, old.Spec.InitContainers}} {
		if len(l.now) != len(l.was) {
			p.forbidden(path.Child(l.name), "pod updates may not add or remove containers")
			return p.list
		}
	}
	if !checkDeadlineUpdate(&p, pod.Spec.ActiveDeadlineSeconds, old.Spec.ActiveDeadlineSeconds, path.Child("activeDeadlineSeconds")) {
		return p.list
	}
	checkTolerationUpdate(&p, pod.Spec.Tolerations, old.Spec.Tolerations, path.Child("tolerations"))
	checkGateUpdate(&p, pod.Spec.SchedulingGates, old.Spec.SchedulingGates, path.Child("schedulingGates"))

	rest := pod.Spec.DeepCopy()
	for i := range rest.Containers {
		rest.Containers[i].Image = old.Spec.Containers[i].Image
	}
	for i := range rest.InitContainers {
		rest.InitContainers[i].Image = old.Spec.InitContainers[i].Image
	}
	rest.ActiveDeadlineSeconds = old.Spec.ActiveDeadlineSeconds
	rest.Tolerations, rest.SchedulingGates = old.Spec.Tolerations, old.Spec.SchedulingGates
	if was, now := old.Spec.TerminationGracePeriodSeconds, rest.TerminationGracePeriodSeconds; was != nil && *was < 0 && now != nil && *now == 1 {
		rest.TerminationGracePeriodSeconds = was
	}
	if len(old.Spec.SchedulingGates) > 0 {
		checkGatedUpdate(&p, rest, &old.Spec, path)
	}
	if !apiequality.Semantic.DeepEqual(*rest, old.Spec) {
		p.forbidden(path, fmt.Sprintf("pod updates may not change fields other than %s\n%v", strings.Join(changeablePodFields, ","), diff.Diff(old.Spec, *rest)))
	}
	return p.list
}

var changeablePodFields = []string{
	"`spec.containers[*].image`", "`spec.initContainers[*].image`", "`spec.activeDeadlineSeconds`",
	"`spec.tolerations` (only additions to existing tolerations)",
	"`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)",
}

func validateAnnotationUpdate(pod, old *corev1.Pod) field.ErrorList {
	var p problems
	path := field.NewPath("metadata", "annotations")
	special := func(key string) (what string, ok bool) {
		if strings.HasPrefix(key, appArmorPrefix) {
			return "AppArmor annotations", true
		}
		return "mirror pod annotation", key == corev1.MirrorPodAnnotationKey
	}
	for key, was := range old.Annotations {
		if now, there := pod.Annotations[key]; there && now == was {
			continue
		}
		if what, ok := special(key); ok {
			p.forbidden(path.Key(key), "may not remove or update "+what)
		}
	}
	for key := range pod.Annotations {
		if _, there := old.Annotations[key]; there {
			continue
		}
		if what, ok := special(key); ok {
			p.forbidden(path.Key(key), "may not add "+what)
		}
	}
	return append(p.list, validatePodAnnotations(pod.Annotations, &pod.Spec, path)...)
}

func checkDeadlineUpdate(p *problems, now, was *int64, path *field.Path) bool {
	switch {
	case now == nil && was != nil:
		p.invalid(path, now, "must not update from a positive integer to nil value")
	case now == nil:
	case *now < 0 || *now > math.MaxInt32:
		p.invalid(path, *now, validation.InclusiveRangeError(0, math.MaxInt32))
		return false
	case was != nil && *was < *now:
		p.invalid(path, *now, "must be less than or equal to previous value")
		return false
	}
	return true
}

func checkTolerationUpdate(p *problems, now, was []corev1.Toleration, path *field.Path) {
	for _, old := range was {
		kept := slices.ContainsFunc(now, func(t corev1.Toleration) bool {
			t.TolerationSeconds = old.TolerationSeconds
			return t == old
		})
		if !kept {
			p.forbidden(path, "existing toleration can not be modified except its tolerationSeconds")
			return
		}
	}
}

func checkGateUpdate(p *problems, now, was []corev1.PodSchedulingGate, path *field.Path) {
	known := sets.New(was...)
	for i, gate := range now {
		if !known.Has(gate) {
			p.forbidden(path.Index(i).Child("name"), fmt.Sprintf("only deletion is allowed, but found new scheduling gate '%s'", gate.Name))
		}
	}
}

// checkGatedUpdate lets a gated pod's choice of nodes become narrower, and puts the old choice back into rest.
func checkGatedUpdate(p *problems, rest, old *corev1.PodSpec, path *field.Path) {
	for key, value := range old.NodeSelector {
		if now, there := rest.NodeSelector[key]; !there || now != value {
			p.invalid(path.Child("nodeSelector"), rest.NodeSelector, "only additions to spec.nodeSelector are allowed (no mutations or deletions)")
			break
		}
	}
	rest.NodeSelector = old.NodeSelector
	nodeAffinity := func(s *corev1.PodSpec) *corev1.NodeAffinity {
		if s.Affinity == nil {
			return nil
		}
		return s.Affinity.NodeAffinity
	}
	was, now := nodeAffinity(old), nodeAffinity(rest)
	if apiequality.Semantic.DeepEqual(was, now) {
		return
	}
	checkNarrowerTerms(p, requiredTerms(now), requiredTerms(was), path.Child("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms"))
	if rest.Affinity == nil {
		rest.Affinity = &corev1.Affinity{}
	}
	rest.Affinity.NodeAffinity = was
	if old.Affinity == nil && *rest.Affinity == (corev1.Affinity{}) {
		rest.Affinity = nil
	}
}

func requiredTerms(a *corev1.NodeAffinity) []corev1.NodeSelectorTerm {
	if a == nil || a.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return nil
	}
	return a.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
}

func checkNarrowerTerms(p *problems, now, was []corev1.NodeSelectorTerm, path *field.Path) {
	if len(was) == 0 {
		return
	}
	if len(now) != len(was) {
		p.invalid(path, now, "no additions/deletions to non-empty NodeSelectorTerms list are allowed")
		return
	}
	starts := func(now, was []corev1.NodeSelectorRequirement) bool {
		return len(now) >= len(was) && (len(was) == 0 || apiequality.Semantic.DeepEqual(now[:len(was)], was))
	}
	for i := range was {
		// A term without requirements matches nothing; with one it would match more than before.
		wasEmpty := len(was[i].MatchExpressions)+len(was[i].MatchFields) == 0
		grown := wasEmpty && len(now[i].MatchExpressions)+len(now[i].MatchFields) > 0
		if grown || !starts(now[i].MatchExpressions, was[i].MatchExpressions) || !starts(now[i].MatchFields, was[i].MatchFields) {
			p.invalid(path.Index(i), now[i], "only additions are allowed (no mutations or deletions)")
		}
	}
}
