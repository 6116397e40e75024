// Package namespace empties a namespace that is being deleted and then lets it go.
//
// Pods go first, so that nothing which they rely on (network policies, secrets, accounts) vanishes under them (KEP-5080); then everything else. The loop
// hears of each object that disappears from the shared caches and needs no timer to wait; before it finalizes a namespace it asks the server itself whether
// anything is left. What holds a deletion up stands in the namespace's conditions.
//
// Objects that another API server keeps are asked for, not cached: such a server may be dead, and then only its own objects wait for it.
package namespace

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/controllers/served"
	"github.com/yare-project/yare/internal/resource"
	"github.com/yare-project/yare/loop"
)

// again is when a deletion that failed in part, or that found something no cache showed, is tried again.
const again = time.Second

// patience is how soon another API server that could not say what it has, or did not let it go, is asked again.
const patience = 2 * time.Second

// Descriptor declares the loop; list says what can be in a namespace.
func Descriptor(list served.List) loop.Descriptor {
	return loop.Descriptor{
		Name:  "namespace",
		Reads: []loop.Access{{GroupResource: schema.GroupResource{Group: "*", Resource: "*"}}},
		Writes: []loop.Access{
			{GroupResource: schema.GroupResource{Group: "*", Resource: "*"}, Verbs: []string{"delete", "deletecollection"}},
			{GroupResource: corev1.Resource("namespaces/status"), Verbs: []string{"update"}},
			{GroupResource: corev1.Resource("namespaces/finalize"), Verbs: []string{"update"}},
		},
		Workers: 5,
		Start:   func(in loop.Inputs) (loop.Reconcile, error) { return start(in, list), nil },
	}
}

type controller struct {
	in         loop.Inputs
	list       served.List
	namespaces client.Cache[*corev1.Namespace]
	api        client.API[*corev1.Namespace]

	mu       sync.Mutex
	contents map[schema.GroupVersionResource]client.Cache[client.Object]
	reported map[string]time.Time // when a namespace's counts were last written
}

func start(in loop.Inputs, list served.List) loop.Reconcile {
	c := &controller{in: in, list: list, namespaces: client.CacheOf[*corev1.Namespace](in.Caches, client.CacheOptions{}),
		api: client.Of[*corev1.Namespace](in.Transport), contents: map[schema.GroupVersionResource]client.Cache[client.Object]{},
		reported: map[string]time.Time{}}
	c.namespaces.OnChange(func(old, new *corev1.Namespace) {
		if new == nil || new.DeletionTimestamp != nil {
			in.Enqueue(loop.KeyOf(client.Newest(old, new)))
		}
	})
	return c.reconcile
}

// content is the cache of one resource; its removals wake the namespaces that wait for them.
func (c *controller) content(r served.Resource) client.Cache[client.Object] {
	c.mu.Lock()
	defer c.mu.Unlock()
	cache, ok := c.contents[r.GroupVersionResource]
	if !ok {
		cache = client.CacheOfResource[client.Object](c.in.Caches, r.GroupVersionResource, client.CacheOptions{})
		cache.OnChange(func(old, new client.Object) {
			if old == nil {
				return
			}
			if ns, ok := c.namespaces.Get("", old.GetNamespace()); ok && ns.DeletionTimestamp != nil && (new == nil || len(new.GetFinalizers()) != len(old.GetFinalizers())) {
				c.in.Enqueue(loop.Key{Name: ns.Name})
			}
		})
		c.contents[r.GroupVersionResource] = cache
	}
	return cache
}

func (c *controller) reconcile(ctx context.Context, key loop.Key) (loop.Result, error) {
	ns, ok := c.namespaces.Get("", key.Name)
	if !ok {
		c.forget(key.Name)
	}
	if !ok || ns.DeletionTimestamp == nil || !slices.Contains(ns.Spec.Finalizers, corev1.FinalizerKubernetes) {
		return loop.Result{}, nil
	}
	var f findings
	resources, err := c.list(ctx)
	f.discovery = err
	resources = slices.DeleteFunc(resources, func(r served.Resource) bool {
		return !r.Namespaced || !r.Can("list", "delete") || !r.Remote && !r.Can("watch")
	})
	if err := c.sync(ctx, resources); err != nil {
		return loop.Result{}, err
	}
	c.empty(ctx, ns.Name, resources, &f)
	if f.left == 0 && f.discovery == nil && len(f.failed)+len(f.unreached) == 0 {
		c.verify(ctx, ns.Name, resources, &f)
	}
	wait, err := c.report(ctx, ns, f)
	if err != nil {
		return loop.Result{}, err
	}
	if err := errors.Join(f.failed...); err != nil {
		return loop.Result{}, err
	}
	if f.discovery != nil || len(f.unreached) > 0 {
		return loop.Result{After: patience}, nil // not after a back-off: that would outlast the other server's return by far
	}
	if f.unseen > 0 || f.remote > 0 {
		return loop.Result{After: again}, nil
	}
	if f.left > 0 {
		return loop.Result{After: wait}, nil // its removal wakes this loop
	}
	return loop.Result{}, c.finalize(ctx, ns)
}

// sync makes sure that every resource has a cache that is complete.
func (c *controller) sync(ctx context.Context, resources []served.Resource) error {
	for _, r := range resources {
		if r.Remote {
			continue
		}
		select {
		case <-c.content(r).Synced():
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// empty deletes what is there: pods, and once none is left, the rest.
func (c *controller) empty(ctx context.Context, namespace string, resources []served.Resource, f *findings) {
	pods := func(r served.Resource) bool { return r.GroupResource() == corev1.Resource("pods") }
	for _, first := range []bool{true, false} {
		for _, r := range resources {
			if pods(r) == first && r.Remote {
				c.emptyRemote(ctx, namespace, r, f)
			} else if pods(r) == first {
				c.emptyOf(ctx, namespace, r, f)
			}
		}
		if f.left > 0 || len(f.failed) > 0 {
			return
		}
	}
}

func (c *controller) emptyOf(ctx context.Context, namespace string, r served.Resource, f *findings) {
	objects := c.content(r).List(namespace)
	if len(objects) == 0 {
		return
	}
	f.count(r, objects)
	if !slices.ContainsFunc(objects, func(o client.Object) bool { return o.GetDeletionTimestamp() == nil }) {
		return
	}
	if err := c.delete(ctx, namespace, r, objects); err != nil {
		f.failed = append(f.failed, fmt.Errorf("delete %s: %w", r.GroupResource(), err))
	}
}

// emptyRemote does what emptyOf does to objects that another server keeps.
func (c *controller) emptyRemote(ctx context.Context, namespace string, r served.Resource, f *findings) {
	objects, err := c.remote(ctx, namespace, r)
	if err == nil && slices.ContainsFunc(objects, func(o client.Object) bool { return o.GetDeletionTimestamp() == nil }) {
		if err = c.delete(ctx, namespace, r, objects); err == nil {
			objects, err = c.remote(ctx, namespace, r)
		}
	}
	if err != nil {
		f.unreached = append(f.unreached, fmt.Errorf("delete %s: %w", r.GroupResource(), err))
	}
	if len(objects) > 0 {
		f.count(r, objects)
		f.remote += len(objects)
	}
}

func (c *controller) remote(ctx context.Context, namespace string, r served.Resource) ([]client.Object, error) {
	list, _, err := c.in.Transport.List(ctx, resource.Ref{GroupVersionResource: r.GroupVersionResource, Namespace: namespace}, metav1.ListOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil // the resource itself is gone
	}
	var out []client.Object
	for _, item := range list {
		if o, ok := item.(client.Object); ok {
			out = append(out, o)
		}
	}
	return out, err
}

func (c *controller) delete(ctx context.Context, namespace string, r served.Resource, objects []client.Object) error {
	background := metav1.DeletePropagationBackground // dependents in here go anyway; those elsewhere are the garbage collector's
	opts := metav1.DeleteOptions{PropagationPolicy: &background}
	ref := resource.Ref{GroupVersionResource: r.GroupVersionResource, Namespace: namespace}
	if r.Can("deletecollection") {
		return c.in.Transport.DeleteCollection(ctx, ref, opts, metav1.ListOptions{})
	}
	var failed []error
	for _, o := range objects {
		ref.Name = o.GetName()
		if _, err := c.in.Transport.Delete(ctx, ref, opts); !apierrors.IsNotFound(err) {
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}

// verify asks the server: a cache may not yet show what was created last.
func (c *controller) verify(ctx context.Context, namespace string, resources []served.Resource, f *findings) {
	for _, r := range resources {
		ref := resource.Ref{GroupVersionResource: r.GroupVersionResource, Namespace: namespace}
		objects, _, err := c.in.Transport.List(ctx, ref, metav1.ListOptions{Limit: 1})
		if apierrors.IsNotFound(err) {
			continue // the resource itself is gone
		}
		if err != nil && r.Remote {
			f.unreached = append(f.unreached, fmt.Errorf("list %s: %w", r.GroupResource(), err))
		} else if err != nil {
			f.failed = append(f.failed, fmt.Errorf("list %s: %w", r.GroupResource(), err))
		}
		f.unseen += len(objects)
	}
}

// report writes the conditions. Counts that fall are written once in a while only: wait says when this should be asked for again.
func (c *controller) report(ctx context.Context, ns *corev1.Namespace, f findings) (wait time.Duration, err error) {
	if f.left == 0 && f.unseen == 0 && len(f.failed)+len(f.unreached) == 0 && f.discovery == nil && len(ns.Status.Conditions) == 0 {
		return 0, nil // it was empty at once: nobody gets to see a condition
	}
	updated, now := ns.DeepCopy(), c.in.Clock.Now()
	updated.Status.Phase = corev1.NamespaceTerminating
	setConditions(&updated.Status, f, now)
	if equality.Semantic.DeepEqual(ns.Status, updated.Status) {
		return 0, nil
	}
	if wait := c.reportedAt(ns.Name).Add(again).Sub(now); wait > 0 && len(f.failed)+len(f.unreached) == 0 && f.discovery == nil {
		return wait, nil
	}
	_, err = c.api.UpdateStatus(ctx, updated)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return 0, nil // the change that came between wakes this loop
	}
	if err == nil {
		c.mu.Lock()
		c.reported[ns.Name] = now
		c.mu.Unlock()
	}
	return 0, err
}

func (c *controller) reportedAt(namespace string) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reported[namespace]
}

func (c *controller) forget(namespace string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.reported, namespace)
}

func (c *controller) finalize(ctx context.Context, ns *corev1.Namespace) error {
	now, err := c.api.Get(ctx, "", ns.Name)
	if err != nil || now.UID != ns.UID {
		return ignoreGone(err)
	}
	now = now.DeepCopy()
	now.Spec.Finalizers = slices.DeleteFunc(now.Spec.Finalizers, func(f corev1.FinalizerName) bool { return f == corev1.FinalizerKubernetes })
	ref := resource.Ref{GroupVersionResource: client.ResourceOf[*corev1.Namespace](), Name: ns.Name, Subresource: "finalize"}
	_, err = c.in.Transport.Update(ctx, ref, now, metav1.UpdateOptions{})
	return ignoreGone(err)
}

func ignoreGone(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
