package dns

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	mdns "github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// SchemaVersion is the version of the Kubernetes DNS specification that the zone follows.
const SchemaVersion = "1.1.0"

// TTL of every record of the zone, in seconds: clients see a change within it.
const TTL = 5

// View is what the zone is made of. Each call is a look-up by index: none may scan.
type View interface {
	Namespace(name string) bool
	Service(namespace, name string) (*corev1.Service, bool)
	// Slices returns the endpoint slices of a Service.
	Slices(namespace, service string) []*discoveryv1.EndpointSlice
	// ServiceOf finds the Service that has ip as a cluster address.
	ServiceOf(ip string) (*corev1.Service, bool)
	// SlicesOf finds the slices that hold an endpoint with this address.
	SlicesOf(ip string) []*discoveryv1.EndpointSlice
}

// Zone answers questions about one cluster's names. It is pure: the same view and question give the same answer.
type Zone struct {
	// Domain is fully qualified, lower case, such as "cluster.local.".
	Domain string
	View   View
}

// Answer is the outcome of a question that belongs to the zone.
type Answer struct {
	Code   int // mdns.RcodeSuccess or RcodeNameError
	Answer []mdns.RR
	Extra  []mdns.RR
	// Follow, if not empty, is the target of a CNAME that the server should resolve and append.
	Follow string
}

// Resolve answers a question. ok is false when the name is not the zone's: it should be asked elsewhere.
func (z *Zone) Resolve(name string, qtype uint16) (answer Answer, ok bool) {
	lower := strings.ToLower(name)
	if ip, reverse := reverseAddress(lower); reverse {
		return z.reverse(name, ip, qtype)
	}
	switch {
	case lower == z.Domain:
		return z.apex(name, qtype), true
	case !strings.HasSuffix(lower, "."+z.Domain):
		return Answer{}, false
	}
	labels := mdns.SplitDomainName(strings.TrimSuffix(lower, z.Domain))
	if len(labels) == 0 { // not a name that a message can carry
		return notThere(), true
	}
	slices.Reverse(labels) // from the domain outwards: svc, namespace, service, ...
	n := node{zone: z, name: name, qtype: qtype}
	switch labels[0] {
	case "svc":
		return n.service(labels[1:]), true
	case "pod":
		return n.pod(labels[1:]), true
	case "dns-version":
		if len(labels) == 1 {
			return n.when(mdns.TypeTXT, &mdns.TXT{Txt: []string{SchemaVersion}}), true
		}
	case "ns":
		if len(labels) == 2 && labels[1] == "dns" {
			return n.data(), true
		}
	}
	return notThere(), true
}

// SOA is the record that says how long a negative answer may be kept.
func (z *Zone) SOA() mdns.RR {
	return &mdns.SOA{
		Hdr: mdns.RR_Header{Name: z.Domain, Rrtype: mdns.TypeSOA, Class: mdns.ClassINET, Ttl: TTL},
		Ns:  "ns.dns." + z.Domain, Mbox: "hostmaster." + z.Domain,
		Serial: 1, Refresh: 7200, Retry: 1800, Expire: 86400, Minttl: TTL,
	}
}

func (z *Zone) apex(name string, qtype uint16) Answer {
	n := node{zone: z, name: name, qtype: qtype}
	switch qtype {
	case mdns.TypeSOA:
		return Answer{Answer: []mdns.RR{z.SOA()}}
	case mdns.TypeNS:
		return n.when(mdns.TypeNS, &mdns.NS{Ns: "ns.dns." + z.Domain})
	}
	return Answer{}
}

func notThere() Answer { return Answer{Code: mdns.RcodeNameError} }

// node is one name of the zone that is being asked about.
type node struct {
	zone  *Zone
	name  string // as the client wrote it
	qtype uint16
}

// data answers a name that exists with the records that fit the question.
func (n node) data(records ...mdns.RR) Answer {
	var out []mdns.RR
	for _, r := range records {
		if r.Header().Rrtype == n.qtype || n.qtype == mdns.TypeANY {
			out = append(out, r)
		}
	}
	return Answer{Answer: out}
}

func (n node) when(rrtype uint16, r mdns.RR) Answer {
	*r.Header() = n.header(n.name, rrtype)
	return n.data(r)
}

func (n node) header(name string, rrtype uint16) mdns.RR_Header {
	return mdns.RR_Header{Name: name, Rrtype: rrtype, Class: mdns.ClassINET, Ttl: TTL}
}

func (n node) addresses(name string, ips ...string) []mdns.RR {
	var out []mdns.RR
	for _, text := range ips {
		ip, err := netip.ParseAddr(text)
		switch {
		case err != nil:
		case ip.Is4():
			out = append(out, &mdns.A{Hdr: n.header(name, mdns.TypeA), A: ip.AsSlice()})
		default:
			out = append(out, &mdns.AAAA{Hdr: n.header(name, mdns.TypeAAAA), AAAA: ip.AsSlice()})
		}
	}
	return out
}

// service answers names below svc.<domain>; labels are namespace, service, then an endpoint's name or a port's protocol and name.
func (n node) service(labels []string) Answer {
	if len(labels) == 0 {
		return n.data()
	}
	if len(labels) == 1 {
		if n.zone.View.Namespace(labels[0]) {
			return n.data()
		}
		return notThere()
	}
	svc, ok := n.zone.View.Service(labels[0], labels[1])
	if !ok {
		return notThere()
	}
	rest := labels[2:]
	if svc.Spec.Type == corev1.ServiceTypeExternalName {
		return n.external(svc, rest)
	}
	switch {
	case len(rest) == 0:
		return n.data(n.addresses(n.name, n.ips(svc)...)...)
	case len(rest) == 1 && strings.HasPrefix(rest[0], "_"): // _tcp.svc: an empty non-terminal
		if len(n.ports(svc, "", rest[0])) > 0 {
			return n.data()
		}
	case len(rest) == 2 && strings.HasPrefix(rest[0], "_") && strings.HasPrefix(rest[1], "_"):
		return n.srv(svc, rest[1], rest[0])
	case len(rest) == 1 && headless(svc):
		return n.endpoint(svc, rest[0])
	}
	return notThere()
}

func (n node) external(svc *corev1.Service, rest []string) Answer {
	if len(rest) > 0 {
		return notThere()
	}
	target := mdns.Fqdn(svc.Spec.ExternalName)
	cname := &mdns.CNAME{Hdr: n.header(n.name, mdns.TypeCNAME), Target: target}
	answer := Answer{Answer: []mdns.RR{cname}}
	if n.qtype != mdns.TypeCNAME {
		answer.Follow = target
	}
	return answer
}

func headless(svc *corev1.Service) bool { return svc.Spec.ClusterIP == corev1.ClusterIPNone }

// ips are a Service's own addresses, or those of its ready endpoints if it is headless.
func (n node) ips(svc *corev1.Service) []string {
	if !headless(svc) {
		if len(svc.Spec.ClusterIPs) > 0 {
			return svc.Spec.ClusterIPs
		}
		return []string{svc.Spec.ClusterIP}
	}
	var out []string
	seen := map[string]bool{}
	for _, s := range n.zone.View.Slices(svc.Namespace, svc.Name) {
		for _, e := range s.Endpoints {
			if ready(e) && len(e.Addresses) > 0 && !seen[e.Addresses[0]] {
				seen[e.Addresses[0]] = true
				out = append(out, e.Addresses[0])
			}
		}
	}
	return out
}

// endpoint answers <name>.<headless service>: the endpoints with that hostname.
func (n node) endpoint(svc *corev1.Service, name string) Answer {
	var ips []string
	for _, s := range n.zone.View.Slices(svc.Namespace, svc.Name) {
		for _, e := range s.Endpoints {
			if ready(e) && endpointName(e) == name {
				ips = append(ips, e.Addresses[0])
			}
		}
	}
	if len(ips) == 0 {
		return notThere()
	}
	return n.data(n.addresses(n.name, ips...)...)
}

// port is a named port of a Service, as SRV records show it.
type port struct {
	number int32
	target string // owner of the address records
	ips    []string
}

// ports finds what answers _name._protocol; an empty name means any.
func (n node) ports(svc *corev1.Service, name, protocol string) []port {
	want := func(portName string, p corev1.Protocol) bool {
		return portName != "" && (name == "" || name == "_"+strings.ToLower(portName)) && protocol == "_"+strings.ToLower(string(p))
	}
	owner := svc.Name + "." + svc.Namespace + ".svc." + n.zone.Domain
	var out []port
	if !headless(svc) {
		for _, p := range svc.Spec.Ports {
			if want(p.Name, p.Protocol) {
				out = append(out, port{p.Port, owner, n.ips(svc)})
			}
		}
		return out
	}
	for _, s := range n.zone.View.Slices(svc.Namespace, svc.Name) {
		for _, p := range s.Ports {
			if p.Name == nil || p.Protocol == nil || p.Port == nil || !want(*p.Name, *p.Protocol) {
				continue
			}
			for _, e := range s.Endpoints {
				if ready(e) {
					out = append(out, port{*p.Port, endpointName(e) + "." + owner, e.Addresses[:1]})
				}
			}
		}
	}
	return out
}

func (n node) srv(svc *corev1.Service, name, protocol string) Answer {
	ports := n.ports(svc, name, protocol)
	if len(ports) == 0 {
		return notThere()
	}
	// RFC 2782: weights spread the load; equal ones spread it evenly.
	weight := uint16(max(1, 100/len(ports)))
	var records []mdns.RR
	var extra []mdns.RR
	for _, p := range ports {
		records = append(records, &mdns.SRV{Hdr: n.header(n.name, mdns.TypeSRV), Weight: weight, Port: uint16(p.number), Target: p.target})
		extra = append(extra, n.addresses(p.target, p.ips...)...)
	}
	answer := n.data(records...)
	if len(answer.Answer) > 0 {
		answer.Extra = extra
	}
	return answer
}

// pod answers a-b-c-d.<namespace>.pod.<domain>: the address that the name itself says, as clusters with "pods insecure" do.
func (n node) pod(labels []string) Answer {
	if len(labels) == 0 {
		return n.data()
	}
	if !n.zone.View.Namespace(labels[0]) {
		return notThere()
	}
	if len(labels) == 1 {
		return n.data()
	}
	if len(labels) != 2 {
		return notThere()
	}
	text := strings.ReplaceAll(labels[1], "-", ".")
	ip, err := netip.ParseAddr(text)
	if err != nil || !ip.Is4() {
		if ip, err = netip.ParseAddr(strings.ReplaceAll(labels[1], "-", ":")); err != nil {
			return notThere()
		}
	}
	return n.data(n.addresses(n.name, ip.String())...)
}

func ready(e discoveryv1.Endpoint) bool {
	return len(e.Addresses) > 0 && (e.Conditions.Ready == nil || *e.Conditions.Ready)
}

// endpointName is an endpoint's label in DNS: its hostname, or its address with dashes.
func endpointName(e discoveryv1.Endpoint) string {
	if e.Hostname != nil && *e.Hostname != "" {
		return strings.ToLower(*e.Hostname)
	}
	return strings.NewReplacer(".", "-", ":", "-").Replace(e.Addresses[0])
}

// reverse answers PTR questions about addresses of Services and endpoints; others are not the zone's.
func (z *Zone) reverse(name string, ip netip.Addr, qtype uint16) (Answer, bool) {
	n := node{zone: z, name: name, qtype: qtype}
	text := ip.String()
	var names []string
	if svc, ok := z.View.ServiceOf(text); ok {
		names = append(names, svc.Name+"."+svc.Namespace+".svc."+z.Domain)
	} else {
		for _, s := range z.View.SlicesOf(text) {
			service := s.Labels[discoveryv1.LabelServiceName]
			for _, e := range s.Endpoints {
				if service != "" && len(e.Addresses) > 0 && e.Addresses[0] == text {
					names = append(names, endpointName(e)+"."+service+"."+s.Namespace+".svc."+z.Domain)
				}
			}
		}
	}
	if len(names) == 0 {
		return Answer{}, false
	}
	slices.Sort(names)
	var records []mdns.RR
	for _, target := range slices.Compact(names) {
		records = append(records, &mdns.PTR{Hdr: n.header(name, mdns.TypePTR), Ptr: target})
	}
	return n.data(records...), true
}

// reverseAddress reads an address out of an in-addr.arpa or ip6.arpa name.
func reverseAddress(name string) (netip.Addr, bool) {
	if rest, ok := strings.CutSuffix(name, ".in-addr.arpa."); ok {
		parts := strings.Split(rest, ".")
		slices.Reverse(parts)
		ip, err := netip.ParseAddr(strings.Join(parts, "."))
		return ip, err == nil && ip.Is4()
	}
	rest, ok := strings.CutSuffix(name, ".ip6.arpa.")
	if !ok {
		return netip.Addr{}, false
	}
	nibbles := strings.Split(rest, ".")
	if len(nibbles) != 32 {
		return netip.Addr{}, false
	}
	var ip [16]byte
	for i, text := range nibbles {
		v, err := strconv.ParseUint(text, 16, 4)
		if err != nil || len(text) != 1 {
			return netip.Addr{}, false
		}
		at := 31 - i
		ip[at/2] |= byte(v) << (4 * (1 - at%2))
	}
	return netip.AddrFrom16(ip), true
}
