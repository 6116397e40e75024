package proxy

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Names of the table's fixed objects; see base.go for what they do.
const (
	mapServices    = "service-ips"
	mapNodePorts   = "service-nodeports"
	mapRefuse      = "refused-ips"
	mapRefusePorts = "refused-nodeports"
	setHairpin     = "hairpin"
	chainMark      = "mark-for-masquerade"
	chainReject    = "refuse-all"
	chainDrop      = "drop-all"
)

// Element is one entry of a map or a set.
type Element struct {
	Of  string // the map's or set's name
	Key string // its fields joined with " . "
}

// Fragment is the part of a ruleset that one Service makes: what belongs to it comes and goes with it.
type Fragment struct {
	// Chains have their rules in order.
	Chains map[string][]string
	// Affinity are sets of client addresses. A set's timeout is part of its name: it cannot be changed.
	Affinity map[string]AffinitySet
	// Elements have their verdict, or nothing in a set.
	Elements map[Element]string
}

// AffinitySet holds the clients of one endpoint.
type AffinitySet struct {
	Timeout time.Duration
	IPv6    bool
}

func newFragment() Fragment {
	return Fragment{Chains: map[string][]string{}, Affinity: map[string]AffinitySet{}, Elements: map[Element]string{}}
}

// Merge adds o to f.
func (f Fragment) Merge(o Fragment) {
	maps.Copy(f.Chains, o.Chains)
	maps.Copy(f.Affinity, o.Affinity)
	maps.Copy(f.Elements, o.Elements)
}

// Build makes the rules of one Service's ports. It is pure: equal ports give an equal fragment.
func Build(ports []Port, node Node) Fragment {
	f := newFragment()
	for _, p := range ports {
		b := builder{Fragment: f, port: p, node: node, ip: "ip"}
		if p.ClusterIP.Is6() {
			b.ip = "ip6"
		}
		b.cluster, b.local = Choose(p.Endpoints, node)
		b.internal()
		b.external()
	}
	return f
}

type builder struct {
	Fragment
	port           Port
	node           Node
	ip             string // "ip" or "ip6", as nft writes it
	cluster, local []Endpoint
}

// internal handles traffic to the cluster address.
func (b builder) internal() {
	targets, which := b.cluster, "all"
	if b.port.LocalInternal {
		targets, which = b.local, "local"
	}
	key := b.key(b.port.ClusterIP)
	if b.itself(targets) {
		return
	}
	if len(targets) == 0 {
		b.refuse(Element{mapRefuse, key}, b.port.LocalInternal && len(b.cluster) > 0)
		return
	}
	var rules []string
	if outside := b.outside(); outside != "" {
		rules = append(rules, outside+" jump "+chainMark)
	}
	chain := b.chain("svc")
	b.Chains[chain] = append(rules, "goto "+b.balance(targets, which))
	b.Elements[Element{mapServices, key}] = "goto " + chain
}

// itself tells a Service that is answered at its own address on each node, as cluster DNS is: nothing to translate.
func (b builder) itself(targets []Endpoint) bool {
	return len(targets) == 1 && targets[0].Address == netip.AddrPortFrom(b.port.ClusterIP, b.port.Number)
}

// external handles node ports, external addresses and load balancers.
func (b builder) external() {
	entries := map[Element]Element{} // where to accept, and where to refuse if there is nobody
	for _, ip := range slices.Concat(b.port.External, b.port.LoadBalancers) {
		entries[Element{mapServices, b.key(ip)}] = Element{mapRefuse, b.key(ip)}
	}
	if b.port.NodePort != 0 {
		key := protocol(b.port.Protocol) + " . " + strconv.Itoa(int(b.port.NodePort))
		entries[Element{mapNodePorts, key}] = Element{mapRefusePorts, key}
	}
	if len(entries) == 0 {
		return
	}
	if len(b.cluster) == 0 {
		for _, refuse := range entries {
			b.refuse(refuse, false)
		}
		return
	}
	chain := b.chain("ext")
	b.Chains[chain] = b.externalRules()
	for accept := range entries {
		b.Elements[accept] = "goto " + chain
	}
}

func (b builder) externalRules() []string {
	var rules []string
	if len(b.port.Sources) > 0 && len(b.port.LoadBalancers) > 0 {
		rules = append(rules, fmt.Sprintf("%s daddr { %s } %s saddr != { %s } goto %s", b.ip, join(b.port.LoadBalancers), b.ip, join(b.port.Sources), chainDrop))
	}
	everywhere := b.balance(b.cluster, "all")
	if !b.port.LocalExternal {
		return append(rules, "jump "+chainMark, "goto "+everywhere)
	}
	// Pods and this node reach every endpoint even under the Local policy: they are not external.
	if len(b.node.ClusterCIDR) > 0 {
		if own := b.prefixes(); own != "" {
			rules = append(rules, fmt.Sprintf("%s saddr { %s } goto %s", b.ip, own, everywhere))
		}
	}
	rules = append(rules, "fib saddr type local jump "+chainMark, "fib saddr type local goto "+everywhere)
	if len(b.local) == 0 {
		return append(rules, "goto "+chainDrop)
	}
	return append(rules, "goto "+b.balance(b.local, "local"))
}

// balance makes, once, the chain that picks one of the targets, and returns its name. which tells the choices of a port apart.
func (b builder) balance(targets []Endpoint, which string) string {
	chain := b.chain("lb-" + which)
	if _, done := b.Chains[chain]; done {
		return chain
	}
	for _, e := range targets {
		b.Elements[Element{setHairpin, e.Address.Addr().String() + " . " + e.Address.Addr().String()}] = ""
	}
	if b.port.Affinity > 0 {
		b.Chains[chain] = b.sticky(targets)
	} else {
		b.Chains[chain] = []string{b.dnat() + " " + spread(targets, func(e Endpoint) string {
			return e.Address.Addr().String() + " . " + strconv.Itoa(int(e.Address.Port()))
		}, "map")}
	}
	return chain
}

// sticky sends a client to the endpoint that it had, else to a random one, and remembers which.
func (b builder) sticky(targets []Endpoint) []string {
	var rules []string
	for _, e := range targets {
		set, chain := b.perEndpoint("aff"+strconv.Itoa(int(b.port.Affinity.Seconds())), e), b.perEndpoint("ep", e)
		b.Affinity[set] = AffinitySet{Timeout: b.port.Affinity, IPv6: b.port.ClusterIP.Is6()}
		b.Chains[chain] = []string{
			fmt.Sprintf("update @%s { %s saddr }", set, b.ip),
			fmt.Sprintf("meta l4proto %s dnat to %s", protocol(b.port.Protocol), e.Address),
		}
		rules = append(rules, fmt.Sprintf("%s saddr @%s goto %s", b.ip, set, chain))
	}
	return append(rules, spread(targets, func(e Endpoint) string { return "goto " + b.perEndpoint("ep", e) }, "vmap"))
}

// spread writes an even random choice.
func spread(targets []Endpoint, value func(Endpoint) string, kind string) string {
	var entries []string
	for i, e := range targets {
		entries = append(entries, fmt.Sprintf("%d : %s", i, value(e)))
	}
	return fmt.Sprintf("numgen random mod %d %s { %s }", len(targets), kind, strings.Join(entries, " , "))
}

// dnat starts a translation whose address and port come from a map.
func (b builder) dnat() string {
	return fmt.Sprintf("meta l4proto %s dnat %s to", protocol(b.port.Protocol), b.ip)
}

func (b builder) refuse(at Element, silently bool) {
	verdict := "goto " + chainReject
	if silently {
		verdict = "goto " + chainDrop // endpoints exist, but not here: a retry elsewhere may succeed
	}
	b.Elements[at] = verdict
}

// outside matches clients that are no pods: their answers must come back through this node.
func (b builder) outside() string {
	if own := b.prefixes(); own != "" {
		return fmt.Sprintf("%s saddr != { %s }", b.ip, own)
	}
	return ""
}

func (b builder) prefixes() string {
	var own []netip.Prefix
	for _, p := range b.node.ClusterCIDR {
		if p.Addr().Is6() == b.port.ClusterIP.Is6() {
			own = append(own, p)
		}
	}
	return join(own)
}

func (b builder) key(ip netip.Addr) string {
	return ip.String() + " . " + protocol(b.port.Protocol) + " . " + strconv.Itoa(int(b.port.Number))
}

// chain names one of the port's chains: readable, and unique by a hash where it had to be cut.
func (b builder) chain(what string) string { return shorten(what + "-" + b.port.id()) }

func (b builder) perEndpoint(what string, e Endpoint) string {
	at := strings.NewReplacer(":", ".", "[", "", "]", "").Replace(e.Address.String())
	return shorten(what + "-" + b.port.id() + "/" + at)
}

// maxName keeps names well below nft's limit of 255 bytes.
const maxName = 120

func shorten(name string) string {
	if len(name) <= maxName {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return name[:maxName-17] + "-" + hex.EncodeToString(sum[:8])
}

func join[T fmt.Stringer](items []T) string {
	var texts []string
	for _, i := range items {
		texts = append(texts, i.String())
	}
	return strings.Join(texts, ", ")
}
