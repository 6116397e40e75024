package job

import (
	"cmp"
	"maps"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yare-project/yare/controllers/pod"
)

// The wait before a failed pod is replaced doubles from the first to the longest; so does Kubernetes'.
const (
	firstDelay   = 10 * time.Second
	longestDelay = 10 * time.Minute
	// burst bounds the pods that one pass makes, deletes or counts.
	burst = 500
)

// plan is what one pass is to do.
type plan struct {
	create  []replica
	remove  []*corev1.Pod
	untrack []*corev1.Pod // counted by status, once that is written
	status  batchv1.JobStatus
	after   time.Duration
	events  []event
}

type event struct{ kind, reason, message string }

// view is a pass's picture of a Job.
type view struct {
	job       *batchv1.Job
	now       time.Time
	pods      []*corev1.Pod
	active    []*corev1.Pod
	indexed   bool
	total     int // completions; -1 when any success is enough
	succeeded indexes
	failed    indexes // for backoffLimitPerIndex
	failJob   string  // why the pod failure policy ends the Job
	plan      plan
}

// decide is one pass over a Job.
func decide(j *batchv1.Job, pods []*corev1.Pod, now time.Time) plan {
	v := newView(j, pods, now)
	if finished(j) {
		v.letAllGo()
		return v.plan
	}
	v.countFinished()
	v.start()
	if ends := v.verdict(); ends != nil {
		v.end(ends)
	} else if j.DeletionTimestamp == nil {
		v.manage()
		v.suspension()
	}
	v.summarize()
	return v.plan
}

func newView(j *batchv1.Job, pods []*corev1.Pod, now time.Time) *view {
	v := &view{job: j, now: now, pods: pods, total: -1, succeeded: indexes{}, failed: indexes{}}
	v.plan.status = *j.Status.DeepCopy()
	if v.plan.status.UncountedTerminatedPods == nil {
		v.plan.status.UncountedTerminatedPods = &batchv1.UncountedTerminatedPods{}
	}
	if j.Spec.Completions != nil {
		v.total = int(*j.Spec.Completions)
	}
	if v.indexed = j.Spec.CompletionMode != nil && *j.Spec.CompletionMode == batchv1.IndexedCompletion; v.indexed {
		v.succeeded = parseIndexes(j.Status.CompletedIndexes, v.total)
		if j.Status.FailedIndexes != nil {
			v.failed = parseIndexes(*j.Status.FailedIndexes, v.total)
		}
	}
	for _, p := range pods {
		if pod.Active(p) {
			v.active = append(v.active, p)
		}
	}
	return v
}

func finished(j *batchv1.Job) bool {
	return is(j.Status.Conditions, batchv1.JobComplete) || is(j.Status.Conditions, batchv1.JobFailed)
}

func is(conditions []batchv1.JobCondition, t batchv1.JobConditionType) bool {
	return find(conditions, t) != nil
}

func find(conditions []batchv1.JobCondition, t batchv1.JobConditionType) *batchv1.JobCondition {
	for i := range conditions {
		if conditions[i].Type == t && conditions[i].Status == corev1.ConditionTrue {
			return &conditions[i]
		}
	}
	return nil
}

// letAllGo releases the pods of a finished Job.
func (v *view) letAllGo() {
	v.plan.status = v.job.Status
	for _, p := range v.pods {
		if tracked(p) {
			v.plan.untrack = append(v.plan.untrack, p)
		}
	}
}

// countFinished takes every finished pod into the status once. A pod's uid stands in uncountedTerminatedPods from before its finalizer goes until after;
// then the number takes its place. The index of a success stands in completedIndexes instead.
func (v *view) countFinished() {
	u := v.plan.status.UncountedTerminatedPods
	held := map[types.UID]bool{}
	for _, p := range v.pods {
		held[p.UID] = tracked(p)
	}
	flush := func(uids []types.UID, into *int32) []types.UID {
		return slices.DeleteFunc(uids, func(uid types.UID) bool {
			if !held[uid] {
				*into++
			}
			return !held[uid]
		})
	}
	u.Succeeded, u.Failed = flush(u.Succeeded, &v.plan.status.Succeeded), flush(u.Failed, &v.plan.status.Failed)
	for _, p := range v.pods {
		if tracked(p) && len(v.plan.untrack) < burst {
			v.countPod(p, u)
		}
	}
	if v.perIndex() {
		v.countFailedIndexes()
	}
}

func (v *view) countPod(p *corev1.Pod, u *batchv1.UncountedTerminatedPods) {
	index, ok := indexOf(p, v.total)
	switch {
	case v.job.DeletionTimestamp != nil:
		v.plan.untrack = append(v.plan.untrack, p) // its numbers interest nobody any more
	case p.Status.Phase == corev1.PodSucceeded:
		if v.indexed && ok {
			v.succeeded[index] = true
		} else if !v.indexed && !slices.Contains(u.Succeeded, p.UID) {
			u.Succeeded = append(u.Succeeded, p.UID)
		}
		v.plan.untrack = append(v.plan.untrack, p)
	case failed(v.job, p):
		g := judge(v.job.Spec.PodFailurePolicy, p)
		if g.action == batchv1.PodFailurePolicyActionFailJob {
			v.failJob = g.message
		}
		if !g.ignores() && !slices.Contains(u.Failed, p.UID) {
			u.Failed = append(u.Failed, p.UID)
		}
		if !v.perIndex() || !ok || v.replaced(p, index) {
			v.plan.untrack = append(v.plan.untrack, p)
		}
	}
}

func (v *view) perIndex() bool { return v.indexed && v.job.Spec.BackoffLimitPerIndex != nil }

// replaced tells whether another pod remembers the failures of p's index, or nobody needs to.
func (v *view) replaced(p *corev1.Pod, index int) bool {
	return v.succeeded[index] || v.failed[index] || v.judgedHopeless(p) || slices.ContainsFunc(v.pods, func(other *corev1.Pod) bool {
		i, ok := indexOf(other, v.total)
		return ok && i == index && count(other, failureCount)+count(other, ignoredFailureCount) > count(p, failureCount)+count(p, ignoredFailureCount)
	})
}

// judgedHopeless tells whether p's failure fails its index.
func (v *view) judgedHopeless(p *corev1.Pod) bool {
	g := judge(v.job.Spec.PodFailurePolicy, p)
	return g.action == batchv1.PodFailurePolicyActionFailIndex || !g.ignores() && count(p, failureCount) >= int(*v.job.Spec.BackoffLimitPerIndex)
}

func (v *view) countFailedIndexes() {
	for _, p := range v.pods {
		if index, ok := indexOf(p, v.total); ok && failed(v.job, p) && !v.succeeded[index] && v.judgedHopeless(p) {
			v.failed[index] = true
		}
	}
}

func (v *view) start() {
	if v.plan.status.StartTime == nil && !v.suspended() {
		now := metav1.NewTime(v.now)
		v.plan.status.StartTime = &now
	}
}

func (v *view) suspended() bool { return v.job.Spec.Suspend != nil && *v.job.Spec.Suspend }

func (v *view) successes() int {
	if v.indexed {
		return len(v.succeeded)
	}
	return int(v.plan.status.Succeeded) + len(v.plan.status.UncountedTerminatedPods.Succeeded)
}

func (v *view) failures() int32 {
	return v.plan.status.Failed + int32(len(v.plan.status.UncountedTerminatedPods.Failed))
}

// manage brings the number of running pods to what it should be.
func (v *view) manage() {
	running := len(v.active)
	if !v.suspended() && waitsForFailed(v.job) {
		for _, p := range v.pods {
			if pod.Terminating(p) {
				running++
			}
		}
	}
	want := v.wanted(running)
	if v.suspended() {
		want = 0
	}
	switch {
	case running > want:
		v.shrink(min(running-want, len(v.active), burst))
	case running < want:
		v.grow(min(want-running, burst))
	}
}

func (v *view) wanted(running int) int {
	parallelism := 1
	if v.job.Spec.Parallelism != nil {
		parallelism = int(*v.job.Spec.Parallelism)
	}
	if v.total >= 0 {
		return max(0, min(v.total-v.successes()-len(v.failed), parallelism))
	}
	if v.successes() > 0 {
		return min(running, parallelism) // the others may finish, and nobody takes their place
	}
	return parallelism
}

func (v *view) shrink(n int) {
	candidates := slices.Clone(v.active)
	if v.indexed { // doubles of an index first, then the highest
		seen := map[int]bool{}
		slices.SortStableFunc(candidates, func(a, b *corev1.Pod) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
		rank := map[types.UID]int{}
		for _, p := range candidates {
			index, ok := indexOf(p, v.total)
			if rank[p.UID] = -index; !ok || seen[index] || v.succeeded[index] {
				rank[p.UID] = -1 << 30
			}
			seen[index] = true
		}
		slices.SortStableFunc(candidates, func(a, b *corev1.Pod) int { return cmp.Compare(rank[a.UID], rank[b.UID]) })
	} else {
		pod.RankForDeletion(candidates, nil, v.now)
	}
	v.delete(candidates[:n])
}

func (v *view) delete(pods []*corev1.Pod) {
	v.plan.remove = append(v.plan.remove, pods...)
	v.active = slices.DeleteFunc(v.active, func(p *corev1.Pod) bool { return slices.Contains(pods, p) })
}

func (v *view) grow(n int) {
	if v.indexed {
		v.growIndexes(n)
		return
	}
	if wait := v.delay(v.pods); wait > 0 {
		v.plan.after = earlier(v.plan.after, wait)
		return
	}
	for range n {
		v.plan.create = append(v.plan.create, replica{index: -1})
	}
}

// growIndexes makes pods for the lowest indexes that have none.
func (v *view) growIndexes(n int) {
	byIndex := map[int][]*corev1.Pod{}
	for _, p := range v.pods {
		if index, ok := indexOf(p, v.total); ok {
			byIndex[index] = append(byIndex[index], p)
		}
	}
	if !v.perIndex() {
		if wait := v.delay(v.pods); wait > 0 {
			v.plan.after = earlier(v.plan.after, wait)
			return
		}
	}
	for index := 0; index < v.total && len(v.plan.create) < n; index++ {
		if v.succeeded[index] || v.failed[index] || slices.ContainsFunc(byIndex[index], v.occupies) {
			continue
		}
		if v.perIndex() {
			if wait := v.delay(byIndex[index]); wait > 0 {
				v.plan.after = earlier(v.plan.after, wait)
				continue
			}
		}
		v.plan.create = append(v.plan.create, v.next(index, byIndex[index]))
	}
}

// occupies tells whether a pod keeps others of its index from being made.
func (v *view) occupies(p *corev1.Pod) bool {
	return pod.Active(p) || pod.Terminating(p) && waitsForFailed(v.job) || p.Status.Phase == corev1.PodSucceeded
}

// next is the pod that follows the failed ones of an index.
func (v *view) next(index int, before []*corev1.Pod) replica {
	r := replica{index: index}
	for _, p := range before {
		failures, ignored := count(p, failureCount), count(p, ignoredFailureCount)
		if judge(v.job.Spec.PodFailurePolicy, p).ignores() {
			ignored++
		} else {
			failures++
		}
		if failures+ignored > r.failures+r.ignored {
			r.failures, r.ignored = failures, ignored
		}
	}
	return r
}

// delay is how long after the last of its failures in a row a Job, or an index, has to wait for its next pod.
func (v *view) delay(pods []*corev1.Pod) time.Duration {
	var lastSuccess, lastFailure time.Time
	for _, p := range pods {
		if at := endedAt(p); p.Status.Phase == corev1.PodSucceeded && at.After(lastSuccess) {
			lastSuccess = at
		}
	}
	n := 0
	for _, p := range pods {
		if at := endedAt(p); failed(v.job, p) && at.After(lastSuccess) {
			n++
			if v.perIndex() {
				n = max(n, count(p, failureCount)+count(p, ignoredFailureCount)+1)
			}
			if at.After(lastFailure) {
				lastFailure = at
			}
		}
	}
	if n == 0 {
		return 0
	}
	return lastFailure.Add(min(firstDelay<<min(n-1, 10), longestDelay)).Sub(v.now)
}

func earlier(a, b time.Duration) time.Duration {
	if a <= 0 {
		return b
	}
	return min(a, b)
}

// summarize fills the numbers of the status.
func (v *view) summarize() {
	s := &v.plan.status
	s.Active = int32(len(v.active))
	var ready, terminating int32
	for _, p := range v.active {
		if pod.Ready(p) {
			ready++
		}
	}
	for _, p := range v.pods {
		if pod.Terminating(p) {
			terminating++
		}
	}
	s.Ready, s.Terminating = &ready, new(terminating+int32(len(v.plan.remove)))
	if v.indexed {
		s.Succeeded, s.CompletedIndexes = int32(len(v.succeeded)), v.succeeded.String()
		if v.perIndex() {
			s.FailedIndexes = new(indexes(maps.Clone(v.failed)).String())
		}
	}
}
