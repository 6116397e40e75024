// Package owned is how a controller finds and keeps the objects that are its object's own: the controller reference, adoption of orphans that a selector
// matches, release of those that it no longer matches, and waiting for caches to show the controller's own writes.
package owned

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yare-project/yare/client"
)

// By returns the UID of obj's controller for use as a cache index: one value, none for an orphan.
func By[T client.Object](obj T) []string {
	if ref := metav1.GetControllerOfNoCopy(obj); ref != nil {
		return []string{string(ref.UID)}
	}
	return nil
}

// Orphans returns the namespace of an object without controller, for use as a cache index.
func Orphans[T client.Object](obj T) []string {
	if metav1.GetControllerOfNoCopy(obj) == nil {
		return []string{obj.GetNamespace()}
	}
	return nil
}

// Index names of a cache that Find reads.
const (
	ByController = client.SharedIndex + "controller"
	ByOrphanhood = client.SharedIndex + "orphans"
)

// AddIndexes prepares a cache for Find.
func AddIndexes[T client.Object](cache client.Cache[T]) {
	cache.AddIndex(ByController, By[T])
	cache.AddIndex(ByOrphanhood, Orphans[T])
}

// Claim is what Find leaves to do: what is owner's now, what to adopt and what to release.
type Claim[T client.Object] struct {
	Mine, Adopt, Release []T
}

// Find sorts the objects that are owner's or could be. Nothing is adopted by an owner that is being deleted, nor if it is deleted itself.
func Find[T client.Object](cache client.Cache[T], owner metav1.Object, selector labels.Selector) Claim[T] {
	var c Claim[T]
	for _, o := range cache.By(ByController, string(owner.GetUID())) {
		if selector.Matches(labels.Set(o.GetLabels())) || owner.GetDeletionTimestamp() != nil {
			c.Mine = append(c.Mine, o)
		} else {
			c.Release = append(c.Release, o)
		}
	}
	if owner.GetDeletionTimestamp() != nil {
		return c
	}
	for _, o := range cache.By(ByOrphanhood, owner.GetNamespace()) {
		if o.GetDeletionTimestamp() == nil && selector.Matches(labels.Set(o.GetLabels())) {
			c.Adopt = append(c.Adopt, o)
		}
	}
	return c
}

// Owner is a reference that makes obj the controller.
func Owner(obj metav1.Object, kind schema.GroupVersionKind) *metav1.OwnerReference {
	return metav1.NewControllerRef(obj, kind)
}

// Carry adopts and releases, and returns what is owner's afterwards. Before the first adoption it reads owner afresh through live, because a cached owner may
// have been deleted and replaced.
func Carry[T, O client.Object](ctx context.Context, c Claim[T], children client.API[T], owner O, kind schema.GroupVersionKind, live client.API[O]) ([]T, error) {
	mine := c.Mine
	var failed []error
	for _, o := range c.Release {
		failed = append(failed, release(ctx, children, o, owner.GetUID()))
	}
	if len(c.Adopt) > 0 {
		now, err := live.Get(ctx, owner.GetNamespace(), owner.GetName())
		if err != nil {
			return nil, fmt.Errorf("adopt for %s %s: %w", kind.Kind, owner.GetName(), err)
		}
		if now.GetUID() != owner.GetUID() || now.GetDeletionTimestamp() != nil {
			return nil, fmt.Errorf("adopt for %s %s: it was deleted meanwhile", kind.Kind, owner.GetName())
		}
	}
	for _, o := range c.Adopt {
		adopted, err := adopt(ctx, children, o, Owner(owner, kind))
		if apierrors.IsNotFound(err) || apierrors.IsInvalid(err) {
			continue // it is gone, or somebody else's by now
		}
		if err != nil {
			failed = append(failed, err)
			continue
		}
		mine = append(mine, adopted)
	}
	return mine, errors.Join(failed...)
}

func adopt[T client.Object](ctx context.Context, api client.API[T], o T, ref *metav1.OwnerReference) (T, error) {
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": o.GetUID(), "ownerReferences": []any{ref}}})
	if err != nil {
		return o, err
	}
	return api.Patch(ctx, o.GetNamespace(), o.GetName(), types.StrategicMergePatchType, body, "")
}

func release[T client.Object](ctx context.Context, api client.API[T], o T, owner types.UID) error {
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": o.GetUID(),
		"ownerReferences": []any{map[string]any{"$patch": "delete", "uid": owner}}}})
	if err != nil {
		return err
	}
	_, err = api.Patch(ctx, o.GetNamespace(), o.GetName(), types.StrategicMergePatchType, body, "")
	if apierrors.IsNotFound(err) || apierrors.IsInvalid(err) { // gone, or the reference is
		return nil
	}
	return err
}
