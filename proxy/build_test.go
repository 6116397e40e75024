package proxy

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/knftables"
)

var rewrite = flag.Bool("rewrite", false, "write testdata from what the code does")

var here = Node{Name: "here", Zone: "z1", ClusterCIDR: []netip.Prefix{netip.MustParsePrefix("10.42.0.0/16")}}

func svc(name, ip string, edit func(*corev1.Service)) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeClusterIP, ClusterIP: ip, ClusterIPs: []string{ip},
		Ports: []corev1.ServicePort{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP}},
	}}
	if edit != nil {
		edit(s)
	}
	return s
}

func slice(endpoints ...discoveryv1.Endpoint) []*discoveryv1.EndpointSlice {
	return []*discoveryv1.EndpointSlice{{AddressType: discoveryv1.AddressTypeIPv4, Endpoints: endpoints,
		Ports: []discoveryv1.EndpointPort{{Name: ptr.To("http"), Port: ptr.To[int32](8080), Protocol: ptr.To(corev1.ProtocolTCP)}}}}
}

type state int

const (
	ready state = iota
	leaving
	unready
)

func ep(ip, node string, s state, zones ...string) discoveryv1.Endpoint {
	e := discoveryv1.Endpoint{Addresses: []string{ip}, NodeName: &node, Conditions: discoveryv1.EndpointConditions{
		Ready: ptr.To(s == ready), Serving: ptr.To(s != unready), Terminating: ptr.To(s == leaving)}}
	for _, z := range zones {
		if e.Hints == nil {
			e.Hints = &discoveryv1.EndpointHints{}
		}
		e.Hints.ForZones = append(e.Hints.ForZones, discoveryv1.ForZone{Name: z})
	}
	return e
}

func TestChoose(t *testing.T) {
	for _, c := range []struct {
		what           string
		endpoints      []discoveryv1.Endpoint
		cluster, local string
	}{
		{"ready ones only", []discoveryv1.Endpoint{ep("10.42.0.1", "here", ready), ep("10.42.0.2", "there", unready), ep("10.42.0.3", "there", leaving)}, "10.42.0.1", "10.42.0.1"},
		{"those that leave, when none is ready", []discoveryv1.Endpoint{ep("10.42.0.1", "here", unready), ep("10.42.0.2", "there", leaving)}, "10.42.0.2", ""},
		{"the local fall back is local", []discoveryv1.Endpoint{ep("10.42.0.1", "here", leaving), ep("10.42.0.2", "there", ready)}, "10.42.0.2", "10.42.0.1"},
		{"hints for the zone", []discoveryv1.Endpoint{ep("10.42.0.1", "there", ready, "z1"), ep("10.42.0.2", "there", ready, "z2")}, "10.42.0.1", ""},
		{"no hints for the zone", []discoveryv1.Endpoint{ep("10.42.0.1", "there", ready, "z2"), ep("10.42.0.2", "there", ready, "z2")}, "10.42.0.1 10.42.0.2", ""},
		{"one without a hint", []discoveryv1.Endpoint{ep("10.42.0.1", "there", ready, "z1"), ep("10.42.0.2", "there", ready)}, "10.42.0.1 10.42.0.2", ""},
	} {
		ports := Ports(svc("s", "10.43.0.9", nil), slice(c.endpoints...), here, false)
		cluster, local := Choose(ports[0].Endpoints, here)
		if diff := cmp.Diff([]string{c.cluster, c.local}, []string{ips(cluster), ips(local)}); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.what, diff)
		}
	}
}

func ips(endpoints []Endpoint) string {
	var out []string
	for _, e := range endpoints {
		out = append(out, e.Address.Addr().String())
	}
	return strings.Join(out, " ")
}

// TestRules shows the whole table for each feature; `go test ./proxy -rewrite` writes testdata anew.
func TestRules(t *testing.T) {
	two := slice(ep("10.42.0.5", "here", ready), ep("10.42.1.6", "there", ready))
	far := slice(ep("10.42.1.6", "there", ready))
	for _, c := range []struct {
		name   string
		svc    *corev1.Service
		slices []*discoveryv1.EndpointSlice
	}{
		{"cluster-ip", svc("web", "10.43.0.20", nil), two},
		{"no-endpoints", svc("web", "10.43.0.20", nodePort), nil},
		{"node-port", svc("web", "10.43.0.20", nodePort), two},
		{"affinity", svc("web", "10.43.0.20", func(s *corev1.Service) { s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP }), two},
		{"local-internal", svc("web", "10.43.0.20", localInternal), two},
		{"local-internal-elsewhere", svc("web", "10.43.0.20", localInternal), far},
		{"local-external", svc("web", "10.43.0.20", localExternal), two},
		{"local-external-elsewhere", svc("web", "10.43.0.20", localExternal), far},
		{"load-balancer", svc("web", "10.43.0.20", func(s *corev1.Service) {
			nodePort(s)
			s.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24"}
			s.Spec.ExternalIPs = []string{"198.51.100.7"}
			s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "203.0.113.9"}}
		}), two},
		{"headless", svc("web", "None", nil), two},
		{"at-its-own-address", svc("dns", "10.43.0.10", func(s *corev1.Service) { s.Spec.Ports[0].Port = 8080 }), slice(ep("10.43.0.10", "here", ready))},
	} {
		t.Run(c.name, func(t *testing.T) {
			fake, table := fakeTable()
			if err := table.replace(t.Context(), map[types.NamespacedName]Fragment{key(c.svc): Build(Ports(c.svc, c.slices, here, false), here)}); err != nil {
				t.Fatal(err)
			}
			golden(t, filepath.Join("testdata", c.name+".nft"), own(fake.Dump()))
		})
	}
}

func nodePort(s *corev1.Service) {
	s.Spec.Type, s.Spec.Ports[0].NodePort = corev1.ServiceTypeNodePort, 30080
}
func localInternal(s *corev1.Service) {
	s.Spec.InternalTrafficPolicy = ptr.To(corev1.ServiceInternalTrafficPolicyLocal)
}
func localExternal(s *corev1.Service) {
	nodePort(s)
	s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
}
func key(s *corev1.Service) types.NamespacedName {
	return types.NamespacedName{Namespace: s.Namespace, Name: s.Name}
}

func fakeTable() (*knftables.Fake, *table) {
	fake := knftables.NewFake(knftables.IPv4Family, "yare-test")
	return fake, newTable(fake, knftables.IPv4Family, here.ClusterCIDR, []netip.Prefix{netip.MustParsePrefix("10.43.0.0/16")})
}

// own leaves out the fixed part of the table.
func own(dump string) string {
	_, fixed := fakeTable()
	if err := fixed.replace(context.Background(), nil); err != nil {
		return err.Error()
	}
	base := map[string]bool{}
	for line := range strings.Lines(fixed.nft.(*knftables.Fake).Dump()) {
		base[line] = true
	}
	var out strings.Builder
	for line := range strings.Lines(dump) {
		if !base[line] {
			out.WriteString(line)
		}
	}
	return out.String()
}

func golden(t *testing.T, path, got string) {
	t.Helper()
	if *rewrite {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}

// TestManySmallChangesEqualOneBig changes random Services for a while; after each step the table must be what a fresh one would be.
func TestManySmallChangesEqualOneBig(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	fake, table := fakeTable()
	want := map[types.NamespacedName]Fragment{}
	if err := table.replace(t.Context(), want); err != nil {
		t.Fatal(err)
	}
	for step := range 300 {
		s, sl := randomService(random)
		f := Build(Ports(s, sl, here, false), here)
		if random.IntN(4) == 0 {
			f = newFragment()
		}
		want[key(s)] = f
		if _, err := table.update(t.Context(), map[types.NamespacedName]Fragment{key(s): f}); err != nil {
			t.Fatalf("seed %d, step %d: %v", seed, step, err)
		}
		fresh, other := fakeTable()
		if err := other.replace(t.Context(), want); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(lines(fresh.Dump()), lines(fake.Dump())); diff != "" {
			t.Fatalf("seed %d, step %d: after small changes the table differs from a fresh one (-fresh +small):\n%s", seed, step, diff)
		}
	}
}

// lines sorts what has no order in the kernel: rules of one chain keep theirs by the number before them.
func lines(dump string) []string {
	var out []string
	count := map[string]int{}
	for line := range strings.Lines(dump) {
		if fields := strings.Fields(line); len(fields) > 4 && fields[1] == "rule" {
			count[fields[4]]++
			line = fmt.Sprintf("%s %d: %s", fields[4], count[fields[4]], line)
		}
		out = append(out, line)
	}
	slices.Sort(out)
	return out
}

func randomService(r *rand.Rand) (*corev1.Service, []*discoveryv1.EndpointSlice) {
	n := r.IntN(6)
	s := svc(fmt.Sprintf("s%d", n), fmt.Sprintf("10.43.0.%d", 20+n), func(s *corev1.Service) {
		if r.IntN(2) == 0 {
			nodePort(s)
			s.Spec.Ports[0].NodePort = int32(30000 + n)
		}
		if r.IntN(3) == 0 {
			s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
		}
		if r.IntN(3) == 0 {
			localInternal(s)
		}
	})
	var endpoints []discoveryv1.Endpoint
	for i := range r.IntN(4) {
		endpoints = append(endpoints, ep(fmt.Sprintf("10.42.0.%d", 1+i), []string{"here", "there"}[r.IntN(2)], state(r.IntN(3))))
	}
	return s, slice(endpoints...)
}

func TestTwoServicesThatClaimOneAddress(t *testing.T) {
	fake, table := fakeTable()
	claim := func(name, ip string) (types.NamespacedName, Fragment) {
		s := svc(name, ip, func(s *corev1.Service) { s.Spec.ExternalIPs = []string{"198.51.100.7"} })
		return key(s), Build(Ports(s, slice(ep("10.42.0.5", "here", ready)), here, false), here)
	}
	first, a := claim("a", "10.43.0.20")
	second, b := claim("b", "10.43.0.21")
	if err := table.replace(t.Context(), map[types.NamespacedName]Fragment{first: a}); err != nil {
		t.Fatal(err)
	}
	if _, err := table.update(t.Context(), map[types.NamespacedName]Fragment{second: b}); err != nil {
		t.Fatalf("the second claim broke the transaction: %v", err)
	}
	const shared = "198.51.100.7 . tcp . 80 : goto ext-shop/"
	if dump := fake.Dump(); !strings.Contains(dump, shared+"a") || strings.Contains(dump, shared+"b") {
		t.Errorf("the first claim does not hold:\n%s", own(dump))
	}
	again, err := table.update(t.Context(), map[types.NamespacedName]Fragment{first: newFragment()})
	if err != nil || len(again) != 1 || again[0] != second {
		t.Fatalf("when the first leaves: again %v, error %v; want %v", again, err, second)
	}
	if _, err := table.update(t.Context(), map[types.NamespacedName]Fragment{second: b}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(fake.Dump(), shared+"b") {
		t.Errorf("the second did not get the address that the first gave up:\n%s", own(fake.Dump()))
	}
}

func TestStaleUDPFlows(t *testing.T) {
	udp := func(endpoints ...string) []Port {
		s := svc("dns", "10.43.0.30", func(s *corev1.Service) { s.Spec.Ports[0].Protocol = corev1.ProtocolUDP })
		sl := slice()
		sl[0].Ports[0].Protocol = ptr.To(corev1.ProtocolUDP)
		for _, ip := range endpoints {
			sl[0].Endpoints = append(sl[0].Endpoints, ep(ip, "here", ready))
		}
		return Ports(s, sl, here, false)
	}
	front := netip.MustParseAddrPort("10.43.0.30:80")
	for _, c := range []struct {
		what     string
		old, new []Port
		want     []Flow
	}{
		{"an endpoint left", udp("10.42.0.1", "10.42.0.2"), udp("10.42.0.2"), []Flow{{front, netip.MustParseAddrPort("10.42.0.1:8080")}}},
		{"nothing left", udp("10.42.0.1"), udp("10.42.0.1", "10.42.0.2"), nil},
		{"the Service left", udp("10.42.0.1"), nil, []Flow{{front, netip.MustParseAddrPort("10.42.0.1:8080")}}},
		{"the first endpoint came", udp(), udp("10.42.0.1"), []Flow{{Front: front}}},
		{"TCP ends by itself", Ports(svc("a", "10.43.0.9", nil), slice(ep("10.42.0.1", "here", ready)), here, false), nil, nil},
	} {
		if diff := cmp.Diff(c.want, stale(c.old, c.new, here), cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.what, diff)
		}
	}
}

func BenchmarkFullSync(b *testing.B) {
	want := map[types.NamespacedName]Fragment{}
	for i := range 5000 {
		var eps []discoveryv1.Endpoint
		for j := range 10 {
			eps = append(eps, ep(fmt.Sprintf("10.42.%d.%d", i%250, j+1), "here", ready))
		}
		s := svc(fmt.Sprintf("s%d", i), fmt.Sprintf("10.43.%d.%d", i/250, i%250), nil)
		want[key(s)] = Build(Ports(s, slice(eps...), here, false), here)
	}
	for b.Loop() {
		_, table := fakeTable()
		tx := table.nft.NewTransaction()
		table.change(tx, want)
	}
}
