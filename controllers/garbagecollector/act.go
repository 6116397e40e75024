package garbagecollector

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/internal/resource"
)

// owners sorts an object's references by what became of whom they name.
type owners struct {
	solid    []metav1.OwnerReference // exist and stay
	dangling []metav1.OwnerReference // do not exist
	waiting  []metav1.OwnerReference // are being deleted and wait for this object to go first
}

// collect deletes an object that no owner keeps, or takes the references from it that keep nothing.
func (c *collector) collect(ctx context.Context, m *monitor, cached client.Object) error {
	if s, err := c.sort(ctx, m, cached); err != nil || len(s.dangling)+len(s.waiting) == 0 {
		return err
	}
	o, err := c.live(ctx, m, cached) // what is going to be changed or deleted is judged in its newest state
	if o == nil || o.GetDeletionTimestamp() != nil {
		return err
	}
	s, err := c.sort(ctx, m, o)
	if err != nil || len(s.dangling)+len(s.waiting) == 0 {
		return err
	}
	if len(s.solid) > 0 {
		gone := slices.Concat(s.dangling, s.waiting)
		return c.setOwners(ctx, m, o, slices.DeleteFunc(slices.Clone(o.GetOwnerReferences()), func(ref metav1.OwnerReference) bool {
			return slices.ContainsFunc(gone, func(g metav1.OwnerReference) bool { return g.UID == ref.UID })
		}))
	}
	if len(s.waiting) > 0 && len(c.graph.dependentsOf(o.GetUID())) > 0 {
		if c.circle(o) {
			return c.unblock(ctx, m, o)
		}
		return c.delete(ctx, m, o, metav1.DeletePropagationForeground)
	}
	return c.delete(ctx, m, o, policyOf(o))
}

// policyOf keeps a propagation that was asked for before by a finalizer on the object.
func policyOf(o client.Object) metav1.DeletionPropagation {
	switch {
	case hasFinalizer(o, metav1.FinalizerOrphanDependents):
		return metav1.DeletePropagationOrphan
	case hasFinalizer(o, metav1.FinalizerDeleteDependents):
		return metav1.DeletePropagationForeground
	}
	return metav1.DeletePropagationBackground
}

// sort judges every reference by cache and, for one that no cache shows, by the server.
func (c *collector) sort(ctx context.Context, m *monitor, o client.Object) (owners, error) {
	var s owners
	for _, ref := range o.GetOwnerReferences() {
		owner, ok := c.graph.cached(ref, o.GetNamespace())
		if !ok {
			exists, live, err := c.exists(ctx, m, ref, o)
			if err != nil {
				return s, err
			}
			if !exists {
				s.dangling = append(s.dangling, ref)
				continue
			}
			owner = live
		}
		if owner != nil && deletesDependents(owner) && blocks(ref) {
			s.waiting = append(s.waiting, ref)
		} else {
			s.solid = append(s.solid, ref)
		}
	}
	return s, nil
}

// exists asks the server for an owner that no cache shows.
func (c *collector) exists(ctx context.Context, m *monitor, ref metav1.OwnerReference, o client.Object) (bool, client.Object, error) {
	owner, namespace := c.graph.owner(ref, o.GetNamespace())
	coordinates := missing{ref.UID, ref.APIVersion, ref.Kind, ref.Name, namespace}
	if c.graph.isAbsent(coordinates) {
		return false, nil, nil
	}
	if owner == nil {
		return false, nil, fmt.Errorf("%s %s: owner %s %s %q can't be looked for: its kind is not served", m.GroupResource(), o.GetName(), ref.APIVersion, ref.Kind, ref.Name)
	}
	if owner.Namespaced && !m.Namespaced {
		c.in.Event(o, corev1.EventTypeWarning, "OwnerRefInvalidNamespace",
			fmt.Sprintf("ownerRef [%s/%s, namespace: , name: %s, uid: %s] does not exist in namespace %q", ref.APIVersion, ref.Kind, ref.Name, ref.UID, ""))
		return true, nil, nil
	}
	live, err := c.in.Transport.Get(ctx, resource.Ref{GroupVersionResource: owner.GroupVersionResource, Namespace: namespace, Name: ref.Name}, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return false, nil, fmt.Errorf("look for owner %s %q: %w", ref.Kind, ref.Name, err)
	}
	found, ok := live.(client.Object)
	if err == nil && ok && found.GetUID() == ref.UID {
		return true, found, nil
	}
	c.graph.markAbsent(coordinates)
	return false, nil, nil
}

// live reads the newest state; nil if the object is gone or another has its name.
func (c *collector) live(ctx context.Context, m *monitor, o client.Object) (client.Object, error) {
	now, err := c.in.Transport.Get(ctx, m.ref(o), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	found, ok := now.(client.Object)
	if !ok || found.GetUID() != o.GetUID() {
		return nil, nil
	}
	return found, nil
}

func (m *monitor) ref(o client.Object) resource.Ref {
	return resource.Ref{GroupVersionResource: m.GroupVersionResource, Namespace: o.GetNamespace(), Name: o.GetName()}
}

// circle tells whether a dependent of o waits for its own dependents already: then each would wait for the other.
func (c *collector) circle(o client.Object) bool {
	for _, key := range c.graph.dependentsOf(o.GetUID()) {
		if _, d, ok := c.graph.find(key); ok && deletesDependents(d) && slices.ContainsFunc(o.GetOwnerReferences(), blocks) {
			return true
		}
	}
	return false
}

func (c *collector) unblock(ctx context.Context, m *monitor, o client.Object) error {
	refs := slices.Clone(o.GetOwnerReferences())
	for i := range refs {
		refs[i].BlockOwnerDeletion = new(false)
	}
	return c.setOwners(ctx, m, o, refs)
}

// foreground lets an owner go once no dependent blocks it, and sends the others on their way.
func (c *collector) foreground(ctx context.Context, m *monitor, o client.Object) error {
	blocked := false
	for _, key := range c.graph.dependentsOf(o.GetUID()) {
		_, d, ok := c.graph.find(key)
		if !ok || !slices.ContainsFunc(d.GetOwnerReferences(), func(ref metav1.OwnerReference) bool { return ref.UID == o.GetUID() && blocks(ref) }) {
			continue
		}
		blocked = true
		if d.GetDeletionTimestamp() == nil {
			c.in.Enqueue(key)
		}
	}
	if blocked {
		return nil // the last one's removal wakes this key
	}
	return c.removeFinalizer(ctx, m, o, metav1.FinalizerDeleteDependents)
}

// orphan takes the reference to o from all that depend on it, and then lets o go.
func (c *collector) orphan(ctx context.Context, m *monitor, o client.Object) error {
	var failed []error
	for _, key := range c.graph.dependentsOf(o.GetUID()) {
		dm, d, ok := c.graph.find(key)
		if !ok {
			continue
		}
		refs := slices.DeleteFunc(slices.Clone(d.GetOwnerReferences()), func(ref metav1.OwnerReference) bool { return ref.UID == o.GetUID() })
		if len(refs) < len(d.GetOwnerReferences()) {
			failed = append(failed, c.setOwners(ctx, dm, d, refs))
		}
	}
	if err := errors.Join(failed...); err != nil {
		return err
	}
	return c.removeFinalizer(ctx, m, o, metav1.FinalizerOrphanDependents)
}

func (c *collector) removeFinalizer(ctx context.Context, m *monitor, o client.Object, name string) error {
	now, err := c.live(ctx, m, o)
	if now == nil || !hasFinalizer(now, name) {
		return err
	}
	rest := slices.DeleteFunc(slices.Clone(now.GetFinalizers()), func(f string) bool { return f == name })
	return c.patch(ctx, m, now, map[string]any{"finalizers": rest})
}

func (c *collector) setOwners(ctx context.Context, m *monitor, o client.Object, refs []metav1.OwnerReference) error {
	if refs == nil {
		refs = []metav1.OwnerReference{}
	}
	return c.patch(ctx, m, o, map[string]any{"ownerReferences": refs})
}

// patch changes metadata of exactly this state of o.
func (c *collector) patch(ctx context.Context, m *monitor, o client.Object, metadata map[string]any) error {
	metadata["uid"], metadata["resourceVersion"] = o.GetUID(), o.GetResourceVersion()
	body, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return err
	}
	_, err = c.in.Transport.Patch(ctx, m.ref(o), types.MergePatchType, body, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func (c *collector) delete(ctx context.Context, m *monitor, o client.Object, policy metav1.DeletionPropagation) error {
	uid, rv := o.GetUID(), o.GetResourceVersion()
	_, err := c.in.Transport.Delete(ctx, m.ref(o), metav1.DeleteOptions{PropagationPolicy: &policy, Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &rv}})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
