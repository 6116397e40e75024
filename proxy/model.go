package proxy

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Node is what the rules depend on of the machine that they are for.
type Node struct {
	Name string
	Zone string
	// ClusterCIDR are the addresses of pods: traffic from elsewhere to a cluster address gets this node's source address.
	ClusterCIDR []netip.Prefix
}

// Endpoint is one backend of one port.
type Endpoint struct {
	Address     netip.AddrPort
	Local       bool // on this node
	Ready       bool
	Serving     bool
	Terminating bool
	Zones       []string // hints; empty means none
	Nodes       []string // hints; empty means none
}

// Port is one port of one Service in one address family, with everything that decides where its traffic goes.
type Port struct {
	Service  types.NamespacedName
	Name     string
	Protocol corev1.Protocol
	// Addresses are where the port is reached, each with Number; NodePort is 0 if there is none.
	ClusterIP netip.Addr
	Number    uint16
	External  []netip.Addr // externalIPs and load balancer addresses
	NodePort  uint16
	// Sources limits who may use load balancer addresses; empty means everybody.
	Sources       []netip.Prefix
	LoadBalancers []netip.Addr
	Affinity      time.Duration // 0: none
	LocalInternal bool          // internalTrafficPolicy: Local
	LocalExternal bool          // externalTrafficPolicy: Local
	Endpoints     []Endpoint
}

// Ports reads a Service and its slices for one address family. Services without a cluster address (headless, ExternalName) have none.
func Ports(svc *corev1.Service, slicesOf []*discoveryv1.EndpointSlice, node Node, v6 bool) []Port {
	clusterIP, ok := clusterIP(svc, v6)
	if !ok {
		return nil
	}
	var out []Port
	for _, p := range svc.Spec.Ports {
		port := Port{
			Service: types.NamespacedName{Namespace: svc.Namespace, Name: svc.Name}, Name: p.Name, Protocol: p.Protocol,
			ClusterIP: clusterIP, Number: uint16(p.Port), NodePort: uint16(p.NodePort),
			External: addresses(svc.Spec.ExternalIPs, v6), LoadBalancers: loadBalancers(svc, v6), Sources: sources(svc, v6),
			LocalInternal: svc.Spec.InternalTrafficPolicy != nil && *svc.Spec.InternalTrafficPolicy == corev1.ServiceInternalTrafficPolicyLocal,
			LocalExternal: svc.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal,
			Affinity:      affinity(svc),
			Endpoints:     endpoints(p, slicesOf, node, v6),
		}
		out = append(out, port)
	}
	return out
}

func clusterIP(svc *corev1.Service, v6 bool) (netip.Addr, bool) {
	if svc.Spec.Type == corev1.ServiceTypeExternalName {
		return netip.Addr{}, false
	}
	for _, text := range svc.Spec.ClusterIPs {
		if ip, err := netip.ParseAddr(text); err == nil && ip.Is6() == v6 {
			return ip, true
		}
	}
	return netip.Addr{}, false
}

func addresses(texts []string, v6 bool) (out []netip.Addr) {
	for _, text := range texts {
		if ip, err := netip.ParseAddr(text); err == nil && ip.Is6() == v6 {
			out = append(out, ip)
		}
	}
	return out
}

func loadBalancers(svc *corev1.Service, v6 bool) []netip.Addr {
	var texts []string
	for _, in := range svc.Status.LoadBalancer.Ingress {
		// ipMode Proxy (KEP-1860): the balancer itself delivers; nodes must not short-cut it.
		if in.IP != "" && (in.IPMode == nil || *in.IPMode == corev1.LoadBalancerIPModeVIP) {
			texts = append(texts, in.IP)
		}
	}
	return addresses(texts, v6)
}

func sources(svc *corev1.Service, v6 bool) (out []netip.Prefix) {
	for _, text := range svc.Spec.LoadBalancerSourceRanges {
		if p, err := netip.ParsePrefix(text); err == nil && p.Addr().Is6() == v6 {
			out = append(out, p.Masked())
		}
	}
	return out
}

func affinity(svc *corev1.Service) time.Duration {
	if svc.Spec.SessionAffinity != corev1.ServiceAffinityClientIP {
		return 0
	}
	seconds := int32(corev1.DefaultClientIPServiceAffinitySeconds)
	if c := svc.Spec.SessionAffinityConfig; c != nil && c.ClientIP != nil && c.ClientIP.TimeoutSeconds != nil {
		seconds = *c.ClientIP.TimeoutSeconds
	}
	return time.Duration(seconds) * time.Second
}

func endpoints(p corev1.ServicePort, from []*discoveryv1.EndpointSlice, node Node, v6 bool) []Endpoint {
	var out []Endpoint
	for _, s := range from {
		if (s.AddressType == discoveryv1.AddressTypeIPv6) != v6 || s.AddressType == discoveryv1.AddressTypeFQDN {
			continue
		}
		for _, sp := range s.Ports {
			if sp.Port == nil || name(sp) != p.Name || sp.Protocol != nil && *sp.Protocol != p.Protocol {
				continue
			}
			for _, e := range s.Endpoints {
				if ep, ok := endpoint(e, uint16(*sp.Port), node); ok {
					out = append(out, ep)
				}
			}
		}
	}
	// One order and no doubles (an address may be in two slices while it moves), so that equal states give equal rules.
	slices.SortFunc(out, func(a, b Endpoint) int {
		return cmp.Or(a.Address.Compare(b.Address), rank(a)-rank(b))
	})
	return slices.CompactFunc(out, func(a, b Endpoint) bool { return a.Address == b.Address })
}

// rank orders two entries of one address: the readier first.
func rank(e Endpoint) int {
	switch {
	case e.Ready:
		return 0
	case e.Serving:
		return 1
	default:
		return 2
	}
}

func name(p discoveryv1.EndpointPort) string {
	if p.Name == nil {
		return ""
	}
	return *p.Name
}

func endpoint(e discoveryv1.Endpoint, port uint16, node Node) (Endpoint, bool) {
	if len(e.Addresses) == 0 {
		return Endpoint{}, false
	}
	ip, err := netip.ParseAddr(e.Addresses[0])
	if err != nil {
		return Endpoint{}, false
	}
	out := Endpoint{
		Address: netip.AddrPortFrom(ip, port),
		Local:   e.NodeName != nil && *e.NodeName == node.Name,
		// An absent condition means true for ready and serving (API documentation of EndpointConditions).
		Ready:       e.Conditions.Ready == nil || *e.Conditions.Ready,
		Terminating: e.Conditions.Terminating != nil && *e.Conditions.Terminating,
	}
	out.Serving = out.Ready
	if e.Conditions.Serving != nil {
		out.Serving = *e.Conditions.Serving
	}
	if e.Hints != nil {
		for _, z := range e.Hints.ForZones {
			out.Zones = append(out.Zones, z.Name)
		}
		for _, n := range e.Hints.ForNodes {
			out.Nodes = append(out.Nodes, n.Name)
		}
	}
	return out, true
}

// Choose says which endpoints get a port's traffic: anywhere in the cluster, and on this node.
//
// Ready ones do; if there is none, those that still serve while they terminate (KEP-1669). Hints narrow the cluster-wide choice to this
// node or zone when every ready endpoint has them and one names it (KEP-2433, KEP-3015).
func Choose(all []Endpoint, node Node) (cluster, local []Endpoint) {
	cluster = usable(all)
	cluster = hinted(cluster, node)
	var here []Endpoint
	for _, e := range all {
		if e.Local {
			here = append(here, e)
		}
	}
	return cluster, usable(here)
}

func usable(all []Endpoint) []Endpoint {
	var ready, leaving []Endpoint
	for _, e := range all {
		switch {
		case e.Ready:
			ready = append(ready, e)
		case e.Serving && e.Terminating:
			leaving = append(leaving, e)
		}
	}
	if len(ready) > 0 {
		return ready
	}
	return leaving
}

func hinted(all []Endpoint, node Node) []Endpoint {
	for _, hint := range []struct {
		of    func(Endpoint) []string
		value string
	}{
		{func(e Endpoint) []string { return e.Nodes }, node.Name},
		{func(e Endpoint) []string { return e.Zones }, node.Zone},
	} {
		var fit []Endpoint
		complete := hint.value != ""
		for _, e := range all {
			names := hint.of(e)
			complete = complete && len(names) > 0
			if slices.Contains(names, hint.value) {
				fit = append(fit, e)
			}
		}
		if complete && len(fit) > 0 {
			return fit
		}
	}
	return all
}

// id names a port in chains and sets; nft allows 255 bytes.
func (p Port) id() string {
	return p.Service.Namespace + "/" + p.Service.Name + "/" + protocol(p.Protocol) + "/" + strconv.Itoa(int(p.Number))
}

func protocol(p corev1.Protocol) string {
	switch p {
	case corev1.ProtocolUDP:
		return "udp"
	case corev1.ProtocolSCTP:
		return "sctp"
	default:
		return "tcp"
	}
}
