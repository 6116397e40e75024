package servicecidr_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/controllers/controllertest"
	"github.com/yare-project/yare/controllers/servicecidr"
)

const finalizer = "networking.k8s.io/service-cidr-finalizer"

func cidr(name string, prefixes ...string) *networkingv1.ServiceCIDR {
	return &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: prefixes}}
}

func service(name string, ips ...string) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: controllertest.Namespace, Name: name}, Spec: corev1.ServiceSpec{ClusterIP: ips[0], ClusterIPs: ips}}
}

func address(ip, service string) *networkingv1.IPAddress {
	return &networkingv1.IPAddress{ObjectMeta: metav1.ObjectMeta{Name: ip, Labels: map[string]string{networkingv1.LabelManagedBy: "ipallocator.k8s.io"}},
		Spec: networkingv1.IPAddressSpec{ParentRef: &networkingv1.ParentReference{Resource: "services", Namespace: controllertest.Namespace, Name: service}}}
}

func all[T client.Object](s *controllertest.Stage) map[string]T {
	out := map[string]T{}
	for _, o := range controllertest.AllIn[T](s, "") {
		out[o.GetName()] = o
	}
	return out
}

func TestRangeBecomesReady(t *testing.T) {
	s := controllertest.New(t, servicecidr.Descriptor())
	s.Put(cidr("more", "10.9.0.0/24"))
	s.Go()
	s.Until("the range is ready and protected", func() bool {
		c := all[*networkingv1.ServiceCIDR](s)["more"]
		return len(c.Finalizers) == 1 && c.Finalizers[0] == finalizer && meta.IsStatusConditionTrue(c.Status.Conditions, networkingv1.ServiceCIDRConditionReady)
	}, func() any { return all[*networkingv1.ServiceCIDR](s)["more"] })
}

// A deleted range stays while it alone has an address of a Service, says so, and goes when a range that has it as well appears.
func TestDeletedRangeWaitsForItsAddresses(t *testing.T) {
	s := controllertest.New(t, servicecidr.Descriptor())
	gone := cidr("going", "10.9.0.0/24")
	gone.Finalizers = []string{finalizer}
	s.Put(gone)
	s.Put(service("web", "10.9.0.5"), address("10.9.0.5", "web"))
	s.Go()
	s.Settled()
	controllertest.Delete(s, gone, metav1.DeleteOptions{})
	s.Until("the range says why it stays", func() bool {
		c, ok := all[*networkingv1.ServiceCIDR](s)["going"]
		if !ok {
			t.Fatal("the range went with an address of a Service")
		}
		ready := meta.FindStatusCondition(c.Status.Conditions, networkingv1.ServiceCIDRConditionReady)
		return ready != nil && ready.Status == metav1.ConditionFalse && ready.Reason == networkingv1.ServiceCIDRReasonTerminating
	}, func() any { return all[*networkingv1.ServiceCIDR](s) })
	s.Put(cidr("wider", "10.9.0.0/16"))
	s.Settled()
	s.Clock.Step(servicecidr.Grace)
	s.Until("the range goes", func() bool { _, there := all[*networkingv1.ServiceCIDR](s)["going"]; return !there },
		func() any { return all[*networkingv1.ServiceCIDR](s) })
}

// Addresses that Services lack are made, those made for Services that do not hold them go, and others are let alone.
func TestRepair(t *testing.T) {
	s := controllertest.New(t, servicecidr.Descriptor())
	foreign := address("10.9.0.7", "nobody")
	foreign.Labels = nil
	s.Put(service("web", "10.9.0.5"), service("headless", corev1.ClusterIPNone), address("10.9.0.6", "nobody"), foreign)
	s.Go()
	s.Until("Services and addresses agree", func() bool {
		have := all[*networkingv1.IPAddress](s)
		return have["10.9.0.5"] != nil && have["10.9.0.6"] == nil && have["10.9.0.7"] != nil && len(have) == 2
	}, func() any { return all[*networkingv1.IPAddress](s) })
	a := all[*networkingv1.IPAddress](s)["10.9.0.5"]
	if r := a.Spec.ParentRef; r.Resource != "services" || r.Namespace != controllertest.Namespace || r.Name != "web" || a.Labels[networkingv1.LabelIPAddressFamily] != "IPv4" {
		t.Errorf("the new address is %+v", a)
	}
	controllertest.Delete(s, a, metav1.DeleteOptions{})
	s.Until("a deleted address comes back", func() bool { b := all[*networkingv1.IPAddress](s)["10.9.0.5"]; return b != nil && b.UID != a.UID },
		func() any { return all[*networkingv1.IPAddress](s) })
}
