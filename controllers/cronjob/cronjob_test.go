package cronjob_test

import (
	"slices"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	ct "github.com/yare-project/yare/controllers/controllertest"
	"github.com/yare-project/yare/controllers/cronjob"
	"github.com/yare-project/yare/controllers/ttl"
)

type scene struct{ *ct.Stage }

// play starts at midnight with a CronJob that fires every ten minutes.
func play(t *testing.T, change ...func(*batchv1.CronJob)) *scene {
	s := &scene{ct.New(t, cronjob.Descriptor(), ttl.Descriptor()).Go()}
	c := &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Namespace: ct.Namespace, Name: "tick"}, Spec: batchv1.CronJobSpec{
		Schedule: "*/10 * * * *", TimeZone: new("UTC"), ConcurrencyPolicy: batchv1.AllowConcurrent,
		JobTemplate: batchv1.JobTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}}}}}
	for _, f := range change {
		f(c)
	}
	s.Put(c)
	s.Settled()
	return s
}

func (s *scene) cron() *batchv1.CronJob { return ct.Get[*batchv1.CronJob](s.Stage, "tick") }

// jobs lists the times for which Jobs exist.
func (s *scene) jobs() []string {
	out := []string{}
	for _, j := range ct.All[*batchv1.Job](s.Stage) {
		out = append(out, j.Annotations["batch.kubernetes.io/cronjob-scheduled-timestamp"][11:16])
	}
	slices.Sort(out)
	return out
}

func (s *scene) expect(what string, want ...string) {
	s.Helper()
	if want == nil {
		want = []string{}
	}
	ct.UntilEqual(s.Stage, what, want, s.jobs)
	s.Settled()
	if got := s.jobs(); !slices.Equal(got, want) {
		s.Fatalf("%s: settled at %v, want %v", what, got, want)
	}
}

func (s *scene) finish(how batchv1.JobConditionType) {
	for _, j := range ct.All[*batchv1.Job](s.Stage) {
		if len(j.Status.Conditions) == 0 {
			ct.Change(s.Stage, j, func(j *batchv1.Job) {
				now := metav1.NewTime(s.Clock.Now())
				j.Status.Conditions = []batchv1.JobCondition{{Type: how, Status: corev1.ConditionTrue, LastTransitionTime: now}}
				j.Status.StartTime = &now
				if how == batchv1.JobComplete {
					j.Status.CompletionTime = &now
				}
			})
		}
	}
	s.Settled()
}

func TestFiresOnTime(t *testing.T) {
	s := play(t)
	s.Clock.Step(9 * time.Minute)
	s.expect("not yet")
	s.Clock.Step(time.Minute)
	s.expect("first", "00:10")
	j := ct.All[*batchv1.Job](s.Stage)[0]
	if !metav1.IsControlledBy(j, s.cron()) || j.Labels["a"] != "b" || j.Name != "tick-29453770" {
		t.Errorf("job is %+v", j.ObjectMeta)
	}
	st := s.cron().Status
	if len(st.Active) != 1 || st.LastScheduleTime == nil || !st.LastScheduleTime.Time.Equal(ct.Start.Add(10*time.Minute)) {
		t.Errorf("status is %+v", st)
	}
	s.finish(batchv1.JobComplete)
	ct.UntilEqual(s.Stage, "success is noted", true, func() bool { st := s.cron().Status; return len(st.Active) == 0 && st.LastSuccessfulTime != nil })
	s.Clock.Step(35 * time.Minute)
	s.expect("of several that were missed, the latest", "00:10", "00:40")
}

func TestConcurrency(t *testing.T) {
	for policy, want := range map[batchv1.ConcurrencyPolicy][]string{
		batchv1.AllowConcurrent: {"00:10", "00:20"}, batchv1.ForbidConcurrent: {"00:10"}, batchv1.ReplaceConcurrent: {"00:20"}} {
		t.Run(string(policy), func(t *testing.T) {
			s := play(t, func(c *batchv1.CronJob) { c.Spec.ConcurrencyPolicy = policy })
			s.Clock.Step(10 * time.Minute)
			s.expect("first", "00:10")
			s.Clock.Step(10 * time.Minute)
			s.expect("second", want...)
		})
	}
}

func TestSuspendZoneAndHistory(t *testing.T) {
	one := int32(1)
	s := play(t, func(c *batchv1.CronJob) {
		c.Spec.Suspend, c.Spec.SuccessfulJobsHistoryLimit = new(true), &one
		c.Spec.Schedule, c.Spec.TimeZone = "30 1 * * *", new("Europe/Paris") // 00:30 UTC in winter
	})
	s.Clock.Step(time.Hour)
	s.expect("suspended")
	ct.Change(s.Stage, s.cron(), func(c *batchv1.CronJob) { c.Spec.Suspend = new(false) })
	s.expect("made up for, in its zone", "01:30")
	s.finish(batchv1.JobComplete)
	s.Clock.Step(24 * time.Hour)
	s.Settled()
	s.finish(batchv1.JobComplete)
	ct.UntilEqual(s.Stage, "one is kept", 1, func() int { return len(ct.All[*batchv1.Job](s.Stage)) })
}

func TestTooLateIsNotMadeUpFor(t *testing.T) {
	minute := int64(60)
	s := play(t, func(c *batchv1.CronJob) { c.Spec.StartingDeadlineSeconds, c.Spec.Suspend = &minute, new(true) })
	s.Clock.Step(15 * time.Minute)
	ct.Change(s.Stage, s.cron(), func(c *batchv1.CronJob) { c.Spec.Suspend = new(false) })
	s.expect("nothing")
	s.Clock.Step(5 * time.Minute)
	s.expect("the next one", "00:20")
}

func TestLongAbsence(t *testing.T) {
	s := play(t, func(c *batchv1.CronJob) {
		c.Spec.Schedule = "* * * * *"
		c.CreationTimestamp = metav1.NewTime(ct.Start.Add(-10 * 365 * 24 * time.Hour))
	})
	s.expect("the latest minute", "00:00")
}

func TestTTL(t *testing.T) {
	hour := int32(3600)
	s := play(t, func(c *batchv1.CronJob) { c.Spec.JobTemplate.Spec.TTLSecondsAfterFinished = &hour })
	s.Clock.Step(10 * time.Minute)
	s.expect("one", "00:10")
	ct.Change(s.Stage, s.cron(), func(c *batchv1.CronJob) { c.Spec.Suspend = new(true) })
	s.finish(batchv1.JobFailed)
	s.Clock.Step(59 * time.Minute)
	s.Settled()
	if j := ct.All[*batchv1.Job](s.Stage); len(j) != 1 || j[0].DeletionTimestamp != nil {
		t.Fatal("the Job was deleted before its time")
	}
	s.Clock.Step(time.Minute)
	ct.UntilEqual(s.Stage, "deleted in the foreground", true, func() bool { return ct.All[*batchv1.Job](s.Stage)[0].DeletionTimestamp != nil })
}
