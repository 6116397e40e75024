// Package endpointmirror turns Endpoints that somebody made by hand, for a Service without selector, into EndpointSlices: proxies and DNS read only those.
//
// Endpoints of a Service with a selector, those labelled endpointslice.kubernetes.io/skip-mirror=true and those that hold an election are not
// mirrored. Of a subset, the first 1,000 addresses of each family are.
package endpointmirror

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/controllers/owned"
	"github.com/yare-project/yare/loop"
)

const (
	managedBy = "endpointslicemirroring-controller.k8s.io"
	election  = "control-plane.alpha.kubernetes.io/leader"
	perSubset = 1000
)

// Descriptor declares the loop.
func Descriptor() loop.Descriptor {
	slicesResource := discoveryv1.Resource("endpointslices")
	return loop.Descriptor{
		Name:   "endpointslicemirroring",
		Reads:  []loop.Access{{GroupResource: corev1.Resource("services")}, {GroupResource: corev1.Resource("endpoints")}, {GroupResource: slicesResource}},
		Writes: []loop.Access{{GroupResource: slicesResource, Verbs: []string{"create", "update", "delete"}}},
		Start:  start,
	}
}

const byService = "endpointmirror.service"

type controller struct {
	services  client.Cache[*corev1.Service]
	endpoints client.Cache[*corev1.Endpoints]
	slices    client.Cache[*discoveryv1.EndpointSlice]
	api       client.API[*discoveryv1.EndpointSlice]
	writes    *owned.Writes[*discoveryv1.EndpointSlice]
}

func start(in loop.Inputs) (loop.Reconcile, error) {
	c := &controller{services: client.CacheOf[*corev1.Service](in.Caches, client.CacheOptions{}),
		endpoints: client.CacheOf[*corev1.Endpoints](in.Caches, client.CacheOptions{}),
		slices:    client.CacheOf[*discoveryv1.EndpointSlice](in.Caches, client.CacheOptions{}), api: client.Of[*discoveryv1.EndpointSlice](in.Transport)}
	c.writes = owned.NewWrites(c.slices)
	c.slices.AddIndex(byService, func(s *discoveryv1.EndpointSlice) []string {
		if s.Labels[discoveryv1.LabelManagedBy] != managedBy {
			return nil
		}
		return []string{s.Namespace + "/" + s.Labels[discoveryv1.LabelServiceName]}
	})
	loop.EnqueueSelf(c.services, in.Enqueue)
	loop.EnqueueSelf(c.endpoints, in.Enqueue)
	c.slices.OnChange(func(old, new *discoveryv1.EndpointSlice) {
		if s := client.Newest(old, new); s.Labels[discoveryv1.LabelManagedBy] == managedBy {
			in.Enqueue(loop.Key{Namespace: s.Namespace, Name: s.Labels[discoveryv1.LabelServiceName]})
		}
	})
	return c.reconcile, nil
}

func (c *controller) reconcile(ctx context.Context, key loop.Key) (loop.Result, error) {
	if !c.writes.Seen(key) {
		return loop.Result{After: owned.Recheck}, nil
	}
	have := c.slices.By(byService, key.String())
	want := map[string]*discoveryv1.EndpointSlice{}
	s, ok := c.services.Get(key.Namespace, key.Name)
	e, there := c.endpoints.Get(key.Namespace, key.Name)
	if ok && there && mirrored(s, e) {
		want = slicesOf(e)
	}
	var failed []error
	for _, slice := range have {
		w := want[slice.Name]
		delete(want, slice.Name)
		failed = append(failed, c.settle(ctx, key, slice, w))
	}
	for _, w := range want {
		made, err := c.api.Create(ctx, w)
		if err == nil {
			c.writes.Wrote(key, made)
		} else if !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			failed = append(failed, fmt.Errorf("mirror endpoints: %w", err))
		}
	}
	return loop.Result{}, errors.Join(failed...)
}

// settle makes a slice say what is wanted; nil means that it should not be.
func (c *controller) settle(ctx context.Context, key loop.Key, have, want *discoveryv1.EndpointSlice) error {
	if want == nil || want.AddressType != have.AddressType {
		err := c.api.Delete(ctx, have.Namespace, have.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &have.UID}})
		if err == nil {
			c.writes.Deleted(key, have)
		}
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return nil
		}
		return err
	}
	if equality.Semantic.DeepEqual(have.Endpoints, want.Endpoints) && equality.Semantic.DeepEqual(have.Ports, want.Ports) && maps.Equal(have.Labels, want.Labels) {
		return nil
	}
	changed := have.DeepCopy()
	changed.Endpoints, changed.Ports, changed.Labels = want.Endpoints, want.Ports, want.Labels
	updated, err := c.api.Update(ctx, changed)
	if err == nil {
		c.writes.Wrote(key, updated)
	}
	return err
}

func mirrored(s *corev1.Service, e *corev1.Endpoints) bool {
	_, elects := e.Annotations[election]
	return len(s.Spec.Selector) == 0 && s.DeletionTimestamp == nil && e.DeletionTimestamp == nil && e.Labels[discoveryv1.LabelSkipMirror] != "true" && !elects
}

// slicesOf are the slices of hand-made Endpoints, by names that derive from their place: one for each subset and address family.
func slicesOf(e *corev1.Endpoints) map[string]*discoveryv1.EndpointSlice {
	out := map[string]*discoveryv1.EndpointSlice{}
	for i, subset := range e.Subsets {
		for _, family := range []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6} {
			endpoints := slices.Concat(endpointsOf(subset.Addresses, family, true), endpointsOf(subset.NotReadyAddresses, family, false))
			if len(endpoints) == 0 {
				continue
			}
			name := fmt.Sprintf("%s-mirror-%d-%s", e.Name, i, map[discoveryv1.AddressType]string{discoveryv1.AddressTypeIPv4: "4", discoveryv1.AddressTypeIPv6: "6"}[family])
			out[name] = &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: name, Labels: labelsOf(e),
				OwnerReferences: []metav1.OwnerReference{*owned.Owner(e, corev1.SchemeGroupVersion.WithKind("Endpoints"))}},
				AddressType: family, Ports: portsOf(subset.Ports), Endpoints: endpoints[:min(len(endpoints), perSubset)]}
		}
	}
	return out
}

func labelsOf(e *corev1.Endpoints) map[string]string {
	out := maps.Clone(e.Labels)
	if out == nil {
		out = map[string]string{}
	}
	out[discoveryv1.LabelServiceName], out[discoveryv1.LabelManagedBy] = e.Name, managedBy
	return out
}

func portsOf(in []corev1.EndpointPort) []discoveryv1.EndpointPort {
	out := []discoveryv1.EndpointPort{}
	for _, p := range in {
		protocol := p.Protocol
		if protocol == "" {
			protocol = corev1.ProtocolTCP
		}
		out = append(out, discoveryv1.EndpointPort{Name: &p.Name, Port: &p.Port, Protocol: &protocol, AppProtocol: p.AppProtocol})
	}
	return out
}

func endpointsOf(addresses []corev1.EndpointAddress, family discoveryv1.AddressType, ready bool) []discoveryv1.Endpoint {
	var out []discoveryv1.Endpoint
	for _, a := range addresses {
		ip, err := netip.ParseAddr(a.IP)
		if err != nil || ip.Is6() != (family == discoveryv1.AddressTypeIPv6) {
			continue
		}
		e := discoveryv1.Endpoint{Addresses: []string{a.IP}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}, TargetRef: a.TargetRef, NodeName: a.NodeName}
		if a.Hostname != "" {
			e.Hostname = &a.Hostname
		}
		out = append(out, e)
	}
	return out
}
