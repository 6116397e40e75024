// Package job runs the pods of Jobs to completion.
//
// It guarantees that every pod is counted exactly once, whatever is deleted or crashes meanwhile: a finished pod keeps the finalizer
// batch.kubernetes.io/job-tracking until its uid, or its index, stands in the Job's status (KEP-2307). It makes no pod more than parallelism and completions
// ask for, waits ever longer after failures, and declares a Job finished only when none of its pods runs any more.
//
// A pass is a pure decision on the Job and its pods ([decide]) and a shell that creates and deletes pods, writes the status, and then lets counted pods go.
// Jobs that name another manager (spec.managedBy) are left alone.
package job

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/controllers/owned"
	"github.com/yare-project/yare/loop"
)

var kind = batchv1.SchemeGroupVersion.WithKind("Job")

// Descriptor declares the loop.
func Descriptor() loop.Descriptor {
	return loop.Descriptor{
		Name:  "job",
		Reads: []loop.Access{{GroupResource: batchv1.Resource("jobs")}, {GroupResource: corev1.Resource("pods")}},
		Writes: []loop.Access{
			{GroupResource: batchv1.Resource("jobs"), Verbs: []string{"update"}},
			{GroupResource: batchv1.Resource("jobs/status"), Verbs: []string{"patch"}},
			{GroupResource: batchv1.Resource("jobs/finalizers"), Verbs: []string{"update"}},
			{GroupResource: corev1.Resource("pods"), Verbs: []string{"create", "delete", "patch"}},
		},
		Workers: 5,
		Start:   start,
	}
}

type controller struct {
	in     loop.Inputs
	jobs   client.Cache[*batchv1.Job]
	pods   client.Cache[*corev1.Pod]
	api    client.API[*batchv1.Job]
	podAPI client.API[*corev1.Pod]
	saved  *owned.Writes[*batchv1.Job]
	writes *owned.Writes[*corev1.Pod]
}

func start(in loop.Inputs) (loop.Reconcile, error) {
	c := &controller{in: in, jobs: client.CacheOf[*batchv1.Job](in.Caches, client.CacheOptions{}),
		pods: client.CacheOf[*corev1.Pod](in.Caches, client.CacheOptions{}),
		api:  client.Of[*batchv1.Job](in.Transport), podAPI: client.Of[*corev1.Pod](in.Transport)}
	c.saved, c.writes = owned.NewWrites(c.jobs), owned.NewWrites(c.pods)
	owned.AddIndexes(c.pods)
	c.jobs.OnChange(func(old, new *batchv1.Job) {
		if new == nil { // its pods must not be held for it any longer
			for _, p := range c.pods.By(owned.ByController, string(old.UID)) {
				in.Enqueue(podKey(p))
			}
		}
		in.Enqueue(loop.KeyOf(client.Newest(old, new)))
	})
	c.pods.OnChange(c.podChanged)
	return c.reconcile, nil
}

// podKey is the key of the pass that frees a pod without Job. A Job's name has no slash.
func podKey(p *corev1.Pod) loop.Key { return loop.Key{Namespace: p.Namespace, Name: "pod/" + p.Name} }

func (c *controller) podChanged(old, new *corev1.Pod) {
	for _, p := range []*corev1.Pod{old, new} {
		if p == nil {
			continue
		}
		ref := metav1.GetControllerOfNoCopy(p)
		if ref != nil && ref.Kind == kind.Kind && strings.HasPrefix(ref.APIVersion, batchv1.GroupName+"/") {
			c.in.Enqueue(loop.Key{Namespace: p.Namespace, Name: ref.Name})
		}
	}
	if new != nil && tracked(new) && c.ownerOf(new) == nil {
		c.in.Enqueue(podKey(new))
	}
}

func (c *controller) ownerOf(p *corev1.Pod) *batchv1.Job {
	ref := metav1.GetControllerOfNoCopy(p)
	if ref == nil || ref.Kind != kind.Kind {
		return nil
	}
	if j, ok := c.jobs.Get(p.Namespace, ref.Name); ok && j.UID == ref.UID {
		return j
	}
	return nil
}

func (c *controller) reconcile(ctx context.Context, key loop.Key) (loop.Result, error) {
	if name, ok := strings.CutPrefix(key.Name, "pod/"); ok {
		return loop.Result{}, c.free(ctx, key.Namespace, name)
	}
	j, ok := c.jobs.Get(key.Namespace, key.Name)
	if !ok {
		c.saved.Forget(key)
		c.writes.Forget(key)
		return loop.Result{}, nil
	}
	if m := j.Spec.ManagedBy; m != nil && *m != batchv1.JobControllerName {
		return loop.Result{}, nil
	}
	if !c.saved.Seen(key) || !c.writes.Seen(key) {
		return loop.Result{After: owned.Recheck}, nil
	}
	selector, err := metav1.LabelSelectorAsSelector(j.Spec.Selector)
	if err != nil || selector.Empty() {
		c.in.Log.Warn("selector can't be used; the Job is left alone", "key", key.String(), "error", err)
		return loop.Result{}, nil
	}
	pods, err := owned.Carry(ctx, owned.Find(c.pods, j, selector), c.podAPI, j, kind, c.api)
	if err != nil {
		return loop.Result{}, err
	}
	p := decide(j, pods, c.in.Clock.Now())
	return loop.Result{After: p.after}, c.carry(ctx, key, j, p)
}

// carry makes and deletes pods, writes the status, and only then lets go of the pods that it counts.
func (c *controller) carry(ctx context.Context, key loop.Key, j *batchv1.Job, p plan) error {
	_, failed := owned.Batches(ctx, len(p.remove), func(i int) error { return c.remove(ctx, key, j, p.remove[i]) })
	made, err := owned.Batches(ctx, len(p.create), func(i int) error { return c.create(ctx, key, j, p.create[i]) })
	failed = errors.Join(failed, err)
	p.status.Active += int32(made)
	if !equality.Semantic.DeepEqual(j.Status, p.status) {
		updated, err := owned.PatchStatus(ctx, c.api, j, j.Status, p.status)
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return errors.Join(failed, fmt.Errorf("update status: %w", err))
		}
		c.saved.Wrote(key, updated)
		for _, e := range p.events {
			c.in.Event(j, e.kind, e.reason, e.message)
		}
	}
	_, err = owned.Batches(ctx, len(p.untrack), func(i int) error {
		freed, err := c.untrack(ctx, p.untrack[i])
		if err == nil && freed != nil {
			c.writes.Wrote(key, freed)
		}
		return err
	})
	return errors.Join(failed, err)
}

func (c *controller) create(ctx context.Context, key loop.Key, j *batchv1.Job, want replica) error {
	p, err := c.podAPI.Create(ctx, newPod(j, want))
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return nil
	}
	if err != nil {
		c.in.Event(j, corev1.EventTypeWarning, "FailedCreate", fmt.Sprintf("Error creating: %v", err))
		return fmt.Errorf("create pod: %w", err)
	}
	c.writes.Wrote(key, p)
	c.in.Event(j, corev1.EventTypeNormal, "SuccessfulCreate", "Created pod: "+p.Name)
	return nil
}

func (c *controller) remove(ctx context.Context, key loop.Key, j *batchv1.Job, p *corev1.Pod) error {
	err := c.podAPI.Delete(ctx, p.Namespace, p.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &p.UID}})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	if err != nil {
		c.in.Event(j, corev1.EventTypeWarning, "FailedDelete", fmt.Sprintf("Error deleting: %v", err))
		return fmt.Errorf("delete pod %s: %w", p.Name, err)
	}
	c.writes.Deleted(key, p)
	c.in.Event(j, corev1.EventTypeNormal, "SuccessfulDelete", "Deleted pod: "+p.Name)
	return nil
}

// free lets go of a pod whose Job is gone.
func (c *controller) free(ctx context.Context, namespace, name string) error {
	p, ok := c.pods.Get(namespace, name)
	if !ok || !tracked(p) || c.ownerOf(p) != nil {
		return nil
	}
	if ref := metav1.GetControllerOfNoCopy(p); ref != nil && ref.Kind == kind.Kind {
		if j, err := c.api.Get(ctx, namespace, ref.Name); err == nil && j.UID == ref.UID {
			return nil // the cache is behind
		} else if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	_, err := c.untrack(ctx, p)
	return err
}

func (c *controller) untrack(ctx context.Context, p *corev1.Pod) (*corev1.Pod, error) {
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": p.UID, "$deleteFromPrimitiveList/finalizers": []string{batchv1.JobTrackingFinalizer}}})
	if err != nil {
		return nil, err
	}
	freed, err := c.podAPI.Patch(ctx, p.Namespace, p.Name, types.StrategicMergePatchType, body, "")
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("let go of pod %s: %w", p.Name, err)
	}
	return freed, nil
}

func tracked(p *corev1.Pod) bool { return slices.Contains(p.Finalizers, batchv1.JobTrackingFinalizer) }
