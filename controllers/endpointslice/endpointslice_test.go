package endpointslice_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	ct "github.com/yare-project/yare/controllers/controllertest"
	"github.com/yare-project/yare/controllers/endpoints"
	"github.com/yare-project/yare/controllers/endpointslice"
)

func service(name string, change ...func(*corev1.Service)) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: ct.Namespace, Name: name, Labels: map[string]string{"team": "a"}},
		Spec: corev1.ServiceSpec{Selector: map[string]string{"app": name, "tier": "x"}, ClusterIP: "10.0.0.1", IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			Ports: []corev1.ServicePort{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromString("web")}}}}
	for _, f := range change {
		f(s)
	}
	return s
}

func backend(app, name, ip string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ct.Namespace, Name: name, Labels: map[string]string{"app": app, "tier": "x"}},
		Spec: corev1.PodSpec{NodeName: "node-1", Containers: []corev1.Container{{Name: "c", Ports: []corev1.ContainerPort{{Name: "web", ContainerPort: 8080, Protocol: corev1.ProtocolTCP}}}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: ip, PodIPs: []corev1.PodIP{{IP: ip}},
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}}
	for _, f := range change {
		f(p)
	}
	return p
}

// lines shows the slices as text: family, ports and each endpoint with its conditions.
func lines(s *ct.Stage) []string {
	var out []string
	for _, slice := range ct.All[*discoveryv1.EndpointSlice](s) {
		for _, e := range slice.Endpoints {
			l := string(slice.AddressType)
			for _, p := range slice.Ports {
				l += fmt.Sprintf(" %s:%d", *p.Name, *p.Port)
			}
			l += " " + strings.Join(e.Addresses, ",")
			for name, c := range map[string]*bool{"ready": e.Conditions.Ready, "serving": e.Conditions.Serving, "terminating": e.Conditions.Terminating} {
				if c != nil && *c {
					l += " " + name
				}
			}
			words := strings.Fields(l)
			slices.Sort(words)
			out = append(out, strings.Join(words, " "))
		}
	}
	slices.Sort(out)
	return out
}

func expect(s *ct.Stage, what string, want ...string) {
	s.Helper()
	for i := range want {
		words := strings.Fields(want[i])
		slices.Sort(words)
		want[i] = strings.Join(words, " ")
	}
	slices.Sort(want)
	ct.UntilEqual(s, what, want, func() []string { return lines(s) })
}

func TestEndpointsFollowPods(t *testing.T) {
	s := ct.New(t, endpointslice.Descriptor()).Go()
	s.Put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", Labels: map[string]string{corev1.LabelTopologyZone: "z1"}}})
	svc := s.Put(service("web")).(*corev1.Service)
	ct.UntilEqual(s, "a slice without endpoints", 1, func() int { return len(ct.All[*discoveryv1.EndpointSlice](s)) })
	a := s.Put(backend("web", "a", "10.1.0.1")).(*corev1.Pod)
	b := s.Put(backend("web", "b", "10.1.0.2")).(*corev1.Pod)
	s.Put(backend("other", "c", "10.1.0.3"))
	s.Put(backend("web", "noaddress", ""))
	expect(s, "both ready", "IPv4 http:8080 10.1.0.1 ready serving", "IPv4 http:8080 10.1.0.2 ready serving")

	ct.SetReady(s, false, a)
	expect(s, "one not ready", "IPv4 http:8080 10.1.0.1", "IPv4 http:8080 10.1.0.2 ready serving")
	ct.Delete(s, b, metav1.DeleteOptions{})
	expect(s, "one terminating but serving", "IPv4 http:8080 10.1.0.1", "IPv4 http:8080 10.1.0.2 serving terminating")
	ct.Change(s, a, func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })
	expect(s, "failed is out", "IPv4 http:8080 10.1.0.2 serving terminating")
	ct.Change(s, b, func(p *corev1.Pod) { p.Labels["tier"] = "y" })
	expect(s, "no longer selected")
	s.Settled()

	all := ct.All[*discoveryv1.EndpointSlice](s)
	if len(all) != 1 || !metav1.IsControlledBy(all[0], svc) {
		t.Fatalf("slices of a Service without endpoints: %v, want one that it owns", all)
	}
	want := map[string]string{"team": "a", "kubernetes.io/service-name": "web", "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"}
	if diff := cmp.Diff(want, all[0].Labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
}

func TestEndpointDetails(t *testing.T) {
	s := ct.New(t, endpointslice.Descriptor()).Go()
	s.Put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", Labels: map[string]string{corev1.LabelTopologyZone: "z1"}}})
	distribution := corev1.ServiceTrafficDistributionPreferClose
	s.Put(service("db", func(s *corev1.Service) {
		s.Spec.ClusterIP, s.Spec.PublishNotReadyAddresses, s.Spec.TrafficDistribution = corev1.ClusterIPNone, true, &distribution
	}))
	p := s.Put(backend("db", "db-0", "10.1.0.1", func(p *corev1.Pod) {
		p.Spec.Hostname, p.Spec.Subdomain = "db-0", "db"
		p.Status.Conditions = nil
	})).(*corev1.Pod)
	node, zone, host, yes, no := "node-1", "z1", "db-0", true, false
	want := []discoveryv1.Endpoint{{Addresses: []string{"10.1.0.1"}, NodeName: &node, Zone: &zone, Hostname: &host,
		Conditions: discoveryv1.EndpointConditions{Ready: &yes, Serving: &no, Terminating: &no},
		TargetRef:  &corev1.ObjectReference{Kind: "Pod", Namespace: ct.Namespace, Name: "db-0", UID: p.UID},
		Hints:      &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: "z1"}}}}}
	ct.UntilEqual(s, "endpoint", want, func() []discoveryv1.Endpoint {
		var out []discoveryv1.Endpoint
		for _, slice := range ct.All[*discoveryv1.EndpointSlice](s) {
			out = append(out, slice.Endpoints...)
		}
		return out
	})
	if _, ok := ct.All[*discoveryv1.EndpointSlice](s)[0].Labels[corev1.IsHeadlessService]; !ok {
		t.Error("a headless Service's slice lacks the headless label")
	}
}

func TestNamedPortsGroupPodsAndSlicesAreBounded(t *testing.T) {
	s := ct.New(t, endpointslice.Descriptor()).Go()
	for i := range 250 {
		s.Put(backend("web", fmt.Sprintf("p%03d", i), fmt.Sprintf("10.1.%d.%d", i/200, i%200+1)))
	}
	other := s.Put(backend("web", "other", "10.9.0.1", func(p *corev1.Pod) { p.Spec.Containers[0].Ports[0].ContainerPort = 9090 })).(*corev1.Pod)
	s.Put(service("web"))
	sizes := func() map[string][]int {
		out := map[string][]int{}
		for _, slice := range ct.All[*discoveryv1.EndpointSlice](s) {
			k := fmt.Sprint(*slice.Ports[0].Port)
			out[k] = append(out[k], len(slice.Endpoints))
			slices.Sort(out[k])
		}
		return out
	}
	s.Until("slices", func() bool { return len(ct.All[*discoveryv1.EndpointSlice](s)) == 4 }, func() any { return sizes() })
	if diff := cmp.Diff(map[string][]int{"8080": {50, 100, 100}, "9090": {1}}, sizes()); diff != "" {
		t.Errorf("sizes (-want +got):\n%s", diff)
	}
	s.Settled()
	s.Server.ClearActions()
	ct.SetReady(s, false, ct.Get[*corev1.Pod](s, "p000"))
	s.Settled()
	rewritten := 0
	for _, a := range s.Server.Actions(false) {
		if a.Ref.Resource == "endpointslices" {
			rewritten++
		}
	}
	if rewritten != 1 {
		t.Errorf("%d slices were rewritten when one pod changed, want 1", rewritten)
	}
	now := int64(0)
	ct.Delete(s, other, metav1.DeleteOptions{GracePeriodSeconds: &now})
	ct.UntilEqual(s, "its slice goes with the last endpoint", 3, func() int { return len(ct.All[*discoveryv1.EndpointSlice](s)) })
}

func TestDualStackAndForeignSlices(t *testing.T) {
	s := ct.New(t, endpointslice.Descriptor()).Go()
	s.Put(service("web", func(s *corev1.Service) { s.Spec.IPFamilies = append(s.Spec.IPFamilies, corev1.IPv6Protocol) }))
	s.Put(backend("web", "a", "10.1.0.1", func(p *corev1.Pod) { p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: "fd00::1"}) }))
	foreign := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: ct.Namespace, Name: "foreign",
		Labels: map[string]string{discoveryv1.LabelServiceName: "web", discoveryv1.LabelManagedBy: "me"}}, AddressType: discoveryv1.AddressTypeIPv4}
	s.Put(foreign)
	expect(s, "both families", "IPv4 http:8080 10.1.0.1 ready serving", "IPv6 http:8080 fd00::1 ready serving")
	s.Settled()
	if ct.Get[*discoveryv1.EndpointSlice](s, "foreign") == nil {
		t.Error("another manager's slice was removed")
	}
}

func TestServicesWithoutSelectorAreLeftAlone(t *testing.T) {
	s := ct.New(t, endpointslice.Descriptor(), endpoints.Descriptor()).Go()
	s.Put(service("manual", func(s *corev1.Service) { s.Spec.Selector = nil }))
	s.Put(service("alias", func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeExternalName }))
	s.Put(&corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{Namespace: ct.Namespace, Name: "manual"}})
	s.Settled()
	if got := len(ct.All[*discoveryv1.EndpointSlice](s)); got != 0 {
		t.Errorf("%d slices were made, want none", got)
	}
	if got := ct.All[*corev1.Endpoints](s); len(got) != 1 {
		t.Errorf("endpoints %v, want just the one made by hand", got)
	}
}
