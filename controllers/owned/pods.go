package owned

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NewPod makes the pod that a template describes for an owner. The API server completes its name.
func NewPod(template *corev1.PodTemplateSpec, namespace, prefix string, owner *metav1.OwnerReference) *corev1.Pod {
	t := template.DeepCopy()
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: prefix + "-", Labels: maps.Clone(t.Labels),
			Annotations: maps.Clone(t.Annotations), Finalizers: slices.Clone(t.Finalizers), OwnerReferences: []metav1.OwnerReference{*owner}},
		Spec: t.Spec,
	}
}

// firstBatch is how many writes are tried together before any has succeeded.
const firstBatch = 16

// Batches calls f n times, in growing batches that run at once: when a whole kind of write fails (a quota, an admission rule) few are wasted, and
// when it works the store commits them in groups. After a batch with a failure no other starts. It returns how many succeeded, and the first error.
func Batches(ctx context.Context, n int, f func(i int) error) (done int, err error) {
	for start, size := 0, min(firstBatch, n); size > 0; size = min(2*size, n-start) {
		errs := make([]error, size)
		var all sync.WaitGroup
		for i := range size {
			all.Go(func() { errs[i] = f(start + i) })
		}
		all.Wait()
		for _, e := range errs {
			if e == nil {
				done++
			} else if err == nil {
				err = e
			}
		}
		start += size
		if err != nil || ctx.Err() != nil {
			return done, errors.Join(err, ctx.Err())
		}
	}
	return done, nil
}
