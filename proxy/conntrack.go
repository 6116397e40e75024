package proxy

import (
	"errors"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// Flow is a translated UDP conversation that must end: from a front address to an endpoint that no longer gets its traffic. A TCP
// connection ends by itself; a UDP flow would go on to a dead address for as long as the client sends.
type Flow struct {
	Front   netip.AddrPort // zero address: any address with this port (a node port)
	Backend netip.AddrPort // zero: a flow that was never translated
}

// Conntrack forgets flows.
type Conntrack interface {
	Forget([]Flow) error
}

// stale finds the flows that a change of a Service's ports leaves behind.
func stale(old, new []Port, node Node) []Flow {
	var out []Flow
	for _, p := range old {
		if p.Protocol != corev1.ProtocolUDP {
			continue
		}
		for _, gone := range gone(p, new, node) {
			for _, front := range fronts(p) {
				out = append(out, Flow{front, gone})
			}
		}
	}
	for _, p := range new {
		if p.Protocol == corev1.ProtocolUDP && len(chosen(p, node)) > 0 && !slices.ContainsFunc(old, func(o Port) bool { return o.id() == p.id() && len(chosen(o, node)) > 0 }) {
			for _, front := range fronts(p) {
				out = append(out, Flow{Front: front})
			}
		}
	}
	return out
}

func gone(p Port, new []Port, node Node) []netip.AddrPort {
	var still []netip.AddrPort
	for _, n := range new {
		if n.id() == p.id() && n.ClusterIP == p.ClusterIP {
			still = chosen(n, node)
		}
	}
	var out []netip.AddrPort
	for _, a := range chosen(p, node) {
		if !slices.Contains(still, a) {
			out = append(out, a)
		}
	}
	return out
}

func chosen(p Port, node Node) []netip.AddrPort {
	cluster, local := Choose(p.Endpoints, node)
	var out []netip.AddrPort
	for _, e := range slices.Concat(cluster, local) {
		if !slices.Contains(out, e.Address) {
			out = append(out, e.Address)
		}
	}
	return out
}

func fronts(p Port) []netip.AddrPort {
	out := []netip.AddrPort{netip.AddrPortFrom(p.ClusterIP, p.Number)}
	for _, ip := range slices.Concat(p.External, p.LoadBalancers) {
		out = append(out, netip.AddrPortFrom(ip, p.Number))
	}
	if p.NodePort != 0 {
		out = append(out, netip.AddrPortFrom(netip.Addr{}, p.NodePort))
	}
	return out
}

// kernelConntrack is the kernel's flow table.
type kernelConntrack struct{}

func (kernelConntrack) Forget(flows []Flow) error {
	var faults []error
	for family, of := range map[netlink.InetFamily]bool{unix.AF_INET: false, unix.AF_INET6: true} {
		var filters []netlink.CustomConntrackFilter
		for _, f := range flows {
			if f.Front.Addr().Is6() == of || !f.Front.Addr().IsValid() {
				filters = append(filters, matcher(f))
			}
		}
		if len(filters) > 0 {
			_, err := netlink.ConntrackDeleteFilters(netlink.ConntrackTable, family, filters...)
			faults = append(faults, err)
		}
	}
	return errors.Join(faults...)
}

// matcher finds a Flow among the kernel's.
type matcher Flow

// MatchConntrackFlow is part of netlink's filter interface.
func (m matcher) MatchConntrackFlow(flow *netlink.ConntrackFlow) bool {
	to, _ := netip.AddrFromSlice(flow.Forward.DstIP)
	from, _ := netip.AddrFromSlice(flow.Reverse.SrcIP)
	to, from = to.Unmap(), from.Unmap()
	if flow.Forward.Protocol != unix.IPPROTO_UDP || flow.Forward.DstPort != m.Front.Port() {
		return false
	}
	if m.Front.Addr().IsValid() && to != m.Front.Addr() {
		return false
	}
	if !m.Backend.IsValid() {
		return from == to // nobody translated it
	}
	return netip.AddrPortFrom(from, flow.Reverse.SrcPort) == m.Backend
}
