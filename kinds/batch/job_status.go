package batch

import (
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/kinds/rule"
)

// validateJobStatus keeps the promises of a Job's status: a job that ended stays ended, counters don't go back, and how it ended agrees with
// the conditions that lead there. Most rules hold only what a write changes, so that a status that broke one can still be repaired.
func validateJobStatus(j, old *batchv1.Job) field.ErrorList {
	path := field.NewPath("status")
	errs := validateCounters(&j.Status, path)
	if old == nil {
		return append(errs, validateConditions(j, path)...)
	}
	errs = append(errs, validateConditions(j, path)...)
	errs = append(errs, validateTransition(j, old, path)...)
	errs = append(errs, validateTimes(j, old, path)...)
	return append(errs, validateIndexes(j, old, path)...)
}

func validateCounters(s *batchv1.JobStatus, path *field.Path) field.ErrorList {
	errs := rule.NonNegative(s.Active, path.Child("active"))
	errs = append(errs, rule.NonNegative(s.Succeeded, path.Child("succeeded"))...)
	errs = append(errs, rule.NonNegative(s.Failed, path.Child("failed"))...)
	errs = append(errs, rule.NonNegativePtr(s.Ready, path.Child("ready"))...)
	errs = append(errs, rule.NonNegativePtr(s.Terminating, path.Child("terminating"))...)
	if s.UncountedTerminatedPods == nil {
		return errs
	}
	seen := map[types.UID]bool{}
	check := func(uids []types.UID, at *field.Path) {
		for i, uid := range uids {
			switch {
			case uid == "":
				errs = append(errs, field.Invalid(at.Index(i), uid, "must not be empty"))
			case seen[uid]:
				errs = append(errs, field.Duplicate(at.Index(i), uid))
			}
			seen[uid] = true
		}
	}
	check(s.UncountedTerminatedPods.Succeeded, path.Child("uncountedTerminatedPods", "succeeded"))
	check(s.UncountedTerminatedPods.Failed, path.Child("uncountedTerminatedPods", "failed"))
	return errs
}

func finished(j *batchv1.Job) bool {
	return isTrue(j, batchv1.JobComplete) || isTrue(j, batchv1.JobFailed)
}

func validateConditions(j *batchv1.Job, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	at := path.Child("conditions")
	refuse := func(when bool, detail string) {
		if when {
			errs = append(errs, field.Invalid(at, field.OmitValueType{}, detail))
		}
	}
	complete, failed := isTrue(j, batchv1.JobComplete), isTrue(j, batchv1.JobFailed)
	criteria, target := isTrue(j, batchv1.JobSuccessCriteriaMet), isTrue(j, batchv1.JobFailureTarget)
	refuse(complete && failed, "cannot set Complete=True and Failed=true conditions")
	refuse(complete && target, "cannot set Complete=True and FailureTarget=true conditions")
	refuse(criteria && failed, "cannot set SuccessCriteriaMet=True and Failed=true conditions")
	refuse(criteria && target, "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions")
	return errs
}

// validateTransition judges what a write changes of conditions and counters.
func validateTransition(j, old *batchv1.Job, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	conditions := path.Child("conditions")
	refuse := func(when bool, at *field.Path, value any, detail string) {
		if when {
			errs = append(errs, field.Invalid(at, value, detail))
		}
	}
	none := field.OmitValueType{}
	for _, c := range []batchv1.JobConditionType{batchv1.JobFailed, batchv1.JobComplete, batchv1.JobFailureTarget} {
		refuse(isTrue(old, c) && !isTrue(j, c), conditions, none, fmt.Sprintf("cannot disable the terminal %s=True condition", c))
	}
	criteria, hadCriteria := isTrue(j, batchv1.JobSuccessCriteriaMet), isTrue(old, batchv1.JobSuccessCriteriaMet)
	complete, wasComplete := isTrue(j, batchv1.JobComplete), isTrue(old, batchv1.JobComplete)
	failed, hadFailed := isTrue(j, batchv1.JobFailed), isTrue(old, batchv1.JobFailed)
	refuse(hadCriteria && !criteria, conditions, none, "cannot disable the SuccessCriteriaMet=True condition")
	refuse(wasComplete && !hadCriteria && criteria, conditions, none, "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions")
	refuse((complete != wasComplete || criteria != hadCriteria) && complete && !criteria, conditions, none,
		"cannot set Complete=True condition without the SuccessCriteriaMet=true condition")
	refuse((failed != hadFailed) && failed && !isTrue(j, batchv1.JobFailureTarget), conditions, none,
		"cannot set Failed=True condition without the FailureTarget=true condition")

	s, was := &j.Status, &old.Status
	done, doneChanged := finished(j), finished(j) != finished(old)
	refuse(s.Failed < was.Failed, path.Child("failed"), s.Failed, "cannot decrease the failed counter")
	// An indexed job that is scaled down loses the successes of the indexes that went.
	resizable := ptr.Deref(j.Spec.CompletionMode, "") == batchv1.IndexedCompletion && ptr.Equal(j.Spec.Completions, j.Spec.Parallelism)
	refuse(!resizable && s.Succeeded < was.Succeeded, path.Child("succeeded"), s.Succeeded, "cannot decrease the succeeded counter")
	refuse(done && s.Active > 0 && (doneChanged || s.Active != was.Active), path.Child("active"), s.Active, "active>0 is invalid for finished job")
	refuse(done && ptr.Deref(s.Terminating, 0) > 0 && (doneChanged || !ptr.Equal(s.Terminating, was.Terminating)),
		path.Child("terminating"), s.Terminating, "terminating>0 is invalid for finished job")
	refuse(s.Ready != nil && *s.Ready > s.Active && (!ptr.Equal(s.Ready, was.Ready) || s.Active != was.Active),
		path.Child("ready"), ptr.Deref(s.Ready, 0), "cannot set more ready pods than active")
	uncounted := s.UncountedTerminatedPods
	refuse(done && uncounted != nil && len(uncounted.Failed)+len(uncounted.Succeeded) > 0 &&
		(doneChanged || !equality.Semantic.DeepEqual(uncounted, was.UncountedTerminatedPods)),
		path.Child("uncountedTerminatedPods"), uncounted, "must be empty for finished job")
	return errs
}

func validateTimes(j, old *batchv1.Job, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	s, was := &j.Status, &old.Status
	startPath, endPath := path.Child("startTime"), path.Child("completionTime")
	startChanged, endChanged := !s.StartTime.Equal(was.StartTime), !s.CompletionTime.Equal(was.CompletionTime)
	complete := isTrue(j, batchv1.JobComplete)
	completeChanged := complete != isTrue(old, batchv1.JobComplete)
	if completeChanged || endChanged {
		if s.CompletionTime != nil && !complete {
			errs = append(errs, field.Invalid(endPath, s.CompletionTime, "cannot set completionTime when there is no Complete=True condition"))
		}
		if s.CompletionTime == nil && complete {
			errs = append(errs, field.Required(endPath, "completionTime is required for Complete jobs"))
		}
	}
	if endChanged && s.CompletionTime != nil && was.CompletionTime != nil {
		errs = append(errs, field.Invalid(endPath, s.CompletionTime, "field is immutable"))
	}
	if (startChanged || endChanged) && s.StartTime != nil && s.CompletionTime != nil && s.CompletionTime.Before(s.StartTime) {
		errs = append(errs, field.Invalid(endPath, s.CompletionTime, "must be equal to or after `startTime`"))
	}
	suspended := ptr.Deref(j.Spec.Suspend, false)
	neverRan := suspended && ptr.Equal(j.Spec.Completions, ptr.To[int32](0))
	if s.StartTime == nil && finished(j) && (finished(j) != finished(old) || startChanged) && !neverRan {
		errs = append(errs, field.Required(startPath, "startTime is required for finished job"))
	}
	resuming := isTrue(old, batchv1.JobSuspended) && !isTrue(j, batchv1.JobSuspended)
	if startChanged && was.StartTime != nil && !suspended && !resuming {
		errs = append(errs, field.Invalid(startPath, s.StartTime, "field is immutable for unsuspended job once set"))
	}
	return errs
}

// validateIndexes checks the lists of indexes that completed and failed.
func validateIndexes(j, old *batchv1.Job, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	s, was := &j.Status, &old.Status
	completedChanged, failedChanged := s.CompletedIndexes != was.CompletedIndexes, !ptr.Equal(s.FailedIndexes, was.FailedIndexes)
	completedPath, failedPath := path.Child("completedIndexes"), path.Child("failedIndexes")
	completions, failedText := ptr.Deref(j.Spec.Completions, 0), ptr.Deref(s.FailedIndexes, "")
	completed, completedErr := parseIndexes(s.CompletedIndexes, completions)
	failed, failedErr := parseIndexes(failedText, completions)
	if completedChanged {
		if j.Spec.Completions != nil && completedErr != nil {
			errs = append(errs, field.Invalid(completedPath, s.CompletedIndexes, fmt.Sprintf("error parsing completedIndexes: %s", completedErr)))
		}
		if s.CompletedIndexes != "" && ptr.Deref(j.Spec.CompletionMode, "") != batchv1.IndexedCompletion {
			errs = append(errs, field.Invalid(completedPath, s.CompletedIndexes, "cannot set non-empty completedIndexes when non-indexed completion mode"))
		}
	}
	if failedChanged && s.FailedIndexes != nil {
		switch {
		case j.Spec.BackoffLimitPerIndex == nil:
			errs = append(errs, field.Invalid(failedPath, failedText, "cannot set non-null failedIndexes when backoffLimitPerIndex is null"))
		case j.Spec.Completions != nil && failedErr != nil:
			errs = append(errs, field.Invalid(failedPath, failedText, fmt.Sprintf("error parsing failedIndexes: %s", failedErr)))
		}
	}
	if (completedChanged || failedChanged) && completedErr == nil && failedErr == nil && completed.overlaps(failed) {
		errs = append(errs, field.Invalid(failedPath, failedText, "failedIndexes and completedIndexes overlap"))
	}
	return errs
}
