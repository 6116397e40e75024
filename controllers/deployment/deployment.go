// Package deployment moves the pods of a Deployment from one template to the next by making and scaling ReplicaSets.
//
// A pass is a pure decision ([decide]) on the Deployment, its ReplicaSets and their pods, and a shell that carries it out. It guarantees that
// during a rolling update at least replicas - maxUnavailable pods are available as far as the update is concerned, and that at most replicas +
// maxSurge are asked for; that a template seen before finds its old ReplicaSet again, which is what rollback rests on; and that a rollout which makes
// no progress for progressDeadlineSeconds says so.
//
// The loop touches no pods.
package deployment

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/controllers/owned"
	"github.com/yare-project/yare/controllers/pod"
	"github.com/yare-project/yare/loop"
)

var kind = appsv1.SchemeGroupVersion.WithKind("Deployment")

// Descriptor declares the loop.
func Descriptor() loop.Descriptor {
	return loop.Descriptor{
		Name: "deployment",
		Reads: []loop.Access{{GroupResource: appsv1.Resource("deployments")}, {GroupResource: appsv1.Resource("replicasets")},
			{GroupResource: corev1.Resource("pods")}},
		Writes: []loop.Access{
			{GroupResource: appsv1.Resource("deployments"), Verbs: []string{"patch", "update"}},
			{GroupResource: appsv1.Resource("deployments/status"), Verbs: []string{"patch"}},
			{GroupResource: appsv1.Resource("replicasets"), Verbs: []string{"create", "patch", "delete"}},
		},
		Workers: 5,
		Start:   start,
	}
}

type controller struct {
	in          loop.Inputs
	deployments client.Cache[*appsv1.Deployment]
	sets        client.Cache[*appsv1.ReplicaSet]
	pods        client.Cache[*corev1.Pod]
	api         client.API[*appsv1.Deployment]
	setAPI      client.API[*appsv1.ReplicaSet]
	saved       *owned.Writes[*appsv1.Deployment]
	writes      *owned.Writes[*appsv1.ReplicaSet]
}

func start(in loop.Inputs) (loop.Reconcile, error) {
	c := &controller{in: in,
		deployments: client.CacheOf[*appsv1.Deployment](in.Caches, client.CacheOptions{}),
		sets:        client.CacheOf[*appsv1.ReplicaSet](in.Caches, client.CacheOptions{}),
		pods:        client.CacheOf[*corev1.Pod](in.Caches, client.CacheOptions{}),
		api:         client.Of[*appsv1.Deployment](in.Transport), setAPI: client.Of[*appsv1.ReplicaSet](in.Transport)}
	c.saved, c.writes = owned.NewWrites(c.deployments), owned.NewWrites(c.sets)
	owned.AddIndexes(c.sets)
	c.pods.AddIndex(owned.ByController, owned.By[*corev1.Pod])
	loop.EnqueueSelf(c.deployments, in.Enqueue)
	c.sets.OnChange(c.setChanged)
	c.pods.OnChange(c.podChanged)
	return c.reconcile, nil
}

func (c *controller) setChanged(old, new *appsv1.ReplicaSet) {
	for _, rs := range []*appsv1.ReplicaSet{old, new} {
		if rs == nil {
			continue
		}
		if ref := metav1.GetControllerOfNoCopy(rs); ref != nil {
			if ref.Kind == kind.Kind {
				c.in.Enqueue(loop.Key{Namespace: rs.Namespace, Name: ref.Name})
			}
			continue
		}
		for _, d := range c.deployments.List(rs.Namespace) {
			if s, err := metav1.LabelSelectorAsSelector(d.Spec.Selector); err == nil && s.Matches(labels.Set(rs.Labels)) {
				c.in.Enqueue(loop.KeyOf(d))
			}
		}
	}
}

// podChanged matters to the Recreate strategy alone: it waits for the last old pod to be gone, which no ReplicaSet's status tells.
func (c *controller) podChanged(old, new *corev1.Pod) {
	if old == nil || new != nil && !(pod.Finished(new) && !pod.Finished(old)) {
		return
	}
	ref := metav1.GetControllerOfNoCopy(old)
	if ref == nil || ref.Kind != "ReplicaSet" {
		return
	}
	if rs, ok := c.sets.Get(old.Namespace, ref.Name); ok {
		if owner := metav1.GetControllerOfNoCopy(rs); owner != nil && owner.Kind == kind.Kind {
			c.in.Enqueue(loop.Key{Namespace: old.Namespace, Name: owner.Name})
		}
	}
}

func (c *controller) reconcile(ctx context.Context, key loop.Key) (loop.Result, error) {
	d, ok := c.deployments.Get(key.Namespace, key.Name)
	if !ok {
		c.saved.Forget(key)
		c.writes.Forget(key)
		return loop.Result{}, nil
	}
	if !c.saved.Seen(key) || !c.writes.Seen(key) {
		return loop.Result{After: owned.Recheck}, nil
	}
	selector, err := metav1.LabelSelectorAsSelector(d.Spec.Selector)
	if err != nil || selector.Empty() {
		c.in.Event(d, corev1.EventTypeWarning, "SelectingAll", "This deployment is selecting all pods. A non-empty selector is required.")
		return loop.Result{}, nil
	}
	sets, err := owned.Carry(ctx, owned.Find(c.sets, d, selector), c.setAPI, d, kind, c.api)
	if err != nil {
		return loop.Result{}, err
	}
	p := decide(d, sets, c.runningPods, c.in.Clock.Now())
	if err := c.carry(ctx, key, d, p); err != nil {
		return loop.Result{}, err
	}
	return loop.Result{After: p.after}, nil
}

// runningPods tells whether a set still has pods that are not finished.
func (c *controller) runningPods(rs *appsv1.ReplicaSet) bool {
	for _, p := range c.pods.By(owned.ByController, string(rs.UID)) {
		if !pod.Finished(p) {
			return true
		}
	}
	return false
}

// carry does what a plan says: ReplicaSets first, status last, so that the status that is written is of what was done.
func (c *controller) carry(ctx context.Context, key loop.Key, d *appsv1.Deployment, p plan) error {
	status := p.status
	var failed []error
	if p.create != nil {
		rs, err := c.setAPI.Create(ctx, p.create)
		switch {
		case err == nil:
			c.writes.Wrote(key, rs)
			c.in.Event(d, corev1.EventTypeNormal, "ScalingReplicaSet", fmt.Sprintf("Scaled up replica set %s from 0 to %d", rs.Name, replicasOf(rs)))
		case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
			return nil
		default:
			failed = append(failed, c.createFailed(ctx, d, p.create, &status, err))
		}
	}
	for _, change := range p.changes {
		failed = append(failed, c.change(ctx, key, d, change))
	}
	for _, rs := range p.remove {
		err := c.setAPI.Delete(ctx, rs.Namespace, rs.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &rs.UID, ResourceVersion: &rs.ResourceVersion}})
		if err == nil {
			c.writes.Deleted(key, rs)
		} else if !apierrors.IsNotFound(err) {
			failed = append(failed, fmt.Errorf("delete ReplicaSet %s of an old revision: %w", rs.Name, err))
		}
	}
	failed = append(failed, c.save(ctx, key, d, p.revision, status))
	return errors.Join(failed...)
}

// change patches what a plan changed of a set: only this loop sizes and numbers sets, so their status may change meanwhile.
func (c *controller) change(ctx context.Context, key loop.Key, d *appsv1.Deployment, change change) error {
	annotations := map[string]string{}
	for k, v := range change.to.Annotations {
		if change.from.Annotations[k] != v {
			annotations[k] = v
		}
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": change.to.UID, "annotations": annotations},
		"spec": map[string]any{"replicas": replicasOf(change.to), "minReadySeconds": change.to.Spec.MinReadySeconds}})
	if err != nil {
		return err
	}
	rs, err := c.setAPI.Patch(ctx, change.to.Namespace, change.to.Name, types.MergePatchType, body, "")
	if err != nil {
		return fmt.Errorf("update ReplicaSet %s: %w", change.to.Name, err)
	}
	c.writes.Wrote(key, rs)
	if before, after := replicasOf(change.from), replicasOf(rs); before != after {
		direction := "up"
		if after < before {
			direction = "down"
		}
		c.in.Event(d, corev1.EventTypeNormal, "ScalingReplicaSet", fmt.Sprintf("Scaled %s replica set %s from %d to %d", direction, rs.Name, before, after))
	}
	return nil
}

// createFailed tells a taken name, which only asks for another hash, from a failure that users must see.
func (c *controller) createFailed(ctx context.Context, d *appsv1.Deployment, rs *appsv1.ReplicaSet, status *appsv1.DeploymentStatus, err error) error {
	if apierrors.IsAlreadyExists(err) {
		there, getErr := c.setAPI.Get(ctx, rs.Namespace, rs.Name)
		if getErr != nil {
			return getErr
		}
		if metav1.IsControlledBy(there, d) && sameTemplate(&there.Spec.Template, &d.Spec.Template) {
			return nil // an earlier pass made it, and the cache will show it
		}
		n := int32(1)
		if status.CollisionCount != nil {
			n = *status.CollisionCount + 1
		}
		status.CollisionCount = &n
		return nil // the status change wakes this loop again
	}
	message := fmt.Sprintf("Failed to create new replica set %q: %v", rs.Name, err)
	c.in.Event(d, corev1.EventTypeWarning, "ReplicaSetCreateError", message)
	if hasDeadline(d) {
		setCondition(status, condition(appsv1.DeploymentProgressing, corev1.ConditionFalse, "ReplicaSetCreateError", message, c.in.Clock.Now()))
	}
	return errors.New(message)
}

// save writes the revision and the status if they changed.
func (c *controller) save(ctx context.Context, key loop.Key, d *appsv1.Deployment, revision string, status appsv1.DeploymentStatus) error {
	if revision != "" && d.Annotations[revisionKey] != revision {
		body, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": d.UID, "annotations": map[string]string{revisionKey: revision}}})
		if err != nil {
			return err
		}
		updated, err := c.api.Patch(ctx, d.Namespace, d.Name, types.MergePatchType, body, "")
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("set the revision: %w", err)
		}
		c.saved.Wrote(key, updated)
	}
	if equality.Semantic.DeepEqual(d.Status, status) {
		return nil
	}
	updated, err := owned.PatchStatus(ctx, c.api, d, d.Status, status)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("update status: %w", err)
	}
	c.saved.Wrote(key, updated)
	return nil
}

func seconds(n int32) time.Duration { return time.Duration(n) * time.Second }
