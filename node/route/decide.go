package route

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Route leads to the pods of a node.
type Route struct {
	To   netip.Prefix
	Via  netip.Addr
	Link int // index of the interface
	// Node is whose pods they are; the kernel does not keep it.
	Node string
}

// Hop is how a machine reaches an address.
type Hop struct {
	// Here says that the address is the machine's own.
	Here bool
	// Gateway is the router on the way; zero when the address is on the link itself.
	Gateway netip.Addr
	Link    int
}

// Decide finds the routes that the node self needs, and for each node whose pods it cannot reach, the reason. Nodes that have no pod range or
// address yet are left out: both are on their way. Of two nodes that claim the same addresses the older has them.
func Decide(self string, nodes []*corev1.Node, cluster []netip.Prefix, reach func(netip.Addr) (Hop, error)) ([]Route, map[string]string) {
	var routes []Route
	problems := map[string]string{}
	taken := map[string][]netip.Prefix{}
	for _, node := range byAge(self, nodes) {
		for _, text := range node.Spec.PodCIDRs {
			to, err := netip.ParsePrefix(text)
			if err == nil {
				err = admit(to.Masked(), cluster, taken)
			}
			if err != nil {
				problems[node.Name] = err.Error()
				continue
			}
			to = to.Masked()
			taken[node.Name] = append(taken[node.Name], to)
			if node.Name == self {
				continue
			}
			route, err := toward(node, to, reach)
			switch {
			case err != nil:
				problems[node.Name] = err.Error()
			case route.Via.IsValid():
				routes = append(routes, route)
			}
		}
	}
	delete(problems, self)
	slices.SortFunc(routes, func(a, b Route) int { return a.To.Addr().Compare(b.To.Addr()) })
	return routes, problems
}

// byAge sorts nodes, this one first: what it has is its own.
func byAge(self string, nodes []*corev1.Node) []*corev1.Node {
	rank := func(n *corev1.Node) int {
		if n.Name == self {
			return 0
		}
		return 1
	}
	return slices.SortedFunc(slices.Values(nodes), func(a, b *corev1.Node) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
}

// admit refuses a range that is not a node's to have.
func admit(to netip.Prefix, cluster []netip.Prefix, taken map[string][]netip.Prefix) error {
	if !slices.ContainsFunc(cluster, func(c netip.Prefix) bool { return c.Bits() <= to.Bits() && c.Contains(to.Addr()) }) {
		return fmt.Errorf("its pod range %s is not within the cluster's %v", to, cluster)
	}
	for name, ranges := range taken {
		if slices.ContainsFunc(ranges, to.Overlaps) {
			return fmt.Errorf("its pod range %s overlaps that of node %s", to, name)
		}
	}
	return nil
}

// toward finds the way to a node; the zero Route says that the node has no address yet.
func toward(node *corev1.Node, to netip.Prefix, reach func(netip.Addr) (Hop, error)) (Route, error) {
	if len(node.Status.Addresses) == 0 {
		return Route{}, nil
	}
	via, ok := address(node, to.Addr().Is6())
	if !ok {
		return Route{}, fmt.Errorf("it has no InternalIP of the family of its pod range %s", to)
	}
	hop, err := reach(via)
	switch {
	case err != nil:
		return Route{}, fmt.Errorf("there is no way to its address %s: %w", via, err)
	case hop.Here:
		return Route{}, fmt.Errorf("its address %s is this machine's own: give each node its own --node-ip", via)
	case hop.Gateway.IsValid():
		return Route{}, fmt.Errorf("the router %s stands between here and its address %s: have that router send %s to %[2]s, or put both nodes on one network", hop.Gateway, via, to)
	}
	return Route{To: to, Via: via, Link: hop.Link, Node: node.Name}, nil
}

func address(node *corev1.Node, v6 bool) (netip.Addr, bool) {
	for _, a := range node.Status.Addresses {
		if ip, err := netip.ParseAddr(a.Address); err == nil && a.Type == corev1.NodeInternalIP && ip.Unmap().Is6() == v6 {
			return ip.Unmap(), true
		}
	}
	return netip.Addr{}, false
}

// Diff finds what to set and what to remove so that the machine has the routes of want.
func Diff(want, have []Route) (set, remove []Route) {
	wanted := map[netip.Prefix]Route{}
	for _, r := range want {
		wanted[r.To] = r
	}
	present := map[netip.Prefix]bool{}
	for _, r := range have {
		switch w, ok := wanted[r.To]; {
		case !ok:
			remove = append(remove, r)
		case w.Via == r.Via && w.Link == r.Link:
			present[r.To] = true
		}
	}
	for _, r := range want {
		if !present[r.To] {
			set = append(set, r)
		}
	}
	return set, remove
}
