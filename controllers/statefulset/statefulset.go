// Package statefulset keeps the numbered pods of a StatefulSet, each with its own name and its own claims.
//
// It guarantees that two pods of one number never exist at a time; with OrderedReady that a pod is made only when all of lower number are available, and
// deleted only when none of lower number is in trouble, highest first; and that an update replaces pods from the highest number down to partition,
// maxUnavailable at a time. Claims are made before their pod and outlive it unless the set's retention policy says otherwise.
//
// A pass is a pure decision ([decide]) on the set, its two revisions and its pods.
package statefulset

import (
	"context"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/controllers/history"
	"github.com/yare-project/yare/controllers/owned"
	"github.com/yare-project/yare/loop"
)

var kind = appsv1.SchemeGroupVersion.WithKind("StatefulSet")

// Descriptor declares the loop.
func Descriptor() loop.Descriptor {
	return loop.Descriptor{
		Name: "statefulset",
		Reads: []loop.Access{{GroupResource: appsv1.Resource("statefulsets")}, {GroupResource: corev1.Resource("pods")},
			{GroupResource: corev1.Resource("persistentvolumeclaims")}, {GroupResource: appsv1.Resource("controllerrevisions")}},
		Writes: []loop.Access{
			{GroupResource: appsv1.Resource("statefulsets"), Verbs: []string{"update"}},
			{GroupResource: appsv1.Resource("statefulsets/status"), Verbs: []string{"patch"}},
			{GroupResource: appsv1.Resource("statefulsets/finalizers"), Verbs: []string{"update"}},
			{GroupResource: corev1.Resource("pods"), Verbs: []string{"create", "delete", "patch", "update"}},
			{GroupResource: corev1.Resource("persistentvolumeclaims"), Verbs: []string{"create", "update"}},
			history.Access(),
		},
		Workers: 5,
		Start:   start,
	}
}

type controller struct {
	in       loop.Inputs
	sets     client.Cache[*appsv1.StatefulSet]
	pods     client.Cache[*corev1.Pod]
	claims   client.Cache[*corev1.PersistentVolumeClaim]
	api      client.API[*appsv1.StatefulSet]
	podAPI   client.API[*corev1.Pod]
	claimAPI client.API[*corev1.PersistentVolumeClaim]
	saved    *owned.Writes[*appsv1.StatefulSet]
	writes   *owned.Writes[*corev1.Pod]
	keeper   *history.Keeper[*appsv1.StatefulSet]
}

func start(in loop.Inputs) (loop.Reconcile, error) {
	c := &controller{in: in, sets: client.CacheOf[*appsv1.StatefulSet](in.Caches, client.CacheOptions{}),
		pods:   client.CacheOf[*corev1.Pod](in.Caches, client.CacheOptions{}),
		claims: client.CacheOf[*corev1.PersistentVolumeClaim](in.Caches, client.CacheOptions{}),
		api:    client.Of[*appsv1.StatefulSet](in.Transport), podAPI: client.Of[*corev1.Pod](in.Transport),
		claimAPI: client.Of[*corev1.PersistentVolumeClaim](in.Transport)}
	c.saved, c.writes = owned.NewWrites(c.sets), owned.NewWrites(c.pods)
	c.keeper = history.NewKeeper[*appsv1.StatefulSet](in, kind, appsv1.ControllerRevisionHashLabelKey)
	owned.AddIndexes(c.pods)
	loop.EnqueueSelf(c.sets, in.Enqueue)
	c.pods.OnChange(func(old, new *corev1.Pod) {
		for _, p := range []*corev1.Pod{old, new} {
			if p == nil {
				continue
			}
			if ref := metav1.GetControllerOfNoCopy(p); ref != nil {
				if ref.Kind == kind.Kind {
					in.Enqueue(loop.Key{Namespace: p.Namespace, Name: ref.Name})
				}
				continue
			}
			c.orphanChanged(p)
		}
	})
	return c.reconcile, nil
}

// orphanChanged wakes the set whose pod an orphan is by name.
func (c *controller) orphanChanged(p *corev1.Pod) {
	name, _, ok := split(p.Name)
	if !ok {
		return
	}
	if set, ok := c.sets.Get(p.Namespace, name); ok {
		if s, err := metav1.LabelSelectorAsSelector(set.Spec.Selector); err == nil && s.Matches(labels.Set(p.Labels)) {
			c.in.Enqueue(loop.KeyOf(set))
		}
	}
}

func (c *controller) reconcile(ctx context.Context, key loop.Key) (loop.Result, error) {
	set, ok := c.sets.Get(key.Namespace, key.Name)
	if !ok {
		c.saved.Forget(key)
		c.writes.Forget(key)
		c.keeper.Forget(key)
		return loop.Result{}, nil
	}
	if !c.saved.Seen(key) || !c.writes.Seen(key) || !c.keeper.Seen(key) {
		return loop.Result{After: owned.Recheck}, nil
	}
	selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector)
	if err != nil || selector.Empty() {
		c.in.Log.Warn("selector can't be used; the set is left alone", "key", key.String(), "error", err)
		return loop.Result{}, nil
	}
	pods, err := c.claim(ctx, set, selector)
	if err != nil {
		return loop.Result{}, err
	}
	collisions := int32(0)
	if set.Status.CollisionCount != nil {
		collisions = *set.Status.CollisionCount
	}
	update, all, err := c.keeper.Settle(ctx, set, &set.Spec.Template, selector, collisions)
	if errors.Is(err, history.ErrCollision) {
		status := *set.Status.DeepCopy()
		status.CollisionCount = new(collisions + 1)
		return loop.Result{}, c.save(ctx, key, set, status)
	}
	if err != nil {
		return loop.Result{}, err
	}
	in, err := inputOf(set, update, all, pods)
	if err != nil {
		return loop.Result{}, err
	}
	in.now, in.claims = c.in.Clock.Now(), c.claims
	p := decide(in)
	if err := c.carry(ctx, key, set, p); err != nil {
		return loop.Result{}, err
	}
	live := map[string]bool{update.Name: true, p.status.CurrentRevision: true}
	for _, pod := range pods {
		live[pod.Labels[appsv1.StatefulSetRevisionLabel]] = true
	}
	return loop.Result{After: p.after}, c.keeper.Trim(ctx, key, all, live, set.Spec.RevisionHistoryLimit)
}

// claim takes over the pods that match by selector and by name.
func (c *controller) claim(ctx context.Context, set *appsv1.StatefulSet, selector labels.Selector) ([]*corev1.Pod, error) {
	found := owned.Find(c.pods, set, selector)
	var adopt []*corev1.Pod
	for _, p := range found.Adopt {
		if name, _, ok := split(p.Name); ok && name == set.Name {
			adopt = append(adopt, p)
		}
	}
	found.Adopt = adopt
	return owned.Carry(ctx, found, c.podAPI, set, kind, c.api)
}

func (c *controller) carry(ctx context.Context, key loop.Key, set *appsv1.StatefulSet, p plan) error {
	var failed []error
	for _, claim := range p.claims {
		failed = append(failed, c.putClaim(ctx, set, claim))
	}
	if err := errors.Join(failed...); err != nil {
		return err // a pod is not made without its claims
	}
	for _, pod := range p.fix {
		updated, err := c.podAPI.Update(ctx, pod)
		if err == nil {
			c.writes.Wrote(key, updated)
		}
		failed = append(failed, c.tell(set, "Update", pod.Name, err))
	}
	for _, pod := range p.create {
		made, err := c.podAPI.Create(ctx, pod)
		if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			return nil
		}
		if err == nil {
			c.writes.Wrote(key, made)
		}
		failed = append(failed, c.tell(set, "Create", pod.Name, err))
	}
	for _, pod := range p.remove {
		err := c.podAPI.Delete(ctx, pod.Namespace, pod.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}})
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			continue
		}
		if err == nil {
			c.writes.Deleted(key, pod)
		}
		failed = append(failed, c.tell(set, "Delete", pod.Name, err))
	}
	return errors.Join(append(failed, c.save(ctx, key, set, p.status))...)
}

// tell records what was done to a pod and gives the error its context.
func (c *controller) tell(set *appsv1.StatefulSet, verb, pod string, err error) error {
	if err != nil {
		c.in.Event(set, corev1.EventTypeWarning, "Failed"+verb, fmt.Sprintf("%s Pod %s in StatefulSet %s failed error: %s", verb, pod, set.Name, err))
		return fmt.Errorf("%s pod %s: %w", verb, pod, err)
	}
	c.in.Event(set, corev1.EventTypeNormal, "Successful"+verb, fmt.Sprintf("%s Pod %s in StatefulSet %s successful", verb, pod, set.Name))
	return nil
}

func (c *controller) putClaim(ctx context.Context, set *appsv1.StatefulSet, claim *corev1.PersistentVolumeClaim) error {
	if claim.ResourceVersion != "" {
		_, err := c.claimAPI.Update(ctx, claim)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	}
	_, err := c.claimAPI.Create(ctx, claim)
	if err == nil {
		c.in.Event(set, corev1.EventTypeNormal, "SuccessfulCreate", fmt.Sprintf("Create Claim %s in StatefulSet %s success", claim.Name, set.Name))
		return nil
	}
	if apierrors.IsAlreadyExists(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return nil
	}
	c.in.Event(set, corev1.EventTypeWarning, "FailedCreate", fmt.Sprintf("Create Claim %s in StatefulSet %s failed error: %s", claim.Name, set.Name, err))
	return fmt.Errorf("create claim %s: %w", claim.Name, err)
}

func (c *controller) save(ctx context.Context, key loop.Key, set *appsv1.StatefulSet, status appsv1.StatefulSetStatus) error {
	if equality.Semantic.DeepEqual(set.Status, status) {
		return nil
	}
	updated, err := owned.PatchStatus(ctx, c.api, set, set.Status, status)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("update status: %w", err)
	}
	c.saved.Wrote(key, updated)
	return nil
}
