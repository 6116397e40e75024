// Package replicaset keeps as many pods of a template as a ReplicaSet or a ReplicationController asks for.
//
// It guarantees that a pass never acts on a cache that does not show its own earlier writes, so that it makes no pod too many and deletes none
// too many; that pods are adopted and released by selector and controller reference only after the owner was read afresh; and that pods go in the
// documented order. Status follows the pods that exist, not those that were asked for.
//
// Both kinds are one loop's code: a ReplicationController is read as the ReplicaSet that it amounts to.
package replicaset

import (
	"context"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/controllers/owned"
	"github.com/yare-project/yare/controllers/pod"
	"github.com/yare-project/yare/loop"
)

// burst bounds the pods made or deleted in one pass.
const burst = 500

// Descriptor declares the loop for ReplicaSets.
func Descriptor() loop.Descriptor {
	return describe("replicaset", appsv1.Resource("replicasets"), form[*appsv1.ReplicaSet]{
		kind: appsv1.SchemeGroupVersion.WithKind("ReplicaSet"),
		read: func(rs *appsv1.ReplicaSet) *appsv1.ReplicaSet { return rs },
		withStatus: func(rs *appsv1.ReplicaSet, s appsv1.ReplicaSetStatus) *appsv1.ReplicaSet {
			rs = rs.DeepCopy()
			rs.Status = s
			return rs
		},
		status: func(rs *appsv1.ReplicaSet) any { return rs.Status },
	})
}

// form is how the loop reads and writes one of its two kinds.
type form[T client.Object] struct {
	kind       schema.GroupVersionKind
	read       func(T) *appsv1.ReplicaSet
	withStatus func(T, appsv1.ReplicaSetStatus) T
	status     func(T) any
}

func describe[T client.Object](name string, r schema.GroupResource, f form[T]) loop.Descriptor {
	status := schema.GroupResource{Group: r.Group, Resource: r.Resource + "/status"}
	return loop.Descriptor{
		Name:  name,
		Reads: []loop.Access{{GroupResource: r}, {GroupResource: corev1.Resource("pods")}},
		Writes: []loop.Access{
			{GroupResource: status, Verbs: []string{"patch"}},
			{GroupResource: r, Verbs: []string{"update"}}, // blockOwnerDeletion needs it
			{GroupResource: corev1.Resource("pods"), Verbs: []string{"create", "delete", "patch"}},
		},
		Workers: 5,
		Start:   func(in loop.Inputs) (loop.Reconcile, error) { return start(in, f), nil },
	}
}

// controller is the thin shell: it reads caches, asks decide, and carries the decision out.
type controller[T client.Object] struct {
	form[T]
	in     loop.Inputs
	owners client.Cache[T]
	pods   client.Cache[*corev1.Pod]
	writes *owned.Writes[*corev1.Pod]
	podAPI client.API[*corev1.Pod]
	ownAPI client.API[T]
	saved  *owned.Writes[T]
}

func start[T client.Object](in loop.Inputs, f form[T]) loop.Reconcile {
	c := &controller[T]{form: f, in: in, owners: client.CacheOf[T](in.Caches, client.CacheOptions{}),
		pods:   client.CacheOf[*corev1.Pod](in.Caches, client.CacheOptions{}),
		podAPI: client.Of[*corev1.Pod](in.Transport), ownAPI: client.Of[T](in.Transport)}
	c.writes, c.saved = owned.NewWrites(c.pods), owned.NewWrites(c.owners)
	owned.AddIndexes(c.pods)
	c.owners.AddIndex(owned.ByController, owned.By[T])
	loop.EnqueueSelf(c.owners, in.Enqueue)
	c.pods.OnChange(c.podChanged)
	return c.reconcile
}

// podChanged wakes the owners that a pod had and has, or those that could adopt it.
func (c *controller[T]) podChanged(old, new *corev1.Pod) {
	for _, p := range []*corev1.Pod{old, new} {
		if p == nil {
			continue
		}
		if ref := metav1.GetControllerOfNoCopy(p); ref != nil {
			if ref.Kind == c.kind.Kind && ref.APIVersion == c.kind.GroupVersion().String() {
				c.in.Enqueue(loop.Key{Namespace: p.Namespace, Name: ref.Name})
			}
			continue
		}
		for _, o := range c.owners.List(p.Namespace) {
			if s, err := metav1.LabelSelectorAsSelector(c.read(o).Spec.Selector); err == nil && s.Matches(labels.Set(p.Labels)) {
				c.in.Enqueue(loop.KeyOf(o))
			}
		}
	}
}

func (c *controller[T]) reconcile(ctx context.Context, key loop.Key) (loop.Result, error) {
	owner, ok := c.owners.Get(key.Namespace, key.Name)
	if !ok {
		c.writes.Forget(key)
		c.saved.Forget(key)
		return loop.Result{}, nil
	}
	if !c.writes.Seen(key) || !c.saved.Seen(key) {
		return loop.Result{After: owned.Recheck}, nil
	}
	rs := c.read(owner)
	selector, err := metav1.LabelSelectorAsSelector(rs.Spec.Selector)
	if err != nil || selector.Empty() {
		c.in.Log.Warn("selector can't be used; the object is left alone", "key", key.String(), "error", err)
		return loop.Result{}, nil
	}
	pods, err := owned.Carry(ctx, owned.Find(c.pods, rs, selector), c.podAPI, owner, c.kind, c.ownAPI)
	if err != nil {
		return loop.Result{}, err
	}
	plan := decide(rs, pods, c.peers(rs), c.in.Clock.Now())
	failure := c.carry(ctx, key, owner, rs, plan)
	status, wait := statusOf(rs, pods, failure, c.in.Clock.Now())
	if err := c.writeStatus(ctx, owner, rs, status); err != nil {
		return loop.Result{}, err
	}
	if failure.err != nil {
		return loop.Result{}, failure.err
	}
	return loop.Result{After: wait}, nil
}

// peers counts, by node, the active pods of this set and of its siblings under one owner, such as the older sets of a Deployment.
func (c *controller[T]) peers(rs *appsv1.ReplicaSet) map[string]int {
	sets := []string{string(rs.UID)}
	if ref := metav1.GetControllerOfNoCopy(rs); ref != nil {
		sets = sets[:0]
		for _, s := range c.owners.By(owned.ByController, string(ref.UID)) {
			sets = append(sets, string(s.GetUID()))
		}
	}
	counts := map[string]int{}
	for _, uid := range sets {
		for _, p := range c.pods.By(owned.ByController, uid) {
			if pod.Active(p) {
				counts[p.Spec.NodeName]++
			}
		}
	}
	return counts
}

// failure is what went wrong while pods were made or deleted.
type failure struct {
	reason string
	err    error
}

func (c *controller[T]) carry(ctx context.Context, key loop.Key, owner T, rs *appsv1.ReplicaSet, plan plan) failure {
	if plan.create > 0 {
		ref := owned.Owner(rs, c.kind)
		_, err := owned.Batches(ctx, plan.create, func(int) error { return c.create(ctx, key, owner, rs, ref) })
		return failure{"FailedCreate", err}
	}
	_, err := owned.Batches(ctx, len(plan.remove), func(i int) error { return c.remove(ctx, key, owner, plan.remove[i]) })
	return failure{"FailedDelete", err}
}

func (c *controller[T]) create(ctx context.Context, key loop.Key, owner T, rs *appsv1.ReplicaSet, ref *metav1.OwnerReference) error {
	p, err := c.podAPI.Create(ctx, owned.NewPod(&rs.Spec.Template, rs.Namespace, rs.Name, ref))
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return nil // nothing can be made there, and the set goes too
	}
	if err != nil {
		c.in.Event(owner, corev1.EventTypeWarning, "FailedCreate", fmt.Sprintf("Error creating: %v", err))
		return fmt.Errorf("create pod: %w", err)
	}
	c.writes.Wrote(key, p)
	c.in.Event(owner, corev1.EventTypeNormal, "SuccessfulCreate", "Created pod: "+p.Name)
	return nil
}

func (c *controller[T]) remove(ctx context.Context, key loop.Key, owner T, p *corev1.Pod) error {
	err := c.podAPI.Delete(ctx, p.Namespace, p.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &p.UID}})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // that pod is gone
	}
	if err != nil {
		c.in.Event(owner, corev1.EventTypeWarning, "FailedDelete", fmt.Sprintf("Error deleting: %v", err))
		return fmt.Errorf("delete pod %s: %w", p.Name, err)
	}
	c.writes.Deleted(key, p)
	c.in.Event(owner, corev1.EventTypeNormal, "SuccessfulDelete", "Deleted pod: "+p.Name)
	return nil
}

func (c *controller[T]) writeStatus(ctx context.Context, owner T, rs *appsv1.ReplicaSet, status appsv1.ReplicaSetStatus) error {
	if c.kind.Kind == "ReplicationController" {
		status.TerminatingReplicas = nil // it has no such field
	}
	if equality.Semantic.DeepEqual(rs.Status, status) {
		return nil
	}
	updated, err := owned.PatchStatus(ctx, c.ownAPI, owner, c.status(owner), c.status(c.withStatus(owner, status)))
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("update status: %w", err)
	}
	c.saved.Wrote(loop.KeyOf(owner), updated)
	return nil
}

// plan is what a set lacks: pods to make, or pods to delete in order.
type plan struct {
	create int
	remove []*corev1.Pod
}

// decide compares a set with the pods that are its own.
func decide(rs *appsv1.ReplicaSet, pods []*corev1.Pod, peers map[string]int, now time.Time) plan {
	if rs.DeletionTimestamp != nil {
		return plan{}
	}
	active := slices.DeleteFunc(slices.Clone(pods), func(p *corev1.Pod) bool { return !pod.Active(p) })
	lacks := desired(rs) - len(active)
	if lacks >= 0 {
		return plan{create: min(lacks, burst)}
	}
	pod.RankForDeletion(active, peers, now)
	return plan{remove: active[:min(-lacks, burst)]}
}

func desired(rs *appsv1.ReplicaSet) int {
	if rs.Spec.Replicas == nil {
		return 1
	}
	return int(*rs.Spec.Replicas)
}
