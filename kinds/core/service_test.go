package core

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/kind"
	"github.com/yare-project/yare/kinds/fake"
)

// cluster hands out what services ask for, as the gate does: validate, assign, remember the claims.
type cluster struct {
	env   *fake.Env
	holds map[kind.Claim]string
}

func newCluster(cidrs ...string) *cluster {
	c := &cluster{env: &fake.Env{Time: testTime, Choices: kind.Settings{NodePortMin: 30000, NodePortMax: 30099}}, holds: map[kind.Claim]string{}}
	for _, s := range cidrs {
		c.env.Choices.ServiceCIDRs = append(c.env.Choices.ServiceCIDRs, netip.MustParsePrefix(s))
	}
	return c
}

func (c *cluster) put(s, old *corev1.Service) field.ErrorList {
	if s.Name == "" {
		s.Namespace, s.Name = "d", "s"
	}
	defaultService(s)
	prepareService(s, old)
	if errs := validateService(s, old); len(errs) > 0 {
		return errs
	}
	taken := func(pool, value string) bool { return c.holds[kind.Claim{Pool: pool, Value: value}] != "" }
	if errs := assignService(c.env, taken, s, old); len(errs) > 0 {
		return errs
	}
	for claim, name := range c.holds {
		if name == s.Name {
			delete(c.holds, claim)
		}
	}
	for _, claim := range serviceClaims(s) {
		if c.holds[claim] != "" {
			return field.ErrorList{field.InternalError(nil, fmt.Errorf("%v is held twice", claim))}
		}
		c.holds[claim] = s.Name
	}
	return nil
}

func service(spec corev1.ServiceSpec) *corev1.Service {
	if len(spec.Ports) == 0 && spec.Type != corev1.ServiceTypeExternalName {
		spec.Ports = []corev1.ServicePort{{Port: 80}}
	}
	return &corev1.Service{Spec: spec}
}

func must(t *testing.T, errs field.ErrorList) {
	t.Helper()
	if err := errs.ToAggregate(); err != nil {
		t.Fatal(err)
	}
}

func TestServiceGetsAnAddress(t *testing.T) {
	c := newCluster("10.43.0.0/16")
	s := service(corev1.ServiceSpec{})
	must(t, c.put(s, nil))
	if ip := netip.MustParseAddr(s.Spec.ClusterIP); !c.env.Choices.ServiceCIDRs[0].Contains(ip) || ip.Less(netip.MustParseAddr("10.43.1.0")) {
		t.Errorf("address %s: want one above the band that is left to requests", ip)
	}
	if d := cmp.Diff([]corev1.IPFamily{"IPv4"}, s.Spec.IPFamilies); d != "" || *s.Spec.IPFamilyPolicy != "SingleStack" {
		t.Error(d, *s.Spec.IPFamilyPolicy)
	}
	if d := cmp.Diff([]string{s.Spec.ClusterIP}, s.Spec.ClusterIPs); d != "" {
		t.Error(d)
	}
	again := service(corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 81}}})
	must(t, c.put(again, s))
	if again.Spec.ClusterIP != s.Spec.ClusterIP {
		t.Errorf("the same YAML again changed the address from %s to %s", s.Spec.ClusterIP, again.Spec.ClusterIP)
	}
}

func TestRequestedAddresses(t *testing.T) {
	c := newCluster("10.43.0.0/16")
	dns := service(corev1.ServiceSpec{ClusterIP: "10.43.0.10"})
	dns.Name = "dns"
	must(t, c.put(dns, nil))
	for ip, want := range map[string]string{
		"10.43.0.10":     `spec.clusterIPs: Invalid value: ["10.43.0.10"]: failed to allocate IP 10.43.0.10: provided IP is already allocated`,
		"10.44.0.1":      "failed to allocate IP 10.44.0.1: the provided IP (10.44.0.1) is not in the valid range. The range of valid IPs is 10.43.0.0/16",
		"10.43.0.0":      "is not in the valid range",
		"10.43.255.255":  "is not in the valid range",
		"2001:db8::1":    "IPv6 is not configured on this cluster",
		"not an address": "must be a valid IP address",
	} {
		s := service(corev1.ServiceSpec{ClusterIP: ip})
		wantRefusal(t, ip, c.put(s, nil), want)
	}
}

func TestEveryAddressOfASmallRangeIsUsedOnce(t *testing.T) {
	c := newCluster("10.43.0.0/27")
	seen := map[string]bool{}
	for i := range 30 {
		s := service(corev1.ServiceSpec{})
		s.Name = fmt.Sprint("s", i)
		must(t, c.put(s, nil))
		seen[s.Spec.ClusterIP] = true
	}
	if len(seen) != 30 {
		t.Errorf("%d addresses for 30 services", len(seen))
	}
	s := service(corev1.ServiceSpec{})
	wantRefusal(t, "one too many", c.put(s, nil), "range is full")
}

func TestNodePorts(t *testing.T) {
	c := newCluster("10.43.0.0/16")
	s := service(corev1.ServiceSpec{Type: "NodePort", Ports: []corev1.ServicePort{{Name: "a", Port: 53}, {Name: "b", Port: 53, Protocol: "UDP"}, {Name: "c", Port: 80, NodePort: 30005}}})
	must(t, c.put(s, nil))
	p := s.Spec.Ports
	if p[0].NodePort == 0 || p[0].NodePort != p[1].NodePort || p[2].NodePort != 30005 {
		t.Errorf("node ports %d %d %d: the same port over both protocols shares one, a requested one is kept", p[0].NodePort, p[1].NodePort, p[2].NodePort)
	}
	for port, want := range map[int32]string{
		30005: "spec.ports[0].nodePort: Invalid value: 30005: provided port is already allocated",
		80:    "provided port is not in the valid range. The range of valid ports is 30000-30099",
	} {
		other := service(corev1.ServiceSpec{Type: "NodePort", Ports: []corev1.ServicePort{{Port: 80, NodePort: port}}})
		other.Name = "other"
		wantRefusal(t, fmt.Sprint(port), c.put(other, nil), want)
	}
	plain := s.DeepCopy()
	plain.Spec.Type = "ClusterIP"
	must(t, c.put(plain, s))
	if plain.Spec.Ports[2].NodePort != 0 || plain.Spec.ExternalTrafficPolicy != "" || len(c.holds) != 1 {
		t.Errorf("a change of type must give the node ports back: %+v, held %v", plain.Spec, c.holds)
	}
}

func TestLoadBalancerHealthCheckPort(t *testing.T) {
	c := newCluster("10.43.0.0/16")
	s := service(corev1.ServiceSpec{Type: "LoadBalancer", ExternalTrafficPolicy: "Local", AllocateLoadBalancerNodePorts: ptr.To(false)})
	must(t, c.put(s, nil))
	if s.Spec.HealthCheckNodePort == 0 || s.Spec.Ports[0].NodePort != 0 {
		t.Errorf("health check port %d, node port %d", s.Spec.HealthCheckNodePort, s.Spec.Ports[0].NodePort)
	}
	changed := s.DeepCopy()
	changed.Spec.HealthCheckNodePort = 30050
	wantRefusal(t, "changed", c.put(changed, s), "spec.healthCheckNodePort: Forbidden: field is immutable")
	cluster := s.DeepCopy()
	cluster.Spec.ExternalTrafficPolicy = "Cluster"
	must(t, c.put(cluster, s))
	if cluster.Spec.HealthCheckNodePort != 0 || len(c.holds) != 1 {
		t.Errorf("port %d kept, held %v", cluster.Spec.HealthCheckNodePort, c.holds)
	}
}

func TestTypeChangesReleaseAndRegainAddresses(t *testing.T) {
	c := newCluster("10.43.0.0/16")
	s := service(corev1.ServiceSpec{})
	must(t, c.put(s, nil))
	name := s.DeepCopy()
	name.Spec.Type, name.Spec.ExternalName = "ExternalName", "example.com"
	must(t, c.put(name, s))
	if name.Spec.ClusterIP != "" || name.Spec.IPFamilies != nil || len(c.holds) != 0 {
		t.Errorf("%+v, held %v", name.Spec, c.holds)
	}
	back := name.DeepCopy()
	back.Spec.Type, back.Spec.ExternalName = "ClusterIP", ""
	must(t, c.put(back, name))
	if back.Spec.ClusterIP == "" || len(c.holds) != 1 {
		t.Errorf("%+v, held %v", back.Spec, c.holds)
	}
	moved := back.DeepCopy()
	moved.Spec.ClusterIP, moved.Spec.ClusterIPs = "10.43.7.7", []string{"10.43.7.7"}
	wantRefusal(t, "moved", c.put(moved, back), "may not change once set")
}

func TestFamilies(t *testing.T) {
	single, dual := newCluster("10.43.0.0/16"), newCluster("10.43.0.0/16", "fd00::/108")
	policy := func(p corev1.IPFamilyPolicy, families ...corev1.IPFamily) *corev1.Service {
		return service(corev1.ServiceSpec{IPFamilyPolicy: &p, IPFamilies: families})
	}
	wantRefusal(t, "require", single.put(policy("RequireDualStack"), nil), "this cluster is not configured for dual-stack services")
	wantRefusal(t, "family", single.put(policy("SingleStack", "IPv6"), nil), "spec.ipFamilies[0]: Invalid value: \"IPv6\": not configured on this cluster")
	prefer := policy("PreferDualStack")
	must(t, single.put(prefer, nil))
	if len(prefer.Spec.ClusterIPs) != 1 {
		t.Errorf("addresses %v", prefer.Spec.ClusterIPs)
	}
	both := policy("PreferDualStack")
	must(t, dual.put(both, nil))
	if len(both.Spec.ClusterIPs) != 2 || !strings.HasPrefix(both.Spec.ClusterIPs[1], "fd00::") {
		t.Errorf("addresses %v", both.Spec.ClusterIPs)
	}
	one := both.DeepCopy()
	one.Spec.IPFamilyPolicy = ptr.To(corev1.IPFamilyPolicySingleStack)
	must(t, dual.put(one, both))
	if len(one.Spec.ClusterIPs) != 1 || one.Spec.ClusterIP != both.Spec.ClusterIP || len(dual.holds) != 1 {
		t.Errorf("back to one family: %v, held %v", one.Spec.ClusterIPs, dual.holds)
	}
	manual := service(corev1.ServiceSpec{ClusterIP: "None"})
	must(t, newCluster("10.43.0.0/16").put(manual, nil))
	if d := cmp.Diff([]corev1.IPFamily{"IPv4", "IPv6"}, manual.Spec.IPFamilies); d != "" || *manual.Spec.IPFamilyPolicy != "RequireDualStack" {
		t.Errorf("headless without selector: %s %s", d, *manual.Spec.IPFamilyPolicy)
	}
}

func TestServiceColumns(t *testing.T) {
	s := service(corev1.ServiceSpec{Type: "LoadBalancer", ClusterIPs: []string{"10.43.1.1"}, Ports: []corev1.ServicePort{{Port: 80, NodePort: 30001, Protocol: "TCP"}, {Port: 53, Protocol: "UDP"}}})
	row := func() (out []any) {
		for _, c := range serviceColumns[:4] {
			out = append(out, c.Value(s, testTime))
		}
		return out
	}
	if d := cmp.Diff([]any{"LoadBalancer", "10.43.1.1", "<pending>", "80:30001/TCP,53/UDP"}, row()); d != "" {
		t.Error(d)
	}
	s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.1"}}
	if got := row()[2]; got != "192.0.2.1" {
		t.Errorf("external address %v", got)
	}
}

func TestServiceProxyGoesToAReadyPod(t *testing.T) {
	env := envWith(newPod(func(p *corev1.Pod) { p.Status.PodIPs = []corev1.PodIP{{IP: "10.1.0.5"}} }))
	ref := &corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: "web"}
	env.Put("discovery.k8s.io", "endpointslices", &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-1", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
		Ports:      []discoveryv1.EndpointPort{{Name: ptr.To("http"), Port: ptr.To[int32](8080)}},
		Endpoints: []discoveryv1.Endpoint{
			{Addresses: []string{"10.1.0.6"}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(false)}, TargetRef: ref},
			{Addresses: []string{"10.1.0.7"}, TargetRef: ref}, // not that pod's address
			{Addresses: []string{"10.1.0.8"}},                 // not a pod
			{Addresses: []string{"10.1.0.5"}, TargetRef: ref},
		},
	})
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 80}}}}
	for _, port := range []string{"80", "http"} {
		target, err := serviceProxy(kind.WithVia(t.Context(), kind.Via{Port: port}), env, s, "/x", nil)
		if err != nil || target.URL.String() != "http://10.1.0.5:8080/x" {
			t.Errorf("%s: %+v %v", port, target.URL, err)
		}
	}
	if _, err := serviceProxy(kind.WithVia(t.Context(), kind.Via{Port: "81"}), env, s, "/x", nil); err == nil || !strings.Contains(err.Error(), `no service port 81 found for service "web"`) {
		t.Error(err)
	}
	if _, err := serviceProxy(t.Context(), env, s, "/x", nil); err == nil || !strings.Contains(err.Error(), `no endpoints available for service "web"`) {
		t.Error(err)
	}
}
