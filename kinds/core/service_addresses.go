package core

import (
	"context"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/yare-project/yare/kind"
)

// Addresses of Services are objects, as KEP-1880 has it: an IPAddress is there exactly as long as a Service holds the address, and ServiceCIDRs
// say what there is to hold.

var (
	addressResource = schema.GroupResource{Group: networkingv1.GroupName, Resource: "ipaddresses"}
	rangeResource   = schema.GroupResource{Group: networkingv1.GroupName, Resource: "servicecidrs"}
)

const (
	// addressManager marks the IPAddresses that go with Services.
	addressManager = "ipallocator.k8s.io"
	// defaultRange is the ServiceCIDR of the server's own configuration.
	defaultRange = "kubernetes"
)

// serviceAttendants are the IPAddresses of a service.
func serviceAttendants(s *corev1.Service) []kind.Attendant {
	if !hasClusterIP(s) || isHeadless(s) {
		return nil
	}
	out := make([]kind.Attendant, 0, len(s.Spec.ClusterIPs))
	for _, ip := range s.Spec.ClusterIPs {
		if ip == "" {
			continue
		}
		address := addressOf(s, ip)
		out = append(out, kind.Attendant{Resource: addressResource, Object: address, Mine: func(found kind.Object) bool {
			a, ok := found.(*networkingv1.IPAddress)
			return ok && a.Spec.ParentRef != nil && *a.Spec.ParentRef == *address.Spec.ParentRef
		}})
	}
	return out
}

// addressOf is the IPAddress that says that a service holds ip.
func addressOf(s *corev1.Service, ip string) *networkingv1.IPAddress {
	return &networkingv1.IPAddress{
		ObjectMeta: metav1.ObjectMeta{Name: ip, Labels: map[string]string{
			networkingv1.LabelIPAddressFamily: string(familyOf(ip)), networkingv1.LabelManagedBy: addressManager}},
		Spec: networkingv1.IPAddressSpec{ParentRef: &networkingv1.ParentReference{Resource: "services", Namespace: s.Namespace, Name: s.Name}},
	}
}

// addressTaken tells whether somebody made an IPAddress of ip, for whatever purpose. Reads are from memory and cannot wait, so that no request's
// end is of interest to them.
func addressTaken(env kind.Env, ip string) bool {
	found, err := env.Get(context.Background(), addressResource, "", ip)
	return err == nil && found != nil
}

// serviceRanges are the ranges that addresses may be allocated from: those of the ServiceCIDRs that are ready, the cluster's own first. Before
// there are any, the server's configuration stands for them.
func serviceRanges(env kind.Env) []netip.Prefix {
	found, err := env.List(context.Background(), rangeResource, "")
	if err != nil || len(found) == 0 {
		return env.Settings().ServiceCIDRs
	}
	var out []netip.Prefix
	for _, own := range []bool{true, false} {
		for _, obj := range found {
			r, ok := obj.(*networkingv1.ServiceCIDR)
			if !ok || (r.Name == defaultRange) != own || r.DeletionTimestamp != nil {
				continue
			}
			// The cluster's own is good before its condition is written.
			if !own && !meta.IsStatusConditionTrue(r.Status.Conditions, networkingv1.ServiceCIDRConditionReady) {
				continue
			}
			for _, text := range r.Spec.CIDRs {
				if cidr, err := netip.ParsePrefix(text); err == nil {
					out = append(out, cidr.Masked())
				}
			}
		}
	}
	return out
}

// usable tells whether ip may be a service's from a range.
func usable(cidr netip.Prefix, ip netip.Addr) bool {
	if !cidr.Contains(ip) {
		return false
	}
	first, last := usableRange(cidr)
	return !ip.Less(first) && !last.Less(ip)
}

// rangeText lists the ranges of ip's family.
func rangeText(ranges []netip.Prefix, ip netip.Addr) string {
	var out []string
	for _, cidr := range ranges {
		if cidr.Addr().Is4() == ip.Is4() {
			out = append(out, cidr.String())
		}
	}
	return strings.Join(out, ", ")
}
