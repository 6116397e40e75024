// Package servicecidr keeps the ranges of Services' addresses in order: a ServiceCIDR that may be allocated from says so, one that is deleted
// stays as long as an address would be in no range without it, and Services and IPAddresses agree.
//
// The API server makes and deletes a Service's IPAddresses in the transaction that writes the Service, so that they disagree only when somebody
// deleted or made an IPAddress by hand, or a Service is older than IPAddresses are. The first is put right at once, all once at the start.
package servicecidr

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/loop"
)

var (
	services  = corev1.Resource("services")
	ranges    = schema.GroupResource{Group: networkingv1.GroupName, Resource: "servicecidrs"}
	status    = schema.GroupResource{Group: networkingv1.GroupName, Resource: "servicecidrs/status"}
	addresses = schema.GroupResource{Group: networkingv1.GroupName, Resource: "ipaddresses"}
)

// Keys of services have a namespace, those of ranges none; those of addresses this one, which is no name.
const ofAddresses = "*"

// Descriptor declares the loop.
func Descriptor() loop.Descriptor {
	return loop.Descriptor{
		Name:  "service-cidr-controller",
		Reads: []loop.Access{{GroupResource: services}, {GroupResource: ranges}, {GroupResource: addresses}},
		Writes: []loop.Access{{GroupResource: ranges, Verbs: []string{"update"}}, {GroupResource: status, Verbs: []string{"update"}},
			{GroupResource: addresses, Verbs: []string{"create", "delete"}}},
		Start: func(in loop.Inputs) (loop.Reconcile, error) { return start(in), nil },
	}
}

type keeper struct {
	in        loop.Inputs
	services  client.Cache[*corev1.Service]
	ranges    client.Cache[*networkingv1.ServiceCIDR]
	addresses client.Cache[*networkingv1.IPAddress]
}

func start(in loop.Inputs) loop.Reconcile {
	k := &keeper{in: in,
		services:  client.CacheOf[*corev1.Service](in.Caches, client.CacheOptions{}),
		ranges:    client.CacheOf[*networkingv1.ServiceCIDR](in.Caches, client.CacheOptions{}),
		addresses: client.CacheOf[*networkingv1.IPAddress](in.Caches, client.CacheOptions{}),
	}
	k.ranges.OnChange(func(_, new *networkingv1.ServiceCIDR) {
		if new != nil {
			in.Enqueue(loop.Key{Name: new.Name})
		}
		k.wakeDeleted() // a new range may hold what keeps another
	})
	k.services.OnChange(func(old, new *corev1.Service) {
		if old == nil && new != nil && len(addressesOf(new)) > 0 {
			in.Enqueue(loop.KeyOf(new))
		}
	})
	k.addresses.OnChange(func(old, new *networkingv1.IPAddress) {
		if new != nil && old == nil {
			in.Enqueue(loop.Key{Namespace: ofAddresses, Name: new.Name})
			return
		}
		if new != nil {
			return
		}
		k.wakeDeleted()
		if namespace, name, ok := holder(old); ok {
			in.Enqueue(loop.Key{Namespace: namespace, Name: name})
		}
	})
	return func(ctx context.Context, key loop.Key) (loop.Result, error) {
		switch key.Namespace {
		case "":
			return k.keep(ctx, key.Name)
		case ofAddresses:
			return loop.Result{}, k.orphan(ctx, key.Name)
		}
		return loop.Result{}, k.repair(ctx, key)
	}
}

// wakeDeleted looks again at the ranges that wait to go.
func (k *keeper) wakeDeleted() {
	for _, c := range k.ranges.List("") {
		if c.DeletionTimestamp != nil {
			k.in.Enqueue(loop.Key{Name: c.Name})
		}
	}
}

// keep carries out what a range needs.
func (k *keeper) keep(ctx context.Context, name string) (loop.Result, error) {
	c, ok := k.ranges.Get("", name)
	if !ok {
		return loop.Result{}, nil
	}
	var held []netip.Addr
	if c.DeletionTimestamp != nil {
		held = k.held()
	}
	s := next(c, k.ranges.List(""), held, k.in.Clock.Now())
	changed, api, err := c.DeepCopy(), client.Of[*networkingv1.ServiceCIDR](k.in.Transport), error(nil)
	switch {
	case s.protect:
		changed.Finalizers = append(changed.Finalizers, finalizer)
		_, err = api.Update(ctx, changed)
	case s.release:
		changed.Finalizers = slices.DeleteFunc(changed.Finalizers, func(f string) bool { return f == finalizer })
		_, err = api.Update(ctx, changed)
	case s.condition != nil:
		meta.SetStatusCondition(&changed.Status.Conditions, *s.condition)
		_, err = api.UpdateStatus(ctx, changed)
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return loop.Result{}, fmt.Errorf("ServiceCIDR %s: %w", name, err)
	}
	return loop.Result{After: s.wait}, nil
}

// held are the addresses of Services.
func (k *keeper) held() []netip.Addr {
	var out []netip.Addr
	for _, a := range k.addresses.List("") {
		if _, _, ok := holder(a); !ok {
			continue
		}
		if ip, err := netip.ParseAddr(a.Name); err == nil {
			out = append(out, ip)
		}
	}
	return out
}

// repair makes the addresses that a service lacks. The server is asked whether it still holds them: the cache may not know yet that it has gone.
func (k *keeper) repair(ctx context.Context, key loop.Key) error {
	s, ok := k.services.Get(key.Namespace, key.Name)
	if !ok || !slices.ContainsFunc(addressesOf(s), k.missing) {
		return nil
	}
	s, err := client.Of[*corev1.Service](k.in.Transport).Get(ctx, key.Namespace, key.Name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read service: %w", err)
	}
	for _, ip := range addressesOf(s) {
		if !k.missing(ip) {
			continue
		}
		_, err := client.Of[*networkingv1.IPAddress](k.in.Transport).Create(ctx, addressOf(s, ip))
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("IPAddress %s of service %s/%s: %w", ip, s.Namespace, s.Name, err)
		}
	}
	return nil
}

func (k *keeper) missing(ip string) bool {
	_, ok := k.addresses.Get("", ip)
	return !ok
}

// orphan deletes an address that was made for a service which does not hold it.
func (k *keeper) orphan(ctx context.Context, ip string) error {
	a, ok := k.addresses.Get("", ip)
	if !ok {
		return nil
	}
	namespace, name, ours := holder(a)
	if !ours {
		return nil
	}
	if s, ok := k.services.Get(namespace, name); ok && slices.Contains(addressesOf(s), ip) {
		return nil
	}
	s, err := client.Of[*corev1.Service](k.in.Transport).Get(ctx, namespace, name)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("read service: %w", err)
	}
	if err == nil && slices.Contains(addressesOf(s), ip) {
		return nil
	}
	err = client.Of[*networkingv1.IPAddress](k.in.Transport).Delete(ctx, "", ip, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &a.UID}})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete IPAddress %s: %w", ip, err)
	}
	return nil
}
