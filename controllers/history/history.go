// Package history keeps the templates that a StatefulSet or DaemonSet had as ControllerRevisions, in the form that kubectl rollout history and undo read.
//
// A template that comes again finds its old revision, which then becomes the newest. What the data says decides, not its name.
package history

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/controllers/owned"
	"github.com/yare-project/yare/loop"
)

// ErrCollision says that another template's revision has the name that this one's would get: raise the owner's collision count and try again.
var ErrCollision = errors.New("history: the revision's name is taken by another template")

// Access is what a loop that keeps a history declares to write.
func Access() loop.Access {
	return loop.Access{GroupResource: appsv1.Resource("controllerrevisions"), Verbs: []string{"create", "patch", "delete", "list", "watch"}}
}

// Keeper keeps the history of objects of one kind.
type Keeper[O client.Object] struct {
	kind      schema.GroupVersionKind
	hashLabel string
	live      client.API[O]
	api       client.API[*appsv1.ControllerRevision]
	cache     client.Cache[*appsv1.ControllerRevision]
	writes    *owned.Writes[*appsv1.ControllerRevision]
}

// NewKeeper wires a keeper into a loop; hashLabel is the label that holds a revision's hash. Changed revisions wake their owners.
func NewKeeper[O client.Object](in loop.Inputs, kind schema.GroupVersionKind, hashLabel string) *Keeper[O] {
	k := &Keeper[O]{kind: kind, hashLabel: hashLabel, live: client.Of[O](in.Transport), api: client.Of[*appsv1.ControllerRevision](in.Transport),
		cache: client.CacheOf[*appsv1.ControllerRevision](in.Caches, client.CacheOptions{})}
	k.writes = owned.NewWrites(k.cache)
	owned.AddIndexes(k.cache)
	k.cache.OnChange(func(old, new *appsv1.ControllerRevision) {
		if ref := metav1.GetControllerOfNoCopy(client.Newest(old, new)); ref != nil && ref.Kind == kind.Kind {
			in.Enqueue(loop.Key{Namespace: client.Newest(old, new).Namespace, Name: ref.Name})
		}
	})
	return k
}

// Seen tells whether the cache shows the keeper's own writes for a key.
func (k *Keeper[O]) Seen(key loop.Key) bool { return k.writes.Seen(key) }

// Forget drops what is noted for a key.
func (k *Keeper[O]) Forget(key loop.Key) { k.writes.Forget(key) }

// Settle returns the revision of a template, making it or making it the newest if need be, and all revisions, oldest first.
func (k *Keeper[O]) Settle(ctx context.Context, owner O, template *corev1.PodTemplateSpec, selector labels.Selector, collisions int32) (current *appsv1.ControllerRevision, all []*appsv1.ControllerRevision, err error) {
	all, err = owned.Carry(ctx, owned.Find(k.cache, owner, selector), k.api, owner, k.kind, k.live)
	if err != nil {
		return nil, nil, err
	}
	slices.SortFunc(all, func(a, b *appsv1.ControllerRevision) int {
		if a.Revision != b.Revision {
			return int(a.Revision - b.Revision)
		}
		return strings.Compare(a.Name, b.Name)
	})
	data, err := dataOf(template)
	if err != nil {
		return nil, nil, err
	}
	newest := int64(0)
	for _, r := range all {
		if same(r.Data.Raw, data) {
			current = r
		}
		newest = max(newest, r.Revision)
	}
	key := loop.KeyOf(owner)
	if current == nil {
		if current, err = k.create(ctx, owner, template, data, newest+1, collisions); err != nil {
			return nil, nil, err
		}
		k.writes.Wrote(key, current)
		return current, append(all, current), nil
	}
	if current.Revision < newest {
		body, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": current.UID}, "revision": newest + 1})
		if err != nil {
			return nil, nil, err
		}
		raised, err := k.api.Patch(ctx, current.Namespace, current.Name, types.MergePatchType, body, "")
		if err != nil {
			return nil, nil, fmt.Errorf("make revision %s the newest: %w", current.Name, err)
		}
		k.writes.Wrote(key, raised)
		all = append(slices.DeleteFunc(all, func(r *appsv1.ControllerRevision) bool { return r == current }), raised)
		current = raised
	}
	return current, all, nil
}

func (k *Keeper[O]) create(ctx context.Context, owner O, template *corev1.PodTemplateSpec, data []byte, revision int64, collisions int32) (*appsv1.ControllerRevision, error) {
	hash := hashOf(data, collisions)
	r := &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{Namespace: owner.GetNamespace(), Name: owner.GetName() + "-" + hash, Labels: maps.Clone(template.Labels),
			Annotations: maps.Clone(owner.GetAnnotations()), OwnerReferences: []metav1.OwnerReference{*owned.Owner(owner, k.kind)}},
		Data: runtime.RawExtension{Raw: data}, Revision: revision,
	}
	delete(r.Annotations, corev1.LastAppliedConfigAnnotation)
	if r.Labels == nil {
		r.Labels = map[string]string{}
	}
	r.Labels[k.hashLabel] = hash
	made, err := k.api.Create(ctx, r)
	if !apierrors.IsAlreadyExists(err) {
		return made, err
	}
	there, err := k.api.Get(ctx, r.Namespace, r.Name)
	if err != nil {
		return nil, err
	}
	if metav1.IsControlledBy(there, owner) && same(there.Data.Raw, data) {
		return there, nil // an earlier pass made it
	}
	return nil, ErrCollision
}

// Trim deletes the oldest revisions beyond limit that are not live.
func (k *Keeper[O]) Trim(ctx context.Context, key loop.Key, all []*appsv1.ControllerRevision, live map[string]bool, limit *int32) error {
	if limit == nil {
		return nil
	}
	old := slices.DeleteFunc(slices.Clone(all), func(r *appsv1.ControllerRevision) bool { return live[r.Name] || r.DeletionTimestamp != nil })
	for _, r := range old[:max(0, len(old)-int(*limit))] {
		err := k.api.Delete(ctx, r.Namespace, r.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &r.UID}})
		if err == nil {
			k.writes.Deleted(key, r)
		} else if !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return fmt.Errorf("delete old revision %s: %w", r.Name, err)
		}
	}
	return nil
}

// Hash is a revision's label value.
func (k *Keeper[O]) Hash(r *appsv1.ControllerRevision) string { return r.Labels[k.hashLabel] }

// dataOf is a template as the patch that restores it: that is how kubectl rolls back.
func dataOf(template *corev1.PodTemplateSpec) ([]byte, error) {
	raw, err := json.Marshal(template)
	if err != nil {
		return nil, err
	}
	var fields map[string]any
	if err := json.Unmarshal(raw, &fields); err != nil {
		return nil, err
	}
	fields["$patch"] = "replace"
	return json.Marshal(map[string]any{"spec": map[string]any{"template": fields}})
}

// TemplateOf reads a revision's template back.
func TemplateOf(r *appsv1.ControllerRevision) (*corev1.PodTemplateSpec, error) {
	var data struct {
		Spec struct {
			Template corev1.PodTemplateSpec `json:"template"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(r.Data.Raw, &data); err != nil {
		return nil, fmt.Errorf("revision %s can't be read: %w", r.Name, err)
	}
	return &data.Spec.Template, nil
}

func same(a, b []byte) bool {
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && equality.Semantic.DeepEqual(x, y)
}

func hashOf(data []byte, collisions int32) string {
	h := fnv.New32a()
	h.Write(data)
	if collisions > 0 {
		fmt.Fprintf(h, "/%d", collisions)
	}
	return rand.SafeEncodeString(strconv.FormatUint(uint64(h.Sum32()), 10))
}
