// Package endpointslice keeps the EndpointSlices of every Service that has a selector: which pods stand behind it, at which addresses and ports, and
// whether each may be given traffic.
//
// It guarantees that pods appear in the slices of their Service within one pass after their state changed; that a slice holds at most 100 endpoints
// and is rewritten only if one of its own changed; and that a Service always has at least one slice for each address family. It leaves
// slices that others manage alone.
package endpointslice

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/controllers/owned"
	"github.com/yare-project/yare/controllers/selection"
	"github.com/yare-project/yare/loop"
)

// ManagedBy is the value of the managed-by label of this loop's slices.
const ManagedBy = "endpointslice-controller.k8s.io"

var slicesResource = discoveryv1.Resource("endpointslices")

// Descriptor declares the loop.
func Descriptor() loop.Descriptor {
	return loop.Descriptor{
		Name: "endpointslice",
		Reads: []loop.Access{{GroupResource: corev1.Resource("services")}, {GroupResource: corev1.Resource("pods")},
			{GroupResource: corev1.Resource("nodes")}, {GroupResource: slicesResource}},
		Writes: []loop.Access{{GroupResource: slicesResource, Verbs: []string{"create", "update", "delete"}},
			{GroupResource: corev1.Resource("services/finalizers"), Verbs: []string{"update"}}},
		Workers: 5,
		Start:   start,
	}
}

type controller struct {
	in       loop.Inputs
	services client.Cache[*corev1.Service]
	nodes    client.Cache[*corev1.Node]
	slices   client.Cache[*discoveryv1.EndpointSlice]
	match    *selection.Matcher
	api      client.API[*discoveryv1.EndpointSlice]
	writes   *owned.Writes[*discoveryv1.EndpointSlice]
}

const byService = "endpointslice.service"

func start(in loop.Inputs) (loop.Reconcile, error) {
	c := &controller{in: in, services: client.CacheOf[*corev1.Service](in.Caches, client.CacheOptions{}),
		nodes:  client.CacheOf[*corev1.Node](in.Caches, client.CacheOptions{}),
		slices: client.CacheOf[*discoveryv1.EndpointSlice](in.Caches, client.CacheOptions{}),
		api:    client.Of[*discoveryv1.EndpointSlice](in.Transport)}
	c.writes = owned.NewWrites(c.slices)
	c.match = selection.NewMatcher(c.services, client.CacheOf[*corev1.Pod](in.Caches, client.CacheOptions{}))
	c.match.Watch(in.Enqueue)
	c.slices.AddIndex(byService, func(s *discoveryv1.EndpointSlice) []string {
		if s.Labels[discoveryv1.LabelManagedBy] != ManagedBy {
			return nil
		}
		return []string{s.Namespace + "/" + s.Labels[discoveryv1.LabelServiceName]}
	})
	c.slices.OnChange(func(old, new *discoveryv1.EndpointSlice) {
		for _, s := range []*discoveryv1.EndpointSlice{old, new} {
			if s != nil && s.Labels[discoveryv1.LabelManagedBy] == ManagedBy {
				in.Enqueue(loop.Key{Namespace: s.Namespace, Name: s.Labels[discoveryv1.LabelServiceName]})
			}
		}
	})
	c.nodes.OnChange(c.nodeChanged)
	return c.reconcile, nil
}

// nodeChanged wakes the Services of a node's pods when its zone changes: endpoints carry it.
func (c *controller) nodeChanged(old, new *corev1.Node) {
	if old != nil && new != nil && old.Labels[corev1.LabelTopologyZone] == new.Labels[corev1.LabelTopologyZone] {
		return
	}
	for _, p := range c.match.OnNode(client.Newest(old, new).Name) {
		c.match.Services(p, func(s *corev1.Service) { c.in.Enqueue(loop.KeyOf(s)) })
	}
}

func (c *controller) reconcile(ctx context.Context, key loop.Key) (loop.Result, error) {
	service, ok := c.services.Get(key.Namespace, key.Name)
	if !ok {
		c.writes.Forget(key) // its slices go with it: it owns them
		return loop.Result{}, nil
	}
	if !selection.Serves(service) || service.DeletionTimestamp != nil {
		return loop.Result{}, nil
	}
	if !c.writes.Seen(key) {
		return loop.Result{After: owned.Recheck}, nil
	}
	p := pack(service, desired(service, c.match.Pods(service), c.zone), c.slices.By(byService, key.String()))
	err := c.carry(ctx, key, p)
	if err != nil && !apierrors.IsConflict(err) && !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		c.in.Event(service, corev1.EventTypeWarning, "FailedToUpdateEndpointSlices",
			fmt.Sprintf("Error updating Endpoint Slices for Service %s/%s: %v", service.Namespace, service.Name, err))
	}
	return loop.Result{}, err
}

func (c *controller) zone(node string) string {
	if n, ok := c.nodes.Get("", node); ok {
		return n.Labels[corev1.LabelTopologyZone]
	}
	return ""
}

func (c *controller) carry(ctx context.Context, key loop.Key, p plan) error {
	var failed []error
	for _, s := range p.update {
		updated, err := c.api.Update(ctx, s)
		if err == nil {
			c.writes.Wrote(key, updated)
		}
		failed = append(failed, err)
	}
	for _, s := range p.create {
		created, err := c.api.Create(ctx, s)
		if err == nil {
			c.writes.Wrote(key, created)
		} else if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			err = nil
		}
		failed = append(failed, err)
	}
	for _, s := range p.remove {
		err := c.api.Delete(ctx, s.Namespace, s.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &s.UID}})
		if err == nil {
			c.writes.Deleted(key, s)
		}
		if !apierrors.IsNotFound(err) {
			failed = append(failed, err)
		}
	}
	for _, err := range failed {
		if err != nil && !apierrors.IsNotFound(err) {
			return errors.Join(failed...)
		}
	}
	return nil
}
