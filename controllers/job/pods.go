package job

import (
	"fmt"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/yare-project/yare/controllers/owned"
	"github.com/yare-project/yare/controllers/pod"
)

// replica is a pod to make: for an indexed Job, its index and how often pods of that index failed before.
type replica struct {
	index             int // -1 in a Job without indexes
	failures, ignored int
}

// Annotations by which a replacement remembers its predecessors' failures (KEP-3850).
const (
	failureCount        = batchv1.JobIndexFailureCountAnnotation
	ignoredFailureCount = batchv1.JobIndexIgnoredFailureCountAnnotation
)

func newPod(j *batchv1.Job, r replica) *corev1.Pod {
	p := owned.NewPod(&j.Spec.Template, j.Namespace, j.Name, owned.Owner(j, kind))
	p.Finalizers = append(p.Finalizers, batchv1.JobTrackingFinalizer)
	if r.index < 0 {
		return p
	}
	index := strconv.Itoa(r.index)
	p.GenerateName = fmt.Sprintf("%s-%s-", j.Name, index)
	set(&p.Annotations, batchv1.JobCompletionIndexAnnotation, index)
	set(&p.Labels, batchv1.JobCompletionIndexAnnotation, index)
	if j.Spec.BackoffLimitPerIndex != nil {
		set(&p.Annotations, failureCount, strconv.Itoa(r.failures))
		if r.ignored > 0 {
			set(&p.Annotations, ignoredFailureCount, strconv.Itoa(r.ignored))
		}
	}
	p.Spec.Hostname = j.Name + "-" + index
	for _, containers := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range containers {
			addIndexVariable(&containers[i])
		}
	}
	return p
}

func set(m *map[string]string, key, value string) {
	if *m == nil {
		*m = map[string]string{}
	}
	(*m)[key] = value
}

func addIndexVariable(c *corev1.Container) {
	const name = "JOB_COMPLETION_INDEX"
	for _, e := range c.Env {
		if e.Name == name {
			return
		}
	}
	c.Env = append(c.Env, corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{
		FieldPath: fmt.Sprintf("metadata.labels['%s']", batchv1.JobCompletionIndexAnnotation)}}})
}

// indexOf is a pod's index; false if it has none or no sensible one.
func indexOf(p *corev1.Pod, completions int) (int, bool) {
	n, err := strconv.Atoi(p.Annotations[batchv1.JobCompletionIndexAnnotation])
	return n, err == nil && n >= 0 && n < completions
}

func count(p *corev1.Pod, annotation string) int {
	n, err := strconv.Atoi(p.Annotations[annotation])
	if err != nil {
		return 0
	}
	return n
}

// failed tells whether a pod counts as a failure: it failed, or it was deleted before it succeeded and the Job replaces such pods at once.
func failed(j *batchv1.Job, p *corev1.Pod) bool {
	if p.Status.Phase == corev1.PodFailed {
		return true
	}
	return p.DeletionTimestamp != nil && p.Status.Phase != corev1.PodSucceeded && !waitsForFailed(j)
}

// waitsForFailed tells whether a terminating pod is replaced only once it has failed.
func waitsForFailed(j *batchv1.Job) bool {
	return j.Spec.PodReplacementPolicy != nil && *j.Spec.PodReplacementPolicy == batchv1.Failed || j.Spec.PodFailurePolicy != nil
}

// endedAt is when a pod finished, as well as can be told.
func endedAt(p *corev1.Pod) time.Time {
	var at time.Time
	for _, s := range p.Status.ContainerStatuses {
		if t := s.State.Terminated; t != nil && t.FinishedAt.After(at) {
			at = t.FinishedAt.Time
		}
	}
	if !at.IsZero() {
		return at
	}
	if c := pod.Condition(p, corev1.PodReady); c != nil && c.Status == corev1.ConditionFalse && !c.LastTransitionTime.IsZero() {
		return c.LastTransitionTime.Time
	}
	if p.DeletionTimestamp != nil {
		return p.DeletionTimestamp.Time
	}
	return p.CreationTimestamp.Time
}

// restarts is how often the containers of pods that may restart them have done so.
func restarts(pods []*corev1.Pod) (n int32) {
	for _, p := range pods {
		if p.Status.Phase != corev1.PodRunning && p.Status.Phase != corev1.PodPending {
			continue
		}
		for _, s := range p.Status.InitContainerStatuses {
			n += s.RestartCount
		}
		for _, s := range p.Status.ContainerStatuses {
			n += s.RestartCount
		}
	}
	return n
}
