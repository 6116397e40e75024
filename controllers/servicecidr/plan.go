package servicecidr

import (
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	finalizer = "networking.k8s.io/service-cidr-finalizer"
	// Grace is how long a deleted range stays after its last address went: an allocation that saw it alive may still be on its way (as Kubernetes).
	Grace = 10 * time.Second
	// manager marks the IPAddresses that the API server makes for Services.
	manager = "ipallocator.k8s.io"
)

// step is what a range needs next. At most one of its fields is set.
type step struct {
	protect   bool              // add the finalizer
	release   bool              // take it off
	condition *metav1.Condition // write this
	wait      time.Duration     // look again then
}

// next decides about one range, of all; addresses are the Services' own.
func next(c *networkingv1.ServiceCIDR, all []*networkingv1.ServiceCIDR, addresses []netip.Addr, now time.Time) step {
	if c.DeletionTimestamp == nil {
		if !slices.Contains(c.Finalizers, finalizer) {
			return step{protect: true}
		}
		return write(c, metav1.Condition{Type: networkingv1.ServiceCIDRConditionReady, Status: metav1.ConditionTrue, Message: "Kubernetes Service CIDR is ready"}, now)
	}
	if !slices.Contains(c.Finalizers, finalizer) {
		return step{}
	}
	if !contained(c, all) && orphans(c, all, addresses) {
		return write(c, metav1.Condition{Type: networkingv1.ServiceCIDRConditionReady, Status: metav1.ConditionFalse, Reason: networkingv1.ServiceCIDRReasonTerminating,
			Message: "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR"}, now)
	}
	if left := c.DeletionTimestamp.Add(Grace).Sub(now); left > 0 {
		return step{wait: left}
	}
	return step{release: true}
}

func write(c *networkingv1.ServiceCIDR, want metav1.Condition, now time.Time) step {
	have := meta.FindStatusCondition(c.Status.Conditions, want.Type)
	if have != nil && have.Status == want.Status && have.Reason == want.Reason {
		return step{}
	}
	want.LastTransitionTime = metav1.NewTime(now)
	return step{condition: &want}
}

// contained tells whether other ranges have all addresses of c.
func contained(c *networkingv1.ServiceCIDR, all []*networkingv1.ServiceCIDR) bool {
	for _, mine := range prefixes(c) {
		if !slices.ContainsFunc(all, func(o *networkingv1.ServiceCIDR) bool {
			return o.Name != c.Name && slices.ContainsFunc(prefixes(o), func(p netip.Prefix) bool { return p.Bits() <= mine.Bits() && p.Contains(mine.Addr()) })
		}) {
			return false
		}
	}
	return true
}

// orphans tells whether an address would be in no range without c.
func orphans(c *networkingv1.ServiceCIDR, all []*networkingv1.ServiceCIDR, addresses []netip.Addr) bool {
	return slices.ContainsFunc(addresses, func(ip netip.Addr) bool {
		return has(c, ip) && !slices.ContainsFunc(all, func(o *networkingv1.ServiceCIDR) bool { return o.Name != c.Name && has(o, ip) })
	})
}

func has(c *networkingv1.ServiceCIDR, ip netip.Addr) bool {
	return slices.ContainsFunc(prefixes(c), func(p netip.Prefix) bool { return p.Contains(ip) })
}

func prefixes(c *networkingv1.ServiceCIDR) (out []netip.Prefix) {
	for _, text := range c.Spec.CIDRs {
		if p, err := netip.ParsePrefix(text); err == nil {
			out = append(out, p.Masked())
		}
	}
	return out
}

// addressesOf are the addresses that a service holds.
func addressesOf(s *corev1.Service) []string {
	if s.Spec.Type == corev1.ServiceTypeExternalName {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(s.Spec.ClusterIPs), func(ip string) bool { return ip == "" || ip == corev1.ClusterIPNone })
}

// addressOf is the object that says that a service holds ip.
func addressOf(s *corev1.Service, ip string) *networkingv1.IPAddress {
	family := corev1.IPv4Protocol
	if parsed, err := netip.ParseAddr(ip); err == nil && parsed.Is6() {
		family = corev1.IPv6Protocol
	}
	return &networkingv1.IPAddress{
		ObjectMeta: metav1.ObjectMeta{Name: ip, Labels: map[string]string{networkingv1.LabelIPAddressFamily: string(family), networkingv1.LabelManagedBy: manager}},
		Spec:       networkingv1.IPAddressSpec{ParentRef: &networkingv1.ParentReference{Resource: "services", Namespace: s.Namespace, Name: s.Name}},
	}
}

// holder is the service that an address was made for; ok is false for addresses that are somebody else's.
func holder(a *networkingv1.IPAddress) (namespace, name string, ok bool) {
	r := a.Spec.ParentRef
	if a.Labels[networkingv1.LabelManagedBy] != manager || r == nil || r.Group != "" || r.Resource != "services" {
		return "", "", false
	}
	return r.Namespace, r.Name, true
}
