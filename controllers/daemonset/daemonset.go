// Package daemonset keeps one pod of a DaemonSet on every node that it is meant for.
//
// Pods are bound to their node by a node affinity and placed by the scheduler. The loop guarantees at most one running pod per node, two while a rolling update
// with maxSurge replaces one; that an update takes no more than maxUnavailable pods away; and that pods which failed are replaced ever more slowly. A pass
// is a pure decision ([decide]) on the DaemonSet, the nodes and its pods.
package daemonset

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/controllers/history"
	"github.com/yare-project/yare/controllers/owned"
	"github.com/yare-project/yare/loop"
)

var kind = appsv1.SchemeGroupVersion.WithKind("DaemonSet")

// Descriptor declares the loop.
func Descriptor() loop.Descriptor {
	return loop.Descriptor{
		Name:  "daemon-set",
		Reads: []loop.Access{{GroupResource: appsv1.Resource("daemonsets")}, {GroupResource: corev1.Resource("pods")}, {GroupResource: corev1.Resource("nodes")}, {GroupResource: appsv1.Resource("controllerrevisions")}},
		Writes: []loop.Access{
			{GroupResource: appsv1.Resource("daemonsets"), Verbs: []string{"update"}},
			{GroupResource: appsv1.Resource("daemonsets/status"), Verbs: []string{"patch"}},
			{GroupResource: appsv1.Resource("daemonsets/finalizers"), Verbs: []string{"update"}},
			{GroupResource: corev1.Resource("pods"), Verbs: []string{"create", "delete", "patch"}},
			history.Access(),
		},
		Workers: 2,
		Start:   start,
	}
}

type controller struct {
	in     loop.Inputs
	sets   client.Cache[*appsv1.DaemonSet]
	pods   client.Cache[*corev1.Pod]
	nodes  client.Cache[*corev1.Node]
	api    client.API[*appsv1.DaemonSet]
	podAPI client.API[*corev1.Pod]
	saved  *owned.Writes[*appsv1.DaemonSet]
	writes *owned.Writes[*corev1.Pod]
	keeper *history.Keeper[*appsv1.DaemonSet]

	mu      sync.Mutex
	backoff map[place]*pause
}

// place is one DaemonSet on one node.
type place struct {
	set  types.UID
	node string
}

// pause is how long a failed pod of a place stays before it is replaced; it doubles while pods go on failing.
type pause struct {
	wait  time.Duration
	until time.Time
}

const (
	firstPause   = time.Second
	longestPause = 15 * time.Minute
)

func start(in loop.Inputs) (loop.Reconcile, error) {
	c := &controller{in: in, sets: client.CacheOf[*appsv1.DaemonSet](in.Caches, client.CacheOptions{}),
		pods:  client.CacheOf[*corev1.Pod](in.Caches, client.CacheOptions{}),
		nodes: client.CacheOf[*corev1.Node](in.Caches, client.CacheOptions{}),
		api:   client.Of[*appsv1.DaemonSet](in.Transport), podAPI: client.Of[*corev1.Pod](in.Transport), backoff: map[place]*pause{}}
	c.saved, c.writes = owned.NewWrites(c.sets), owned.NewWrites(c.pods)
	c.keeper = history.NewKeeper[*appsv1.DaemonSet](in, kind, appsv1.DefaultDaemonSetUniqueLabelKey)
	owned.AddIndexes(c.pods)
	loop.EnqueueSelf(c.sets, in.Enqueue)
	c.pods.OnChange(func(old, new *corev1.Pod) {
		for _, p := range []*corev1.Pod{old, new} {
			if p == nil {
				continue
			}
			if ref := metav1.GetControllerOfNoCopy(p); ref != nil && ref.Kind == kind.Kind {
				in.Enqueue(loop.Key{Namespace: p.Namespace, Name: ref.Name})
			}
		}
	})
	c.nodes.OnChange(func(old, new *corev1.Node) {
		if old != nil && new != nil && equality.Semantic.DeepEqual(old.Labels, new.Labels) && equality.Semantic.DeepEqual(old.Spec.Taints, new.Spec.Taints) {
			return
		}
		for _, ds := range c.sets.List("") { // which of them the node is for is what a pass finds out
			in.Enqueue(loop.KeyOf(ds))
		}
	})
	return c.reconcile, nil
}

func (c *controller) reconcile(ctx context.Context, key loop.Key) (loop.Result, error) {
	ds, ok := c.sets.Get(key.Namespace, key.Name)
	if !ok {
		c.saved.Forget(key)
		c.writes.Forget(key)
		c.keeper.Forget(key)
		return loop.Result{}, nil
	}
	if !c.saved.Seen(key) || !c.writes.Seen(key) || !c.keeper.Seen(key) {
		return loop.Result{After: owned.Recheck}, nil
	}
	selector, err := metav1.LabelSelectorAsSelector(ds.Spec.Selector)
	if err != nil || selector.Empty() {
		c.in.Event(ds, corev1.EventTypeWarning, "SelectingAll", "This daemon set is selecting all pods. A non-empty selector is required.")
		return loop.Result{}, nil
	}
	pods, err := owned.Carry(ctx, owned.Find(c.pods, ds, selector), c.podAPI, ds, kind, c.api)
	if err != nil {
		return loop.Result{}, err
	}
	if ds.DeletionTimestamp != nil {
		return loop.Result{}, nil
	}
	collisions := int32(0)
	if ds.Status.CollisionCount != nil {
		collisions = *ds.Status.CollisionCount
	}
	revision, all, err := c.keeper.Settle(ctx, ds, &ds.Spec.Template, selector, collisions)
	if errors.Is(err, history.ErrCollision) {
		status := *ds.Status.DeepCopy()
		status.CollisionCount = new(collisions + 1)
		return loop.Result{}, c.save(ctx, key, ds, status)
	}
	if err != nil {
		return loop.Result{}, err
	}
	hash := c.keeper.Hash(revision)
	p := decide(input{set: ds, nodes: c.nodes.List(""), pods: pods, hash: hash, now: c.in.Clock.Now(), pause: c.pause})
	if err := c.carry(ctx, key, ds, p, hash); err != nil {
		return loop.Result{}, err
	}
	live := map[string]bool{revision.Name: true}
	for _, pod := range pods {
		for _, r := range all {
			live[r.Name] = live[r.Name] || pod.Labels[appsv1.DefaultDaemonSetUniqueLabelKey] == c.keeper.Hash(r)
		}
	}
	return loop.Result{After: p.after}, c.keeper.Trim(ctx, key, all, live, ds.Spec.RevisionHistoryLimit)
}

// pause is how long the failed pod of a place still has to stay.
func (c *controller) pause(ds *appsv1.DaemonSet, node string) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.in.Clock.Now()
	at := place{ds.UID, node}
	p := c.backoff[at]
	if p == nil || now.Sub(p.until) > 2*longestPause {
		p = &pause{}
		c.backoff[at] = p
	}
	if now.Before(p.until) {
		return p.until.Sub(now)
	}
	p.wait = min(max(2*p.wait, firstPause), longestPause)
	p.until = now.Add(p.wait)
	return 0
}

func (c *controller) carry(ctx context.Context, key loop.Key, ds *appsv1.DaemonSet, p plan, hash string) error {
	for _, e := range p.events {
		c.in.Event(ds, e.kind, e.reason, e.message)
	}
	_, removed := owned.Batches(ctx, len(p.remove), func(i int) error {
		err := c.podAPI.Delete(ctx, p.remove[i].Namespace, p.remove[i].Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &p.remove[i].UID}})
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return nil
		}
		if err != nil {
			c.in.Event(ds, corev1.EventTypeWarning, "FailedDelete", fmt.Sprintf("Error deleting: %v", err))
			return fmt.Errorf("delete pod %s: %w", p.remove[i].Name, err)
		}
		c.writes.Deleted(key, p.remove[i])
		c.in.Event(ds, corev1.EventTypeNormal, "SuccessfulDelete", "Deleted pod: "+p.remove[i].Name)
		return nil
	})
	_, created := owned.Batches(ctx, len(p.create), func(i int) error {
		made, err := c.podAPI.Create(ctx, newPod(ds, p.create[i], hash))
		if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			return nil
		}
		if err != nil {
			c.in.Event(ds, corev1.EventTypeWarning, "FailedCreate", fmt.Sprintf("Error creating: %v", err))
			return fmt.Errorf("create pod for node %s: %w", p.create[i], err)
		}
		c.writes.Wrote(key, made)
		c.in.Event(ds, corev1.EventTypeNormal, "SuccessfulCreate", "Created pod: "+made.Name)
		return nil
	})
	return errors.Join(removed, created, c.save(ctx, key, ds, p.status))
}

func (c *controller) save(ctx context.Context, key loop.Key, ds *appsv1.DaemonSet, status appsv1.DaemonSetStatus) error {
	if equality.Semantic.DeepEqual(ds.Status, status) {
		return nil
	}
	updated, err := owned.PatchStatus(ctx, c.api, ds, ds.Status, status)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("update status: %w", err)
	}
	c.saved.Wrote(key, updated)
	return nil
}
