// Package cronjob makes a Job each time that a CronJob's schedule says.
//
// A Job's name derives from the time for which it is made, so that no time is served twice, whatever crashes. If several times were missed, only the latest is
// made up for, and only within startingDeadlineSeconds. Finished Jobs are kept up to the history limits, newest first.
//
// A pass is a pure decision ([decide]) on the CronJob and its Jobs; between passes the loop sleeps until the next time of the schedule.
package cronjob

import (
	"context"
	"errors"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/controllers/owned"
	"github.com/yare-project/yare/loop"
)

var kind = batchv1.SchemeGroupVersion.WithKind("CronJob")

// Descriptor declares the loop.
func Descriptor() loop.Descriptor {
	return loop.Descriptor{
		Name:  "cronjob",
		Reads: []loop.Access{{GroupResource: batchv1.Resource("cronjobs")}, {GroupResource: batchv1.Resource("jobs")}},
		Writes: []loop.Access{
			{GroupResource: batchv1.Resource("cronjobs/status"), Verbs: []string{"patch"}},
			{GroupResource: batchv1.Resource("cronjobs/finalizers"), Verbs: []string{"update"}},
			{GroupResource: batchv1.Resource("jobs"), Verbs: []string{"create", "delete"}},
		},
		Workers: 5,
		Start:   start,
	}
}

type controller struct {
	in     loop.Inputs
	crons  client.Cache[*batchv1.CronJob]
	jobs   client.Cache[*batchv1.Job]
	api    client.API[*batchv1.CronJob]
	jobAPI client.API[*batchv1.Job]
	saved  *owned.Writes[*batchv1.CronJob]
	writes *owned.Writes[*batchv1.Job]
}

func start(in loop.Inputs) (loop.Reconcile, error) {
	c := &controller{in: in, crons: client.CacheOf[*batchv1.CronJob](in.Caches, client.CacheOptions{}),
		jobs: client.CacheOf[*batchv1.Job](in.Caches, client.CacheOptions{}),
		api:  client.Of[*batchv1.CronJob](in.Transport), jobAPI: client.Of[*batchv1.Job](in.Transport)}
	c.saved, c.writes = owned.NewWrites(c.crons), owned.NewWrites(c.jobs)
	owned.AddIndexes(c.jobs)
	loop.EnqueueSelf(c.crons, in.Enqueue)
	c.jobs.OnChange(func(old, new *batchv1.Job) {
		j := client.Newest(old, new)
		if ref := metav1.GetControllerOfNoCopy(j); ref != nil && ref.Kind == kind.Kind {
			in.Enqueue(loop.Key{Namespace: j.Namespace, Name: ref.Name})
		}
	})
	return c.reconcile, nil
}

func (c *controller) reconcile(ctx context.Context, key loop.Key) (loop.Result, error) {
	cron, ok := c.crons.Get(key.Namespace, key.Name)
	if !ok {
		c.saved.Forget(key)
		c.writes.Forget(key)
		return loop.Result{}, nil
	}
	if !c.saved.Seen(key) || !c.writes.Seen(key) {
		return loop.Result{After: owned.Recheck}, nil
	}
	p := decide(cron, c.jobs.By(owned.ByController, string(cron.UID)), c.in.Clock.Now())
	for _, e := range p.events {
		c.in.Event(cron, e.kind, e.reason, e.message)
	}
	if err := c.carry(ctx, key, cron, p); err != nil {
		return loop.Result{}, err
	}
	return loop.Result{After: p.after}, nil
}

func (c *controller) carry(ctx context.Context, key loop.Key, cron *batchv1.CronJob, p plan) error {
	var failed []error
	background := metav1.DeletePropagationBackground
	for _, j := range p.remove {
		err := c.jobAPI.Delete(ctx, j.Namespace, j.Name, metav1.DeleteOptions{PropagationPolicy: &background, Preconditions: &metav1.Preconditions{UID: &j.UID}})
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			continue
		}
		if err != nil {
			c.in.Event(cron, corev1.EventTypeWarning, "FailedDelete", fmt.Sprintf("Deleted job: %v", err))
			failed = append(failed, fmt.Errorf("delete job %s: %w", j.Name, err))
			continue
		}
		c.writes.Deleted(key, j)
		c.in.Event(cron, corev1.EventTypeNormal, "SuccessfulDelete", "Deleted job "+j.Name)
	}
	if err := errors.Join(failed...); err != nil {
		return err // a Job that is to be replaced must be gone first
	}
	if p.create != nil {
		j, err := c.create(ctx, key, cron, p.create)
		if err != nil {
			return err
		}
		if j != nil {
			p.status.Active = append(p.status.Active, refTo(j))
			p.status.LastScheduleTime = &p.scheduled
		}
	}
	if equality.Semantic.DeepEqual(cron.Status, p.status) {
		return nil
	}
	updated, err := owned.PatchStatus(ctx, c.api, cron, cron.Status, p.status)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("update status: %w", err)
	}
	c.saved.Wrote(key, updated)
	return nil
}

// create makes a Job, or finds that an earlier pass made it. Nil: it is somebody else's, or the namespace goes.
func (c *controller) create(ctx context.Context, key loop.Key, cron *batchv1.CronJob, want *batchv1.Job) (*batchv1.Job, error) {
	j, err := c.jobAPI.Create(ctx, want)
	switch {
	case err == nil:
		c.writes.Wrote(key, j)
		c.in.Event(cron, corev1.EventTypeNormal, "SuccessfulCreate", "Created job "+j.Name)
		return j, nil
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return nil, nil
	case apierrors.IsAlreadyExists(err):
		j, err := c.jobAPI.Get(ctx, want.Namespace, want.Name)
		if err != nil || !metav1.IsControlledBy(j, cron) {
			return nil, err
		}
		return j, nil
	}
	c.in.Event(cron, corev1.EventTypeWarning, "FailedCreate", fmt.Sprintf("Error creating job: %v", err))
	return nil, fmt.Errorf("create job %s: %w", want.Name, err)
}

func refTo(j *batchv1.Job) corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: batchv1.SchemeGroupVersion.String(), Kind: "Job", Namespace: j.Namespace, Name: j.Name, UID: j.UID, ResourceVersion: j.ResourceVersion}
}
