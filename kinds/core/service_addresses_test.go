package core

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func (c *cluster) cidr(name, prefix string, ready bool) {
	r := &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{prefix}}}
	if ready {
		r.Status.Conditions = []metav1.Condition{{Type: networkingv1.ServiceCIDRConditionReady, Status: metav1.ConditionTrue}}
	}
	c.env.Put(networkingv1.GroupName, "servicecidrs", r)
}

func numbered(name, ip string) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: name},
		Spec: corev1.ServiceSpec{ClusterIP: ip, Ports: []corev1.ServicePort{{Port: 80}}}}
}

func TestServiceTakesAddressesOfEveryReadyRange(t *testing.T) {
	c := newCluster("10.43.0.0/29")
	c.cidr("kubernetes", "10.43.0.0/29", true)
	c.cidr("ready", "203.0.113.0/28", true)
	c.cidr("not-yet", "198.51.100.0/24", false)
	if errs := c.put(numbered("wanted", "203.0.113.3"), nil); len(errs) > 0 {
		t.Fatalf("an address of a second range: %v", errs)
	}
	wantRefusal(t, "of a range that is not ready", c.put(numbered("early", "198.51.100.3"), nil), "is not in the valid range. The range of valid IPs is 10.43.0.0/29, 203.0.113.0/28")
	seen := map[string]int{}
	for _, name := range strings.Split("abcdefgh", "") {
		s := numbered(name, "")
		if errs := c.put(s, nil); len(errs) > 0 {
			t.Fatalf("service %s: %v", name, errs)
		}
		seen[s.Spec.ClusterIP[:strings.IndexByte(s.Spec.ClusterIP, '.')]]++
	}
	if seen["10"] != 6 || seen["203"] != 2 {
		t.Errorf("services came from %v: the first range is to be filled, then the next", seen)
	}
}

func TestServiceAvoidsAddressesOfOthers(t *testing.T) {
	c := newCluster("10.43.0.0/16")
	c.env.Put(networkingv1.GroupName, "ipaddresses", &networkingv1.IPAddress{ObjectMeta: metav1.ObjectMeta{Name: "10.43.7.7"}})
	wantRefusal(t, "somebody's address", c.put(numbered("s", "10.43.7.7"), nil), "provided IP is already allocated")
}

func TestServiceAttendants(t *testing.T) {
	s := numbered("web", "10.43.0.9")
	s.Spec.ClusterIPs = []string{"10.43.0.9", "fd00::9"}
	var families []string
	for _, a := range serviceAttendants(s) {
		families = append(families, a.Object.GetName()+" "+a.Object.GetLabels()[networkingv1.LabelIPAddressFamily])
		if !a.Mine(a.Object) || a.Mine(&networkingv1.IPAddress{Spec: networkingv1.IPAddressSpec{ParentRef: &networkingv1.ParentReference{Resource: "services", Namespace: "d", Name: "other"}}}) {
			t.Errorf("%s: the attendant does not know its own", a.Object.GetName())
		}
	}
	if got := strings.Join(families, ", "); got != "10.43.0.9 IPv4, fd00::9 IPv6" {
		t.Errorf("addresses are %s", got)
	}
	s.Spec.ClusterIP, s.Spec.ClusterIPs = corev1.ClusterIPNone, []string{corev1.ClusterIPNone}
	if list := serviceAttendants(s); len(list) > 0 {
		t.Errorf("a headless service has %v", list)
	}
}
