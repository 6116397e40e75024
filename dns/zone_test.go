package dns

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	mdns "github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// fixed is a View of a few objects.
type fixed struct {
	services []*corev1.Service
	slices   []*discoveryv1.EndpointSlice
}

func (f fixed) Namespace(name string) bool {
	return name == "default" || slices.ContainsFunc(f.services, func(s *corev1.Service) bool { return s.Namespace == name })
}

func (f fixed) Service(namespace, name string) (*corev1.Service, bool) {
	i := slices.IndexFunc(f.services, func(s *corev1.Service) bool { return s.Namespace == namespace && s.Name == name })
	if i < 0 {
		return nil, false
	}
	return f.services[i], true
}

func (f fixed) Slices(namespace, service string) (out []*discoveryv1.EndpointSlice) {
	for _, s := range f.slices {
		if s.Namespace == namespace && s.Labels[discoveryv1.LabelServiceName] == service {
			out = append(out, s)
		}
	}
	return out
}

func (f fixed) ServiceOf(ip string) (*corev1.Service, bool) {
	for _, s := range f.services {
		if slices.Contains(s.Spec.ClusterIPs, ip) {
			return s, true
		}
	}
	return nil, false
}

func (f fixed) SlicesOf(ip string) (out []*discoveryv1.EndpointSlice) {
	for _, s := range f.slices {
		for _, e := range s.Endpoints {
			if slices.Contains(e.Addresses, ip) {
				out = append(out, s)
			}
		}
	}
	return out
}

func service(name string, spec corev1.ServiceSpec) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: spec}
}

func slice(service string, port int32, endpoints ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: service + "-x", Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		Ports:      []discoveryv1.EndpointPort{{Name: ptr.To("http"), Protocol: ptr.To(corev1.ProtocolTCP), Port: &port}},
		Endpoints:  endpoints,
	}
}

func endpoint(ip, host string, ready bool) discoveryv1.Endpoint {
	e := discoveryv1.Endpoint{Addresses: []string{ip}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}}
	if host != "" {
		e.Hostname = &host
	}
	return e
}

func cluster() *Zone {
	return &Zone{Domain: "cluster.local.", View: fixed{
		services: []*corev1.Service{
			service("web", corev1.ServiceSpec{ClusterIP: "10.43.0.20", ClusterIPs: []string{"10.43.0.20", "fd00::20"},
				Ports: []corev1.ServicePort{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP}, {Port: 81, Protocol: corev1.ProtocolUDP}}}),
			service("db", corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, ClusterIPs: []string{corev1.ClusterIPNone},
				Ports: []corev1.ServicePort{{Name: "http", Port: 5432, Protocol: corev1.ProtocolTCP}}}),
			service("mail", corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "mail.example.org"}),
			service("alias", corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "web.default.svc.cluster.local"}),
		},
		slices: []*discoveryv1.EndpointSlice{
			slice("db", 5432, endpoint("10.42.0.5", "db-0", true), endpoint("10.42.0.6", "", true), endpoint("10.42.0.7", "db-2", false)),
			slice("web", 8080, endpoint("10.42.0.9", "", true)),
		},
	}}
}

// TestSpecification follows the sections of the Kubernetes DNS-Based Service Discovery specification.
func TestSpecification(t *testing.T) {
	const nx = "NXDOMAIN"
	for _, c := range []struct {
		name  string
		qtype uint16
		want  string // NXDOMAIN, "elsewhere", or the records without owner and TTL
		extra string
	}{
		{"dns-version.cluster.local.", mdns.TypeTXT, `TXT "1.1.0"`, ""},
		// ClusterIP Services
		{"web.default.svc.cluster.local.", mdns.TypeA, "A 10.43.0.20", ""},
		{"WEB.Default.SVC.Cluster.Local.", mdns.TypeA, "A 10.43.0.20", ""},
		{"web.default.svc.cluster.local.", mdns.TypeAAAA, "AAAA fd00::20", ""},
		{"web.default.svc.cluster.local.", mdns.TypeMX, "", ""},
		{"_http._tcp.web.default.svc.cluster.local.", mdns.TypeSRV, "SRV 0 100 80 web.default.svc.cluster.local.", "A 10.43.0.20\nAAAA fd00::20"},
		{"_http._udp.web.default.svc.cluster.local.", mdns.TypeSRV, nx, ""},
		{"_none._tcp.web.default.svc.cluster.local.", mdns.TypeSRV, nx, ""},
		{"_tcp.web.default.svc.cluster.local.", mdns.TypeSRV, "", ""},
		{"10-42-0-9.web.default.svc.cluster.local.", mdns.TypeA, nx, ""},
		{"20.0.43.10.in-addr.arpa.", mdns.TypePTR, "PTR web.default.svc.cluster.local.", ""},
		{"0.2.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.d.f.ip6.arpa.", mdns.TypePTR, "PTR web.default.svc.cluster.local.", ""},
		// Headless Services
		{"db.default.svc.cluster.local.", mdns.TypeA, "A 10.42.0.5\nA 10.42.0.6", ""},
		{"db-0.db.default.svc.cluster.local.", mdns.TypeA, "A 10.42.0.5", ""},
		{"10-42-0-6.db.default.svc.cluster.local.", mdns.TypeA, "A 10.42.0.6", ""},
		{"db-2.db.default.svc.cluster.local.", mdns.TypeA, nx, ""},
		{"_http._tcp.db.default.svc.cluster.local.", mdns.TypeSRV,
			"SRV 0 50 5432 db-0.db.default.svc.cluster.local.\nSRV 0 50 5432 10-42-0-6.db.default.svc.cluster.local.", "A 10.42.0.5\nA 10.42.0.6"},
		{"5.0.42.10.in-addr.arpa.", mdns.TypePTR, "PTR db-0.db.default.svc.cluster.local.", ""},
		// External names
		{"mail.default.svc.cluster.local.", mdns.TypeA, "CNAME mail.example.org.", ""},
		{"x.mail.default.svc.cluster.local.", mdns.TypeA, nx, ""},
		// Pods
		{"10-42-0-5.default.pod.cluster.local.", mdns.TypeA, "A 10.42.0.5", ""},
		{"10-42-0-5.nowhere.pod.cluster.local.", mdns.TypeA, nx, ""},
		{"not-an-ip.default.pod.cluster.local.", mdns.TypeA, nx, ""},
		// Names that are there but hold nothing, and names that are not there
		{"svc.cluster.local.", mdns.TypeA, "", ""},
		{"default.svc.cluster.local.", mdns.TypeA, "", ""},
		{"nowhere.svc.cluster.local.", mdns.TypeA, nx, ""},
		{"none.default.svc.cluster.local.", mdns.TypeA, nx, ""},
		{"x.cluster.local.", mdns.TypeA, nx, ""},
		// Names of others
		{"example.org.", mdns.TypeA, "elsewhere", ""},
		{"notcluster.local.", mdns.TypeA, "elsewhere", ""},
		{"8.8.8.8.in-addr.arpa.", mdns.TypePTR, "elsewhere", ""},
	} {
		answer, ok := cluster().Resolve(c.name, c.qtype)
		got := text(answer.Answer)
		switch {
		case !ok:
			got = "elsewhere"
		case answer.Code == mdns.RcodeNameError:
			got = nx
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s %s (-want +got):\n%s", c.name, mdns.TypeToString[c.qtype], diff)
		}
		if diff := cmp.Diff(c.extra, text(answer.Extra)); diff != "" {
			t.Errorf("%s %s, additional section (-want +got):\n%s", c.name, mdns.TypeToString[c.qtype], diff)
		}
		for _, r := range answer.Answer {
			if r.Header().Name != c.name {
				t.Errorf("%s: the answer is owned by %s, not by the name as it was asked", c.name, r.Header().Name)
			}
		}
	}
}

// text shows records without owner, TTL and class.
func text(records []mdns.RR) string {
	var lines []string
	for _, r := range records {
		fields := strings.Fields(r.String())
		lines = append(lines, strings.Join(fields[3:], " "))
	}
	return strings.Join(lines, "\n")
}

func FuzzResolve(f *testing.F) {
	for _, name := range []string{"web.default.svc.cluster.local.", "_http._tcp.db.default.svc.cluster.local.", "1.2.3.4.in-addr.arpa.", ".", ""} {
		f.Add(name, uint16(1))
	}
	zone := cluster()
	f.Fuzz(func(t *testing.T, name string, qtype uint16) {
		answer, ok := zone.Resolve(name, qtype)
		if !ok && len(answer.Answer) > 0 {
			t.Errorf("%q is not the zone's, yet has an answer", name)
		}
		for _, r := range answer.Answer {
			if _, err := mdns.PackRR(r, make([]byte, maxMessage), 0, nil, false); err != nil && name == r.Header().Name {
				if _, valid := mdns.IsDomainName(name); valid && len(name) < 255 {
					t.Errorf("%q: an answer that cannot be sent: %v", name, err)
				}
			}
		}
	})
}
