package proxy

import (
	"fmt"
	"net/netip"

	"k8s.io/utils/ptr"
	"sigs.k8s.io/knftables"
)

// masqueradeMark is the packet mark for "give it this node's source address": the bit that Kubernetes uses, so that tools know it.
const masqueradeMark = "0x4000"

// base adds the fixed part of the table: hooks, maps and the chains that they lead to.
//
// A packet meets, in this order: the refusals of its address (filter hooks, for new connections only), the translation (nat prerouting, or
// output for the node's own), and on its way out the masquerade.
func base(tx *knftables.Transaction, family knftables.Family, clusterCIDR, serviceCIDR []netip.Prefix) {
	ip, addr := "ip", "ipv4_addr"
	if family == knftables.IPv6Family {
		ip, addr = "ip6", "ipv6_addr"
	}
	tx.Add(&knftables.Table{Comment: ptr.To("Services of a Yare cluster")})
	for _, m := range []struct{ name, key string }{
		{mapServices, addr + " . inet_proto . inet_service"}, {mapNodePorts, "inet_proto . inet_service"},
		{mapRefuse, addr + " . inet_proto . inet_service"}, {mapRefusePorts, "inet_proto . inet_service"},
	} {
		tx.Add(&knftables.Map{Name: m.name, Type: m.key + " : verdict"})
	}
	tx.Add(&knftables.Set{Name: setHairpin, Type: addr + " . " + addr})
	chain := func(name string, rules ...string) {
		tx.Add(&knftables.Chain{Name: name})
		tx.Flush(&knftables.Chain{Name: name})
		for _, r := range rules {
			tx.Add(&knftables.Rule{Chain: name, Rule: r})
		}
	}
	hook := func(name string, kind knftables.BaseChainType, at knftables.BaseChainHook, priority knftables.BaseChainPriority, rules ...string) {
		tx.Add(&knftables.Chain{Name: name, Type: &kind, Hook: &at, Priority: &priority})
		tx.Flush(&knftables.Chain{Name: name})
		for _, r := range rules {
			tx.Add(&knftables.Rule{Chain: name, Rule: r})
		}
	}
	chain(chainReject, "reject")
	chain(chainDrop, "drop")
	chain(chainMark, "meta mark set meta mark or "+masqueradeMark)
	nodePort := "fib daddr type local meta l4proto . th dport vmap @"
	if ip == "ip" {
		nodePort = "fib daddr type local ip daddr != 127.0.0.0/8 meta l4proto . th dport vmap @"
	}
	chain("services", ip+" daddr . meta l4proto . th dport vmap @"+mapServices, nodePort+mapNodePorts)
	refused := []string{ip + " daddr . meta l4proto . th dport vmap @" + mapRefuse}
	chain("refused", refused...)
	chain("refused-nodeports", nodePort+mapRefusePorts)
	hook("filter-input", knftables.FilterType, knftables.InputHook, "-110", "ct state new jump refused", "ct state new jump refused-nodeports")
	hook("filter-forward", knftables.FilterType, knftables.ForwardHook, "-110", "ct state new jump refused")
	hook("filter-output", knftables.FilterType, knftables.OutputHook, "-110", "ct state new jump refused", "ct state new jump refused-nodeports")
	// What still has a Service's address after translation is served by nobody: say so, rather than let it time out.
	if own := ofFamily(serviceCIDR, ip); len(own) > 0 {
		unserved := fmt.Sprintf("ct state new %s daddr { %s } fib daddr type != local goto %s", ip, join(own), chainReject)
		hook("unserved-forward", knftables.FilterType, knftables.ForwardHook, knftables.FilterPriority, unserved)
		hook("unserved-output", knftables.FilterType, knftables.OutputHook, knftables.FilterPriority, unserved)
	}
	hook("nat-prerouting", knftables.NATType, knftables.PreroutingHook, knftables.DNATPriority, "jump services")
	hook("nat-output", knftables.NATType, knftables.OutputHook, knftables.DNATPriority, "jump services")
	hook("nat-postrouting", knftables.NATType, knftables.PostroutingHook, knftables.SNATPriority, masquerade(ip, clusterCIDR, serviceCIDR)...)
}

// masquerade gives packets this node's source address when the answer would not come back otherwise: those that were marked, a pod that
// reached itself through a Service, and pods that talk to the world.
func masquerade(ip string, clusterCIDR, serviceCIDR []netip.Prefix) []string {
	var rules []string
	rules = append(rules,
		fmt.Sprintf("ct status dnat %s saddr . %s daddr @%s masquerade fully-random", ip, ip, setHairpin),
	)
	own := ofFamily(clusterCIDR, ip)
	inside := append(own[:len(own):len(own)], ofFamily(serviceCIDR, ip)...)
	if len(own) > 0 {
		rules = append(rules, fmt.Sprintf("%s saddr { %s } %s daddr != { %s } fib daddr type unicast masquerade fully-random", ip, join(own), ip, join(inside)))
	}
	return append(rules,
		"meta mark and "+masqueradeMark+" == 0 return",
		"meta mark set meta mark xor "+masqueradeMark,
		"masquerade fully-random",
	)
}

func ofFamily(prefixes []netip.Prefix, ip string) (out []netip.Prefix) {
	for _, p := range prefixes {
		if p.Addr().Is6() == (ip == "ip6") {
			out = append(out, p)
		}
	}
	return out
}
