// Package ttl deletes finished Jobs once their ttlSecondsAfterFinished is over, in the foreground, so that their pods go first.
package ttl

import (
	"context"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/loop"
)

// Descriptor declares the loop.
func Descriptor() loop.Descriptor {
	return loop.Descriptor{
		Name:    "ttl-after-finished",
		Reads:   []loop.Access{{GroupResource: batchv1.Resource("jobs")}},
		Writes:  []loop.Access{{GroupResource: batchv1.Resource("jobs"), Verbs: []string{"delete"}}},
		Workers: 5,
		Start:   start,
	}
}

func start(in loop.Inputs) (loop.Reconcile, error) {
	jobs := client.CacheOf[*batchv1.Job](in.Caches, client.CacheOptions{})
	api := client.Of[*batchv1.Job](in.Transport)
	jobs.OnChange(func(_, new *batchv1.Job) {
		if new == nil || new.DeletionTimestamp != nil {
			return
		}
		if _, ok := expiry(new); ok {
			in.Enqueue(loop.KeyOf(new))
		}
	})
	return func(ctx context.Context, key loop.Key) (loop.Result, error) {
		j, ok := jobs.Get(key.Namespace, key.Name)
		if !ok || j.DeletionTimestamp != nil {
			return loop.Result{}, nil
		}
		at, ok := expiry(j)
		if !ok {
			return loop.Result{}, nil
		}
		if wait := at.Sub(in.Clock.Now()); wait > 0 {
			return loop.Result{After: wait}, nil
		}
		foreground := metav1.DeletePropagationForeground
		err := api.Delete(ctx, j.Namespace, j.Name, metav1.DeleteOptions{PropagationPolicy: &foreground, // only in the state that was judged
			Preconditions: &metav1.Preconditions{UID: &j.UID, ResourceVersion: &j.ResourceVersion}})
		if err != nil && !apierrors.IsNotFound(err) {
			return loop.Result{}, fmt.Errorf("delete finished job: %w", err)
		}
		return loop.Result{}, nil
	}, nil
}

// expiry is when a finished Job may go; false if it has not finished or has no time to live.
func expiry(j *batchv1.Job) (time.Time, bool) {
	if j.Spec.TTLSecondsAfterFinished == nil {
		return time.Time{}, false
	}
	for _, c := range j.Status.Conditions {
		if (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) && c.Status == corev1.ConditionTrue {
			return c.LastTransitionTime.Add(time.Duration(*j.Spec.TTLSecondsAfterFinished) * time.Second), true
		}
	}
	return time.Time{}, false
}
