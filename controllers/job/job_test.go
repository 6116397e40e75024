package job_test

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	ct "github.com/yare-project/yare/controllers/controllertest"
	"github.com/yare-project/yare/controllers/job"
	"github.com/yare-project/yare/internal/resource"
)

func newJob(change ...func(*batchv1.Job)) *batchv1.Job {
	l := map[string]string{"batch.kubernetes.io/controller-uid": "u"}
	completions, parallelism, limit := int32(1), int32(1), int32(6)
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: ct.Namespace, Name: "work"}, Spec: batchv1.JobSpec{
		Completions: &completions, Parallelism: &parallelism, BackoffLimit: &limit, Selector: &metav1.LabelSelector{MatchLabels: l},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: l},
			Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c"}}}}}}
	for _, f := range change {
		f(j)
	}
	return j
}

func size(completions, parallelism int32) func(*batchv1.Job) {
	return func(j *batchv1.Job) { j.Spec.Completions, j.Spec.Parallelism = &completions, &parallelism }
}

func indexed(j *batchv1.Job) {
	mode := batchv1.IndexedCompletion
	j.Spec.CompletionMode = &mode
}

type scene struct{ *ct.Stage }

func play(t *testing.T, j *batchv1.Job) *scene {
	s := &scene{ct.New(t, job.Descriptor()).Go()}
	s.Put(j)
	return s
}

func (s *scene) job() *batchv1.Job { return ct.Get[*batchv1.Job](s.Stage, "work") }

// running lists the pods that neither finished nor are going.
func (s *scene) running() []*corev1.Pod {
	return slices.DeleteFunc(ct.All[*corev1.Pod](s.Stage), func(p *corev1.Pod) bool {
		return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed || p.DeletionTimestamp != nil
	})
}

func (s *scene) expectRunning(n int) []*corev1.Pod {
	s.Helper()
	ct.UntilEqual(s.Stage, "running pods", n, func() int { return len(s.running()) })
	s.Settled()
	got := s.running()
	if len(got) != n {
		s.Fatalf("settled at %d running pods, want %d; %+v", len(got), n, s.job().Status)
	}
	return got
}

func (s *scene) finish(p *corev1.Pod, code int32) {
	s.Helper()
	ct.Change(s.Stage, p, func(p *corev1.Pod) {
		p.Status.Phase = corev1.PodSucceeded
		if code != 0 {
			p.Status.Phase = corev1.PodFailed
		}
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", State: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{ExitCode: code, FinishedAt: metav1.NewTime(s.Clock.Now())}}}}
	})
}

// outcome is the status as users read it.
func (s *scene) outcome() string {
	st := s.job().Status
	out := fmt.Sprintf("succeeded=%d failed=%d active=%d", st.Succeeded, st.Failed, st.Active)
	for _, c := range st.Conditions {
		if c.Status == corev1.ConditionTrue && (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed || c.Type == batchv1.JobSuspended) {
			out += fmt.Sprintf(" %s/%s", c.Type, c.Reason)
		}
	}
	return out
}

func (s *scene) expect(want string) {
	s.Helper()
	ct.UntilEqual(s.Stage, "outcome", want, s.outcome)
	s.Settled()
	if got := s.outcome(); got != want {
		s.Fatalf("settled at %q, want %q", got, want)
	}
}

func (s *scene) noneTracked() {
	s.Helper()
	for _, p := range ct.All[*corev1.Pod](s.Stage) {
		if len(p.Finalizers) > 0 {
			s.Errorf("pod %s is held by %v after the Job ended", p.Name, p.Finalizers)
		}
	}
}

func TestRunsToCompletion(t *testing.T) {
	s := play(t, newJob(size(3, 2)))
	two := s.expectRunning(2)
	s.finish(two[0], 0)
	two = s.expectRunning(2)
	s.finish(two[0], 0)
	s.finish(two[1], 0)
	s.expect("succeeded=3 failed=0 active=0 Complete/CompletionsReached")
	s.noneTracked()
	if st := s.job().Status; st.CompletionTime == nil || st.StartTime == nil {
		t.Errorf("times are not set: %+v", st)
	}
}

func TestFailuresWaitAndThenFailTheJob(t *testing.T) {
	s := play(t, newJob(func(j *batchv1.Job) { *j.Spec.BackoffLimit = 2 }))
	wait := 10 * time.Second
	for n := 1; n <= 2; n++ {
		s.finish(s.expectRunning(1)[0], 1)
		s.expectRunning(0)
		s.Clock.Step(wait - time.Second)
		s.expectRunning(0)
		s.Clock.Step(time.Second)
		wait *= 2
	}
	s.finish(s.expectRunning(1)[0], 1)
	s.expect("succeeded=0 failed=3 active=0 Failed/BackoffLimitExceeded")
	s.noneTracked()
}

func TestEveryPodIsCountedOnceDespiteFaults(t *testing.T) {
	s := play(t, newJob(size(20, 20)))
	pods := s.expectRunning(20)
	var n atomic.Int32
	s.Server.FailWith(func(verb string, ref resource.Ref, _ runtime.Object) error {
		if verb == "patch" && n.Add(1)%3 != 0 { // two of three status writes and releases fail
			return errors.New("unlucky")
		}
		return nil
	})
	for i, p := range pods {
		s.finish(p, 0)
		if i%4 == 0 { // deleted just after: the finalizer holds it until it is counted
			ct.Delete(s.Stage, p, metav1.DeleteOptions{})
		}
	}
	for range 200 {
		s.Settled()
		s.Clock.Step(time.Second)
	}
	s.Server.FailWith(nil)
	s.Clock.Step(time.Hour)
	s.expect("succeeded=20 failed=0 active=0 Complete/CompletionsReached")
	s.noneTracked()
}

func TestIndexed(t *testing.T) {
	s := play(t, newJob(size(4, 2), indexed))
	index := func(p *corev1.Pod) string { return p.Annotations["batch.kubernetes.io/job-completion-index"] }
	two := s.expectRunning(2)
	if a, b := index(two[0]), index(two[1]); a != "0" || b != "1" || two[0].Spec.Hostname != "work-0" {
		t.Fatalf("first indexes are %s and %s with host name %s", a, b, two[0].Spec.Hostname)
	}
	s.finish(two[1], 0)
	two = s.expectRunning(2)
	if index(two[1]) != "2" {
		t.Fatalf("next index is %s, want 2", index(two[1]))
	}
	s.finish(two[0], 1) // index 0 fails and is tried again
	s.Settled()
	s.Clock.Step(10 * time.Second)
	for range 3 {
		for _, p := range s.running() {
			s.finish(p, 0)
		}
		s.Settled()
	}
	s.expect("succeeded=4 failed=1 active=0 Complete/CompletionsReached")
	if got := s.job().Status.CompletedIndexes; got != "0-3" {
		t.Errorf("completed indexes %q, want 0-3", got)
	}
}

func TestBackoffLimitPerIndex(t *testing.T) {
	one := int32(1)
	s := play(t, newJob(size(2, 2), indexed, func(j *batchv1.Job) { j.Spec.BackoffLimitPerIndex = &one; *j.Spec.BackoffLimit = 1 << 30 }))
	pods := s.expectRunning(2)
	s.finish(pods[0], 0)
	s.finish(pods[1], 1)
	s.Settled()
	s.Clock.Step(10 * time.Second)
	again := s.expectRunning(1)[0]
	if again.Annotations["batch.kubernetes.io/job-index-failure-count"] != "1" {
		t.Errorf("the replacement's annotations: %v", again.Annotations)
	}
	s.finish(again, 1)
	s.expect("succeeded=1 failed=2 active=0 Failed/FailedIndexes")
	if got := s.job().Status.FailedIndexes; got == nil || *got != "1" {
		t.Errorf("failed indexes %v, want 1", got)
	}
	s.noneTracked()
}

func TestSuspendAndResume(t *testing.T) {
	s := play(t, newJob(size(2, 2)))
	s.expectRunning(2)
	ct.Change(s.Stage, s.job(), func(j *batchv1.Job) { j.Spec.Suspend = new(true) })
	s.expectRunning(0)
	ct.UntilEqual(s.Stage, "suspended", true, func() bool { return s.job().Status.StartTime == nil && s.job().Status.Active == 0 })
	ct.Change(s.Stage, s.job(), func(j *batchv1.Job) { j.Spec.Suspend = new(false) })
	s.Settled()
	s.Clock.Step(time.Minute) // the deleted pods counted as failures
	s.expectRunning(2)
	if s.job().Status.StartTime == nil {
		t.Error("a resumed Job has no start time")
	}
}

func TestDeadline(t *testing.T) {
	minute := int64(60)
	s := play(t, newJob(func(j *batchv1.Job) { j.Spec.ActiveDeadlineSeconds = &minute }))
	s.expectRunning(1)
	s.Clock.Step(time.Minute)
	s.expect("succeeded=0 failed=1 active=0 Failed/DeadlineExceeded")
}

func TestPodFailurePolicy(t *testing.T) {
	s := play(t, newJob(func(j *batchv1.Job) {
		j.Spec.PodFailurePolicy = &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{
			{Action: batchv1.PodFailurePolicyActionIgnore, OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}}},
			{Action: batchv1.PodFailurePolicyActionFailJob, OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{Operator: batchv1.PodFailurePolicyOnExitCodesOpIn, Values: []int32{42}}}}}
	}))
	p := s.expectRunning(1)[0]
	ct.Change(s.Stage, p, func(p *corev1.Pod) {
		p.Status.Phase = corev1.PodFailed
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}}
	})
	s.Settled()
	s.Clock.Step(10 * time.Second)
	p = s.expectRunning(1)[0]
	if f := s.job().Status.Failed; f != 0 {
		t.Errorf("an ignored failure was counted: failed=%d", f)
	}
	s.finish(p, 42)
	s.expect("succeeded=0 failed=1 active=0 Failed/PodFailurePolicy")
}

func TestPodsOfADeletedJobAreFreed(t *testing.T) {
	s := play(t, newJob(size(2, 2)))
	s.expectRunning(2)
	ct.Delete(s.Stage, s.job(), metav1.DeleteOptions{})
	s.Settled()
	s.noneTracked()
}

func TestAnotherManagersJobIsLeftAlone(t *testing.T) {
	s := play(t, newJob(func(j *batchv1.Job) { j.Spec.ManagedBy = new("example.com/queue") }))
	s.expectRunning(0)
}
