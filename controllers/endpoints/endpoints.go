// Package endpoints keeps the older Endpoints object of every Service that has a selector, for clients that do not know EndpointSlices.
//
// An Endpoints holds one address family, the Service's first, and at most 1,000 addresses; what was cut is marked by an annotation. Pods that are
// being deleted are left out, unless the Service publishes addresses that are not ready.
package endpoints

import (
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/controllers/owned"
	"github.com/yare-project/yare/controllers/selection"
	"github.com/yare-project/yare/loop"
)

// Name is what the Endpoints of this loop are labelled with.
const (
	managedByLabel = "endpoints.kubernetes.io/managed-by"
	managedBy      = "endpoint-controller"
)

// Descriptor declares the loop.
func Descriptor() loop.Descriptor {
	return loop.Descriptor{
		Name:  "endpoint",
		Reads: []loop.Access{{GroupResource: corev1.Resource("services")}, {GroupResource: corev1.Resource("pods")}, {GroupResource: corev1.Resource("endpoints")}},
		Writes: []loop.Access{{GroupResource: corev1.Resource("endpoints"), Verbs: []string{"create", "update", "delete"}},
			{GroupResource: corev1.Resource("endpoints/restricted"), Verbs: []string{"create"}}},
		Workers: 5,
		Start:   start,
	}
}

type controller struct {
	in        loop.Inputs
	services  client.Cache[*corev1.Service]
	endpoints client.Cache[*corev1.Endpoints]
	match     *selection.Matcher
	api       client.API[*corev1.Endpoints]
	writes    *owned.Writes[*corev1.Endpoints]
}

func start(in loop.Inputs) (loop.Reconcile, error) {
	c := &controller{in: in, services: client.CacheOf[*corev1.Service](in.Caches, client.CacheOptions{}),
		endpoints: client.CacheOf[*corev1.Endpoints](in.Caches, client.CacheOptions{}), api: client.Of[*corev1.Endpoints](in.Transport)}
	c.writes = owned.NewWrites(c.endpoints)
	c.match = selection.NewMatcher(c.services, client.CacheOf[*corev1.Pod](in.Caches, client.CacheOptions{}))
	c.match.Watch(in.Enqueue)
	loop.EnqueueSelf(c.endpoints, in.Enqueue)
	return c.reconcile, nil
}

func (c *controller) reconcile(ctx context.Context, key loop.Key) (loop.Result, error) {
	if !c.writes.Seen(key) {
		return loop.Result{After: owned.Recheck}, nil
	}
	service, ok := c.services.Get(key.Namespace, key.Name)
	have, exists := c.endpoints.Get(key.Namespace, key.Name)
	if !ok {
		// Those that somebody made by hand are left; this loop's own go with the Service.
		if exists && have.Labels[managedByLabel] == managedBy && have.DeletionTimestamp == nil {
			return loop.Result{}, c.remove(ctx, have)
		}
		return loop.Result{}, nil
	}
	if !selection.Serves(service) {
		return loop.Result{}, nil
	}
	want := &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	if exists {
		want = have.DeepCopy()
	}
	fill(want, service, c.match.Pods(service))
	if exists && equality.Semantic.DeepEqual(want, have) {
		return loop.Result{}, nil
	}
	return loop.Result{}, c.write(ctx, key, service, want, exists)
}

func (c *controller) remove(ctx context.Context, e *corev1.Endpoints) error {
	err := c.api.Delete(ctx, e.Namespace, e.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &e.UID}})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

func (c *controller) write(ctx context.Context, key loop.Key, s *corev1.Service, want *corev1.Endpoints, exists bool) error {
	write, reason, what := c.api.Create, "FailedToCreateEndpoint", "create"
	if exists {
		write, reason, what = c.api.Update, "FailedToUpdateEndpoint", "update"
	}
	e, err := write(ctx, want)
	switch {
	case err == nil:
		c.writes.Wrote(key, e)
		return nil
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return nil
	case !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err):
		c.in.Event(s, corev1.EventTypeWarning, reason, fmt.Sprintf("Failed to %s endpoint for service %s/%s: %v", what, s.Namespace, s.Name, err))
	}
	return fmt.Errorf("%s endpoints: %w", what, err)
}

// fill makes e say what the Service and its pods are; only what this loop owns of e is changed.
func fill(e *corev1.Endpoints, s *corev1.Service, pods []*corev1.Pod) {
	var cut bool
	e.Subsets, cut = truncate(subsets(s, pods))
	e.Labels = maps.Clone(s.Labels)
	if e.Labels == nil {
		e.Labels = map[string]string{}
	}
	e.Labels[managedByLabel] = managedBy
	delete(e.Labels, corev1.IsHeadlessService)
	if s.Spec.ClusterIP == corev1.ClusterIPNone {
		e.Labels[corev1.IsHeadlessService] = ""
	}
	if !cut {
		delete(e.Annotations, corev1.EndpointsOverCapacity)
		return
	}
	if e.Annotations == nil {
		e.Annotations = map[string]string{}
	}
	e.Annotations[corev1.EndpointsOverCapacity] = "truncated"
}
