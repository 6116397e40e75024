package batch

import (
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/kinds/rule"
)

// The limits of the Job API: of indexed jobs, so that the lists of indexes in the status stay small, and of policies.
const (
	maxIndexed                         = 100_000
	completionsSoftLimit               = 100_000
	parallelismLimitForHighCompletions = 10_000
	maxFailedForHighCompletions        = 10_000
	maxManagedBy                       = 63
)

func validateJob(j, old *batchv1.Job) field.ErrorList {
	spec := field.NewPath("spec")
	errs := validateGeneratedSelector(j, old)
	errs = append(errs, validateSelector(&j.Spec, spec)...)
	errs = append(errs, validateJobSpec(&j.Spec, spec)...)
	if ptr.Deref(j.Spec.CompletionMode, "") == batchv1.IndexedCompletion && ptr.Deref(j.Spec.Completions, 0) > 0 {
		// The pod of the highest index gets the longest hostname.
		longest := fmt.Sprintf("%s-%d", j.Name, *j.Spec.Completions-1)
		if len(validation.IsDNS1123Label(longest)) > 0 {
			errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), j.Name, "will not able to create pod with invalid DNS label: "+longest))
		}
	}
	if old != nil {
		errs = append(errs, validateJobUpdate(&j.Spec, old, spec)...)
	}
	return errs
}

// validateGeneratedSelector holds a job with a generated selector to the labels that were generated.
func validateGeneratedSelector(j, old *batchv1.Job) field.ErrorList {
	if ptr.Deref(j.Spec.ManualSelector, false) || j.Spec.Selector == nil {
		return nil
	}
	var errs field.ErrorList
	if j.UID == "" {
		errs = append(errs, field.Required(field.NewPath("metadata", "uid"), ""))
	}
	want := jobLabels(j)
	if old != nil { // a job from before the prefixed labels keeps going without
		_, name := old.Spec.Template.Labels[batchv1.JobNameLabel]
		_, uid := old.Spec.Template.Labels[batchv1.ControllerUidLabel]
		if !name || !uid {
			delete(want, batchv1.JobNameLabel)
			delete(want, batchv1.ControllerUidLabel)
		}
	}
	path := field.NewPath("spec", "template", "metadata", "labels")
	for _, key := range []string{legacyControllerUID, legacyJobName, batchv1.ControllerUidLabel, batchv1.JobNameLabel} {
		value, expected := want[key]
		if !expected {
			continue
		}
		got, set := j.Spec.Template.Labels[key]
		switch {
		case !set:
			errs = append(errs, field.Required(path.Key(key), fmt.Sprintf("must be '%s'", value)))
		case got != value:
			errs = append(errs, field.Invalid(path.Key(key), j.Spec.Template.Labels, fmt.Sprintf("must be '%s'", value)))
		}
	}
	if selector, err := metav1.LabelSelectorAsSelector(j.Spec.Selector); err == nil && !selector.Matches(labels.Set(want)) {
		errs = append(errs, field.Invalid(field.NewPath("spec", "selector"), j.Spec.Selector, "`selector` not auto-generated"))
	}
	return errs
}

func validateSelector(spec *batchv1.JobSpec, path *field.Path) field.ErrorList {
	errs := rule.Selector(spec.Selector, path.Child("selector"))
	if spec.Selector == nil { // which selects nothing, the template's pods neither
		errs = append(errs, field.Required(path.Child("selector"), ""))
	}
	if selector, err := metav1.LabelSelectorAsSelector(spec.Selector); err == nil && !selector.Matches(labels.Set(spec.Template.Labels)) {
		errs = append(errs, field.Invalid(path.Child("template", "metadata", "labels"), spec.Template.Labels, "`selector` does not match template `labels`"))
	}
	return errs
}

// validateJobSpec checks all but the selector, which a CronJob's template has not.
func validateJobSpec(spec *batchv1.JobSpec, path *field.Path) field.ErrorList {
	errs := rule.NonNegativePtr(spec.Parallelism, path.Child("parallelism"))
	errs = append(errs, rule.NonNegativePtr(spec.Completions, path.Child("completions"))...)
	errs = append(errs, rule.NonNegativePtr(spec.ActiveDeadlineSeconds, path.Child("activeDeadlineSeconds"))...)
	errs = append(errs, rule.NonNegativePtr(spec.BackoffLimit, path.Child("backoffLimit"))...)
	errs = append(errs, rule.NonNegativePtr(spec.TTLSecondsAfterFinished, path.Child("ttlSecondsAfterFinished"))...)
	errs = append(errs, rule.NonNegativePtr(spec.BackoffLimitPerIndex, path.Child("backoffLimitPerIndex"))...)
	errs = append(errs, rule.NonNegativePtr(spec.MaxFailedIndexes, path.Child("maxFailedIndexes"))...)
	if spec.MaxFailedIndexes != nil && spec.BackoffLimitPerIndex == nil {
		errs = append(errs, field.Required(path.Child("backoffLimitPerIndex"), "when maxFailedIndexes is specified"))
	}
	if spec.ManagedBy != nil {
		errs = append(errs, validation.IsDomainPrefixedPath(path.Child("managedBy"), *spec.ManagedBy)...)
		if len(*spec.ManagedBy) > maxManagedBy {
			errs = append(errs, field.TooLong(path.Child("managedBy"), *spec.ManagedBy, maxManagedBy))
		}
	}
	errs = append(errs, validateCompletionMode(spec, path)...)
	if spec.PodFailurePolicy != nil {
		errs = append(errs, validateFailurePolicy(spec, path.Child("podFailurePolicy"))...)
	}
	if spec.SuccessPolicy != nil {
		errs = append(errs, validateSuccessPolicy(spec, path.Child("successPolicy"))...)
	}
	errs = append(errs, validateReplacementPolicy(spec, path.Child("podReplacementPolicy"))...)
	errs = append(errs, validateTemplate(&spec.Template, path.Child("template"))...)
	return append(errs, validateRestartPolicy(spec, path.Child("template", "spec", "restartPolicy"))...)
}

func validateCompletionMode(spec *batchv1.JobSpec, path *field.Path) field.ErrorList {
	mode := ptr.Deref(spec.CompletionMode, batchv1.NonIndexedCompletion)
	switch mode {
	case batchv1.IndexedCompletion:
		return validateIndexed(spec, path)
	case batchv1.NonIndexedCompletion:
		var errs field.ErrorList
		if spec.BackoffLimitPerIndex != nil {
			errs = append(errs, field.Invalid(path.Child("backoffLimitPerIndex"), *spec.BackoffLimitPerIndex, "requires indexed completion mode"))
		}
		if spec.MaxFailedIndexes != nil {
			errs = append(errs, field.Invalid(path.Child("maxFailedIndexes"), *spec.MaxFailedIndexes, "requires indexed completion mode"))
		}
		return errs
	}
	return field.ErrorList{field.NotSupported(path.Child("completionMode"), mode,
		[]batchv1.CompletionMode{batchv1.NonIndexedCompletion, batchv1.IndexedCompletion})}
}

func validateIndexed(spec *batchv1.JobSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if spec.Completions == nil {
		errs = append(errs, field.Required(path.Child("completions"), fmt.Sprintf("when completion mode is %s", batchv1.IndexedCompletion)))
	}
	atMost := func(n *int32, limit int32, name, detail string) {
		if n != nil && *n > limit {
			errs = append(errs, field.Invalid(path.Child(name), *n, detail))
		}
	}
	atMost(spec.Parallelism, maxIndexed, "parallelism",
		fmt.Sprintf("must be less than or equal to %d when completion mode is %s", maxIndexed, batchv1.IndexedCompletion))
	if spec.Completions != nil {
		atMost(spec.MaxFailedIndexes, *spec.Completions, "maxFailedIndexes", "must be less than or equal to completions")
	}
	atMost(spec.MaxFailedIndexes, maxIndexed, "maxFailedIndexes", fmt.Sprintf("must be less than or equal to %d", maxIndexed))
	if ptr.Deref(spec.Completions, 0) > completionsSoftLimit && spec.BackoffLimitPerIndex != nil {
		if spec.MaxFailedIndexes == nil {
			errs = append(errs, field.Required(path.Child("maxFailedIndexes"), fmt.Sprintf("must be specified when completions is above %d", completionsSoftLimit)))
		}
		const detail = "must be less than or equal to %d when completions are above %d and used with backoff limit per index"
		atMost(spec.Parallelism, parallelismLimitForHighCompletions, "parallelism", fmt.Sprintf(detail, parallelismLimitForHighCompletions, completionsSoftLimit))
		atMost(spec.MaxFailedIndexes, maxFailedForHighCompletions, "maxFailedIndexes", fmt.Sprintf(detail, maxFailedForHighCompletions, completionsSoftLimit))
	}
	return errs
}

func validateReplacementPolicy(spec *batchv1.JobSpec, path *field.Path) field.ErrorList {
	switch {
	case spec.PodReplacementPolicy == nil:
		return nil
	case spec.PodFailurePolicy != nil:
		return rule.OneOf(*spec.PodReplacementPolicy, path, batchv1.Failed)
	}
	return rule.OneOf(*spec.PodReplacementPolicy, path, batchv1.Failed, batchv1.TerminatingOrFailed)
}

func validateRestartPolicy(spec *batchv1.JobSpec, path *field.Path) field.ErrorList {
	policy := spec.Template.Spec.RestartPolicy
	switch policy {
	case "", corev1.RestartPolicyAlways: // Always is what a template without one got by default
		return field.ErrorList{field.Required(path, fmt.Sprintf("valid values: %q, %q", corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever))}
	case corev1.RestartPolicyNever:
		return nil
	case corev1.RestartPolicyOnFailure:
		if spec.PodFailurePolicy != nil {
			return field.ErrorList{field.Invalid(path, policy, fmt.Sprintf("only %q is supported when podFailurePolicy is specified", corev1.RestartPolicyNever))}
		}
		return nil
	}
	return field.ErrorList{field.NotSupported(path, policy, []corev1.RestartPolicy{corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever})}
}

func validateJobUpdate(spec *batchv1.JobSpec, oldJob *batchv1.Job, path *field.Path) field.ErrorList {
	old := &oldJob.Spec
	errs := validateCompletionsUpdate(spec, old, path.Child("completions"))
	errs = append(errs, rule.Immutable(spec.Selector, old.Selector, path.Child("selector"))...)
	errs = append(errs, validateTemplateUpdate(spec, oldJob, path.Child("template"))...)
	errs = append(errs, rule.Immutable(spec.CompletionMode, old.CompletionMode, path.Child("completionMode"))...)
	errs = append(errs, rule.Immutable(spec.PodFailurePolicy, old.PodFailurePolicy, path.Child("podFailurePolicy"))...)
	errs = append(errs, rule.Immutable(spec.BackoffLimitPerIndex, old.BackoffLimitPerIndex, path.Child("backoffLimitPerIndex"))...)
	errs = append(errs, rule.Immutable(spec.ManagedBy, old.ManagedBy, path.Child("managedBy"))...)
	return append(errs, rule.Immutable(spec.SuccessPolicy, old.SuccessPolicy, path.Child("successPolicy"))...)
}

// validateCompletionsUpdate lets only an indexed job be resized, and only together with its parallelism.
func validateCompletionsUpdate(spec, old *batchv1.JobSpec, path *field.Path) field.ErrorList {
	if ptr.Equal(spec.Completions, old.Completions) {
		return nil
	}
	if ptr.Deref(spec.CompletionMode, batchv1.NonIndexedCompletion) != batchv1.IndexedCompletion {
		return rule.Immutable(spec.Completions, old.Completions, path)
	}
	if spec.Completions == nil || spec.Parallelism == nil || *spec.Completions != *spec.Parallelism {
		return field.ErrorList{field.Invalid(path, spec.Completions, "can only be modified in tandem with spec.parallelism")}
	}
	return nil
}

// validateTemplateUpdate lets a suspended job with no running pods, which never started or says that it is suspended, change where its pods
// may run and what resources they ask for. Nothing else of a template ever changes.
func validateTemplateUpdate(spec *batchv1.JobSpec, oldJob *batchv1.Job, path *field.Path) field.ErrorList {
	idle := ptr.Deref(oldJob.Spec.Suspend, false) && oldJob.Status.Active == 0 &&
		(oldJob.Status.StartTime == nil || isTrue(oldJob, batchv1.JobSuspended))
	if !idle {
		return rule.Immutable(&spec.Template, &oldJob.Spec.Template, path)
	}
	allowed := oldJob.Spec.Template.DeepCopy()
	carryScheduling(&spec.Template, allowed)
	carryResources(spec.Template.Spec.Containers, allowed.Spec.Containers)
	carryResources(spec.Template.Spec.InitContainers, allowed.Spec.InitContainers)
	return rule.Immutable(&spec.Template, allowed, path)
}

func carryScheduling(from, to *corev1.PodTemplateSpec) {
	to.Labels, to.Annotations = from.Labels, from.Annotations
	to.Spec.NodeSelector, to.Spec.Tolerations, to.Spec.SchedulingGates = from.Spec.NodeSelector, from.Spec.Tolerations, from.Spec.SchedulingGates
	var node *corev1.NodeAffinity
	if from.Spec.Affinity != nil {
		node = from.Spec.Affinity.NodeAffinity
	}
	switch {
	case to.Spec.Affinity != nil:
		to.Spec.Affinity.NodeAffinity = node
		if from.Spec.Affinity == nil && *to.Spec.Affinity == (corev1.Affinity{}) {
			to.Spec.Affinity = nil
		}
	case from.Spec.Affinity != nil:
		to.Spec.Affinity = &corev1.Affinity{NodeAffinity: node}
	}
}

func carryResources(from, to []corev1.Container) {
	if len(from) != len(to) {
		return
	}
	for i := range from {
		if from[i].Name == to[i].Name {
			to[i].Resources = from[i].Resources
		}
	}
}
