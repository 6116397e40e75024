package access

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"golang.org/x/sync/errgroup"

	"github.com/yare-project/yare/internal/resource"
)

// Bootstrap says what Ensure brings into a cluster beyond the defaults.
type Bootstrap struct {
	// Roles are ClusterRoles, ClusterRoleBindings, Roles and RoleBindings of the cluster's own loops.
	Roles []runtime.Object
	// Authentication, if not nil, is published for extending API servers.
	Authentication *Authentication
	Log            *slog.Logger
}

// Ensure creates the namespaces, priority classes, roles and bindings that a cluster starts with, and adds to roles and bindings what
// they lack. It takes nothing away, and leaves alone an object whose annotation rbac.authorization.kubernetes.io/autoupdate is "false".
// It may run on several servers at once, and as often as one likes.
func Ensure(ctx context.Context, api API, b Bootstrap) error {
	if b.Log == nil {
		b.Log = slog.Default()
	}
	e := &ensurer{api: api, log: b.Log}
	// Namespaces first: nothing can be made in one that is not there.
	if err := e.all(ctx, namespaceObjects()); err != nil {
		return err
	}
	objects := defaults()
	objects = append(objects, b.Roles...)
	if b.Authentication != nil {
		facts, err := b.Authentication.configMap()
		if err != nil {
			return err
		}
		objects = append(objects, facts)
	}
	return e.all(ctx, objects)
}

func namespaceObjects() []runtime.Object {
	var out []runtime.Object
	for _, name := range Namespaces() {
		out = append(out, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	return out
}

func defaults() []runtime.Object {
	var out []runtime.Object
	for _, r := range slices.Concat(userRoles(), systemRoles(), certificateRoles()) {
		out = append(out, r)
	}
	for _, r := range clusterBindings() {
		out = append(out, r)
	}
	for _, r := range namespaceRoles() {
		out = append(out, r)
	}
	for _, r := range namespaceBindings() {
		out = append(out, r)
	}
	for _, c := range priorityClasses() {
		out = append(out, c)
	}
	return out
}

type ensurer struct {
	api API
	log *slog.Logger
}

// resourceOf knows the kinds that a cluster is bootstrapped with.
func resourceOf(obj runtime.Object) (schema.GroupVersionResource, bool) {
	switch obj.(type) {
	case *corev1.Namespace:
		return corev1.SchemeGroupVersion.WithResource("namespaces"), true
	case *corev1.ConfigMap:
		return corev1.SchemeGroupVersion.WithResource("configmaps"), true
	case *schedulingv1.PriorityClass:
		return schedulingv1.SchemeGroupVersion.WithResource("priorityclasses"), true
	case *rbacv1.ClusterRole:
		return rbacv1.SchemeGroupVersion.WithResource("clusterroles"), true
	case *rbacv1.ClusterRoleBinding:
		return rbacv1.SchemeGroupVersion.WithResource("clusterrolebindings"), true
	case *rbacv1.Role:
		return rbacv1.SchemeGroupVersion.WithResource("roles"), true
	case *rbacv1.RoleBinding:
		return rbacv1.SchemeGroupVersion.WithResource("rolebindings"), true
	}
	return schema.GroupVersionResource{}, false
}

// all ensures objects, many at a time, so that the store commits them in few batches.
func (e *ensurer) all(ctx context.Context, objects []runtime.Object) error {
	known, err := e.existing(ctx, objects)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(64)
	for _, obj := range objects {
		group.Go(func() error { return e.one(ctx, obj, known) })
	}
	return group.Wait()
}

// existing lists what is there of the objects' resources.
func (e *ensurer) existing(ctx context.Context, objects []runtime.Object) (map[resource.Ref]runtime.Object, error) {
	known := map[resource.Ref]runtime.Object{}
	listed := map[resource.Ref]bool{}
	for _, obj := range objects {
		ref, err := refOf(obj)
		if err != nil {
			return nil, err
		}
		from := resource.Ref{GroupVersionResource: ref.GroupVersionResource}
		if listed[from] {
			continue
		}
		if ref.Resource == "configmaps" { // there may be many of others', so the one that matters is read by name
			item, err := e.api.Get(ctx, ref, metav1.GetOptions{})
			if err == nil {
				known[ref] = item
			} else if !apierrors.IsNotFound(err) {
				return nil, fmt.Errorf("access: read %s: %w", key(ref), err)
			}
			continue
		}
		listed[from] = true
		items, _, err := e.api.List(ctx, from, metav1.ListOptions{})
		if err != nil {
			return nil, fmt.Errorf("access: list %s: %w", from.Resource, err)
		}
		for _, item := range items {
			at, err := refOf(item)
			if err != nil {
				return nil, err
			}
			known[at] = item
		}
	}
	return known, nil
}

func refOf(obj runtime.Object) (resource.Ref, error) {
	gvr, ok := resourceOf(obj)
	if !ok {
		return resource.Ref{}, fmt.Errorf("access: %T is nothing that a cluster is bootstrapped with", obj)
	}
	m, err := meta.Accessor(obj)
	if err != nil {
		return resource.Ref{}, fmt.Errorf("access: %w", err)
	}
	return resource.Ref{GroupVersionResource: gvr, Namespace: m.GetNamespace(), Name: m.GetName()}, nil
}

// one ensures an object, again when somebody else writes it at the same time.
func (e *ensurer) one(ctx context.Context, want runtime.Object, known map[resource.Ref]runtime.Object) error {
	ref, err := refOf(want)
	if err != nil {
		return err
	}
	have := known[ref]
	for range 5 {
		if have == nil {
			err = e.create(ctx, ref, want)
		} else {
			err = e.reconcile(ctx, ref, have, want)
		}
		if !apierrors.IsAlreadyExists(err) && !apierrors.IsConflict(err) {
			break
		}
		var readErr error
		if have, readErr = e.api.Get(ctx, ref, metav1.GetOptions{}); apierrors.IsNotFound(readErr) {
			have = nil
		} else if readErr != nil {
			return fmt.Errorf("access: read %s %s: %w", ref.Resource, key(ref), readErr)
		}
	}
	if err != nil {
		return fmt.Errorf("access: ensure %s %s: %w", ref.Resource, key(ref), err)
	}
	return nil
}

func key(ref resource.Ref) types.NamespacedName {
	return types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}
}

func (e *ensurer) create(ctx context.Context, ref resource.Ref, obj runtime.Object) error {
	collection := ref
	collection.Name = ""
	_, err := e.api.Create(ctx, collection, obj.DeepCopyObject(), metav1.CreateOptions{})
	return err
}

// errReplace says that a binding gives another role than it should, which an update cannot change.
var errReplace = errors.New("binding must be replaced")

func (e *ensurer) reconcile(ctx context.Context, ref resource.Ref, have, want runtime.Object) error {
	merged, changed, err := merge(have, want)
	switch {
	case errors.Is(err, errReplace):
		e.log.Info("default binding gives another role and is replaced", "binding", key(ref))
		if _, err := e.api.Delete(ctx, ref, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		return e.create(ctx, ref, want)
	case err != nil || !changed:
		return err
	}
	_, err = e.api.Update(ctx, ref, merged, metav1.UpdateOptions{})
	return err
}
