package job

import (
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yare-project/yare/controllers/pod"
)

// verdict decides whether the Job has ended and how: by FailureTarget or SuccessCriteriaMet. One that stands is not revised.
func (v *view) verdict() *batchv1.JobCondition {
	for _, t := range []batchv1.JobConditionType{batchv1.JobSuccessCriteriaMet, batchv1.JobFailureTarget} {
		if c := find(v.job.Status.Conditions, t); c != nil {
			return c
		}
	}
	switch limit := v.job.Spec.BackoffLimit; {
	case v.failJob != "":
		return v.condition(batchv1.JobFailureTarget, batchv1.JobReasonPodFailurePolicy, v.failJob)
	case limit != nil && (v.failures() > *limit || v.restartsTooOften(*limit)):
		return v.condition(batchv1.JobFailureTarget, batchv1.JobReasonBackoffLimitExceeded, "Job has reached the specified backoff limit")
	case v.pastDeadline():
		return v.condition(batchv1.JobFailureTarget, batchv1.JobReasonDeadlineExceeded, "Job was active longer than specified deadline")
	}
	if c := v.indexVerdict(); c != nil {
		return c
	}
	if v.complete() {
		return v.condition(batchv1.JobSuccessCriteriaMet, batchv1.JobReasonCompletionsReached, "Reached expected number of succeeded pods")
	}
	return nil
}

func (v *view) condition(t batchv1.JobConditionType, reason, message string) *batchv1.JobCondition {
	now := metav1.NewTime(v.now)
	return &batchv1.JobCondition{Type: t, Status: corev1.ConditionTrue, Reason: reason, Message: message, LastProbeTime: now, LastTransitionTime: now}
}

func (v *view) indexVerdict() *batchv1.JobCondition {
	if v.perIndex() {
		if most := v.job.Spec.MaxFailedIndexes; most != nil && len(v.failed) > int(*most) {
			return v.condition(batchv1.JobFailureTarget, batchv1.JobReasonMaxFailedIndexesExceeded, "Job has exceeded the specified maximal number of failed indexes")
		}
		if len(v.failed) > 0 && len(v.failed)+len(v.succeeded) >= v.total {
			return v.condition(batchv1.JobFailureTarget, batchv1.JobReasonFailedIndexes, "Job has failed indexes")
		}
	}
	if v.indexed {
		if message, met := succeedsEarly(v.job.Spec.SuccessPolicy, v.succeeded, v.total); met {
			return v.condition(batchv1.JobSuccessCriteriaMet, batchv1.JobReasonSuccessPolicy, message)
		}
	}
	return nil
}

func (v *view) complete() bool {
	if v.total < 0 {
		return v.successes() > 0 && len(v.active) == 0
	}
	return v.successes() >= v.total && len(v.active) == 0
}

// restartsTooOften applies the limit to containers that are restarted in their pods.
func (v *view) restartsTooOften(limit int32) bool {
	if v.job.Spec.Template.Spec.RestartPolicy != corev1.RestartPolicyOnFailure {
		return false
	}
	n := restarts(v.active)
	if limit == 0 {
		return n > 0
	}
	return n >= limit
}

func (v *view) pastDeadline() bool {
	if v.job.Spec.ActiveDeadlineSeconds == nil || v.plan.status.StartTime == nil || v.suspended() {
		return false
	}
	left := v.plan.status.StartTime.Add(time.Duration(*v.job.Spec.ActiveDeadlineSeconds) * time.Second).Sub(v.now)
	if left > 0 {
		v.plan.after = earlier(v.plan.after, left)
	}
	return left <= 0
}

// end deletes the pods that still run and, once none is left and all are counted, turns the verdict into Complete or Failed.
func (v *view) end(verdict *batchv1.JobCondition) {
	s := &v.plan.status
	if !is(s.Conditions, verdict.Type) {
		s.Conditions = append(s.Conditions, *verdict)
	}
	v.plan.after = 0
	v.delete(v.active[:min(len(v.active), burst)])
	u := s.UncountedTerminatedPods
	terminating := slices.ContainsFunc(v.pods, pod.Terminating)
	if len(v.plan.remove) > 0 || len(v.active) > 0 || terminating || len(v.plan.untrack) > 0 || len(u.Succeeded) > 0 || len(u.Failed) > 0 {
		return
	}
	final := v.condition(batchv1.JobFailed, verdict.Reason, verdict.Message)
	e := event{corev1.EventTypeWarning, verdict.Reason, verdict.Message}
	if verdict.Type == batchv1.JobSuccessCriteriaMet {
		final.Type = batchv1.JobComplete
		now := metav1.NewTime(v.now)
		s.CompletionTime = &now
		e = event{corev1.EventTypeNormal, "Completed", "Job completed"}
	}
	s.Conditions = append(s.Conditions, *final)
	v.plan.events = append(v.plan.events, e)
}

// suspension notes that the Job was suspended or resumed. A Job that never was has no such condition.
func (v *view) suspension() {
	s := &v.plan.status
	i := slices.IndexFunc(s.Conditions, func(c batchv1.JobCondition) bool { return c.Type == batchv1.JobSuspended })
	was := i >= 0 && s.Conditions[i].Status == corev1.ConditionTrue
	if was == v.suspended() {
		return
	}
	c := v.condition(batchv1.JobSuspended, "JobSuspended", "Job suspended")
	e := event{corev1.EventTypeNormal, "Suspended", "Job suspended"}
	if v.suspended() {
		s.StartTime = nil
	} else {
		c.Status, c.Reason, c.Message = corev1.ConditionFalse, "JobResumed", "Job resumed"
		e = event{corev1.EventTypeNormal, "Resumed", "Job resumed"}
		now := metav1.NewTime(v.now)
		s.StartTime = &now // the deadline counts from here
	}
	if i >= 0 {
		s.Conditions[i] = *c
	} else {
		s.Conditions = append(s.Conditions, *c)
	}
	v.plan.events = append(v.plan.events, e)
}
