package cronjob

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yare-project/yare/controllers/owned"
	"github.com/yare-project/yare/internal/cron"
)

// plan is what one pass is to do.
type plan struct {
	remove    []*batchv1.Job // before anything is created
	create    *batchv1.Job
	scheduled metav1.Time // for which create is made
	status    batchv1.CronJobStatus
	events    []event
	after     time.Duration
}

type event struct{ kind, reason, message string }

type view struct {
	cron *batchv1.CronJob
	jobs []*batchv1.Job
	now  time.Time
	plan plan
}

func decide(c *batchv1.CronJob, jobs []*batchv1.Job, now time.Time) plan {
	v := &view{cron: c, jobs: jobs, now: now}
	v.plan.status = *c.Status.DeepCopy()
	v.follow()
	if c.DeletionTimestamp == nil {
		v.trim()
		v.schedule()
	}
	return v.plan
}

func (v *view) tell(kind, reason, format string, args ...any) {
	v.plan.events = append(v.plan.events, event{kind, reason, fmt.Sprintf(format, args...)})
}

func ended(j *batchv1.Job) (how batchv1.JobConditionType, yes bool) {
	for _, c := range j.Status.Conditions {
		if (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) && c.Status == corev1.ConditionTrue {
			return c.Type, true
		}
	}
	return "", false
}

// follow keeps the list of active Jobs and the time of the last success.
func (v *view) follow() {
	s := &v.plan.status
	byUID := map[types.UID]*batchv1.Job{}
	for _, j := range v.jobs {
		byUID[j.UID] = j
	}
	s.Active = slices.DeleteFunc(s.Active, func(ref corev1.ObjectReference) bool {
		j := byUID[ref.UID]
		if j == nil {
			v.tell(corev1.EventTypeNormal, "MissingJob", "Active job went missing: %s", ref.Name)
			return true
		}
		how, yes := ended(j)
		if yes {
			v.tell(corev1.EventTypeNormal, "SawCompletedJob", "Saw completed job: %s, condition: %s", j.Name, how)
		}
		return yes
	})
	for _, j := range v.jobs {
		how, yes := ended(j)
		listed := slices.ContainsFunc(s.Active, func(ref corev1.ObjectReference) bool { return ref.UID == j.UID })
		switch {
		case !yes && !listed && j.DeletionTimestamp == nil:
			v.tell(corev1.EventTypeWarning, "UnexpectedJob", "Saw a job that the controller did not create or forgot: %s", j.Name)
		case yes && how == batchv1.JobComplete && j.Status.CompletionTime != nil:
			if s.LastSuccessfulTime == nil || j.Status.CompletionTime.After(s.LastSuccessfulTime.Time) {
				s.LastSuccessfulTime = j.Status.CompletionTime
			}
		}
	}
	if len(s.Active) == 0 {
		s.Active = nil
	}
}

// trim deletes the oldest finished Jobs beyond the history limits.
func (v *view) trim() {
	for how, limit := range map[batchv1.JobConditionType]*int32{batchv1.JobComplete: v.cron.Spec.SuccessfulJobsHistoryLimit, batchv1.JobFailed: v.cron.Spec.FailedJobsHistoryLimit} {
		if limit == nil {
			continue
		}
		var done []*batchv1.Job
		for _, j := range v.jobs {
			if h, yes := ended(j); yes && h == how && j.DeletionTimestamp == nil {
				done = append(done, j)
			}
		}
		slices.SortFunc(done, func(a, b *batchv1.Job) int {
			if t := startOf(a).Compare(startOf(b)); t != 0 {
				return t
			}
			return strings.Compare(a.Name, b.Name)
		})
		v.plan.remove = append(v.plan.remove, done[:max(0, len(done)-int(*limit))]...)
	}
}

func startOf(j *batchv1.Job) time.Time {
	if j.Status.StartTime != nil {
		return j.Status.StartTime.Time
	}
	return j.CreationTimestamp.Time
}

// schedule decides whether a Job is due, and sets when to look again.
func (v *view) schedule() {
	zone := time.Local
	if name := v.cron.Spec.TimeZone; name != nil {
		loaded, err := time.LoadLocation(*name)
		if err != nil {
			v.tell(corev1.EventTypeWarning, "UnknownTimeZone", "invalid timeZone: %q: %s", *name, err)
			return
		}
		zone = loaded
	}
	if v.cron.Spec.Suspend != nil && *v.cron.Spec.Suspend {
		return
	}
	s, err := cron.Parse(v.cron.Spec.Schedule)
	if err != nil {
		v.tell(corev1.EventTypeWarning, "UnparseableSchedule", "unparseable schedule: %q : %s", v.cron.Spec.Schedule, err)
		return
	}
	now := v.now.In(zone)
	next := s.Next(now)
	if next.IsZero() {
		v.tell(corev1.EventTypeWarning, "InvalidSchedule", "invalid schedule: %s : no time ever matches it", v.cron.Spec.Schedule)
		return
	}
	v.plan.after = next.Sub(now)
	if due, missed := v.due(s, now); !due.IsZero() {
		if missed > 100 {
			v.tell(corev1.EventTypeWarning, "TooManyMissedTimes", "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew")
		}
		v.startAt(due)
	}
}

// due is the latest time of the schedule that passed since the last one that was served, and roughly how many there were. Zero: none.
func (v *view) due(s *cron.Schedule, now time.Time) (time.Time, int) {
	since := v.cron.CreationTimestamp.Time
	if last := v.cron.Status.LastScheduleTime; last != nil {
		since = last.Time
	}
	if d := v.cron.Spec.StartingDeadlineSeconds; d != nil {
		if bound := now.Add(-time.Duration(*d) * time.Second); bound.After(since) {
			since = bound
		}
	}
	var latest time.Time
	missed := 0
	for at := s.Next(since.In(now.Location())); !at.IsZero() && !at.After(now); at = s.Next(at) {
		latest = at
		if missed++; missed == 101 { // walking a minutely schedule of years would take too long: leap, by whole steps, to close before now
			if step := s.Next(at).Sub(at); step > 0 {
				at = at.Add(max(0, now.Sub(at)/step-2) * step)
			}
		}
	}
	return latest, missed
}

// startAt makes the Job of a time that is due, as the concurrency policy allows.
func (v *view) startAt(due time.Time) {
	name := fmt.Sprintf("%s-%d", v.cron.Name, due.Unix()/60)
	s := &v.plan.status
	if s.LastScheduleTime != nil && !s.LastScheduleTime.Time.Before(due) || slices.ContainsFunc(s.Active, func(ref corev1.ObjectReference) bool { return ref.Name == name }) {
		return
	}
	if len(s.Active) > 0 {
		switch v.cron.Spec.ConcurrencyPolicy {
		case batchv1.ForbidConcurrent:
			v.tell(corev1.EventTypeNormal, "JobAlreadyActive", "Not starting job because prior execution is running and concurrency policy is Forbid")
			return
		case batchv1.ReplaceConcurrent:
			for _, j := range v.jobs {
				if slices.ContainsFunc(s.Active, func(ref corev1.ObjectReference) bool { return ref.UID == j.UID }) {
					v.plan.remove = append(v.plan.remove, j)
				}
			}
			s.Active = nil
		}
	}
	v.plan.scheduled = metav1.NewTime(due)
	v.plan.create = v.job(name, due)
}

func (v *view) job(name string, due time.Time) *batchv1.Job {
	t := v.cron.Spec.JobTemplate.DeepCopy()
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: v.cron.Namespace, Name: name, Labels: maps.Clone(t.Labels), Annotations: maps.Clone(t.Annotations),
		CreationTimestamp: metav1.NewTime(due), OwnerReferences: []metav1.OwnerReference{*owned.Owner(v.cron, kind)}}, Spec: t.Spec}
	if j.Annotations == nil {
		j.Annotations = map[string]string{}
	}
	j.Annotations[batchv1.CronJobScheduledTimestampAnnotation] = due.Format(time.RFC3339)
	return j
}
