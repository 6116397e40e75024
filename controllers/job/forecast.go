package job

import (
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

// Member is the k-th pod that a new Job gets.
func Member(j *batchv1.Job, k int) *corev1.Pod {
	r := replica{index: -1}
	if j.Spec.CompletionMode != nil && *j.Spec.CompletionMode == batchv1.IndexedCompletion {
		r.index = k
	}
	return newPod(j, r)
}
