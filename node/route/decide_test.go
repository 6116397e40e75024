package route

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var cluster = []netip.Prefix{netip.MustParsePrefix("10.42.0.0/16"), netip.MustParsePrefix("fd00:42::/48")}

// node is born so many minutes after the first.
func node(name string, born int, addresses string, ranges ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(time.Unix(int64(born)*60, 0))}}
	for _, a := range strings.Fields(addresses) {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
	}
	n.Spec.PodCIDRs = ranges
	return n
}

// onLink is a machine at 192.0.2.1 whose router 192.0.2.254 leads to 198.51.100.0/24; interface 7 is the link.
func onLink(to netip.Addr) (Hop, error) {
	switch {
	case to == netip.MustParseAddr("192.0.2.1"):
		return Hop{Here: true, Link: 1}, nil
	case netip.MustParsePrefix("192.0.2.0/24").Contains(to), to.Is6():
		return Hop{Link: 7}, nil
	case netip.MustParsePrefix("198.51.100.0/24").Contains(to):
		return Hop{Gateway: netip.MustParseAddr("192.0.2.254"), Link: 7}, nil
	}
	return Hop{}, errors.New("network is unreachable")
}

func TestDecide(t *testing.T) {
	me := node("me", 5, "192.0.2.1", "10.42.5.0/24")
	for what, c := range map[string]struct {
		node    *corev1.Node
		want    string
		problem string
	}{
		"a neighbour":                            {node: node("n", 9, "192.0.2.2", "10.42.9.0/24"), want: "10.42.9.0/24 via 192.0.2.2 dev 7"},
		"both families":                          {node: node("n", 9, "192.0.2.2 2001:db8::2", "10.42.9.0/24", "fd00:42:0:9::/64"), want: "10.42.9.0/24 via 192.0.2.2 dev 7, fd00:42:0:9::/64 via 2001:db8::2 dev 7"},
		"no pod range yet":                       {node: node("n", 9, "192.0.2.2")},
		"no address yet":                         {node: node("n", 9, "", "10.42.9.0/24")},
		"no address of the family":               {node: node("n", 9, "2001:db8::2", "10.42.9.0/24"), problem: "no InternalIP of the family"},
		"behind a router":                        {node: node("n", 9, "198.51.100.9", "10.42.9.0/24"), problem: "the router 192.0.2.254 stands between"},
		"unreachable":                            {node: node("n", 9, "203.0.113.1", "10.42.9.0/24"), problem: "network is unreachable"},
		"with this machine's address":            {node: node("n", 9, "192.0.2.1", "10.42.9.0/24"), problem: "--node-ip"},
		"a range outside the cluster's":          {node: node("n", 9, "192.0.2.2", "8.8.8.0/24"), problem: "not within the cluster's"},
		"a range that holds the whole cluster's": {node: node("n", 9, "192.0.2.2", "10.0.0.0/8"), problem: "not within the cluster's"},
		"this node's own range":                  {node: node("n", 1, "192.0.2.2", "10.42.5.0/24"), problem: "overlaps that of node me"},
		"no range at all":                        {node: node("n", 9, "192.0.2.2", "everything"), problem: "everything"},
	} {
		t.Run(what, func(t *testing.T) {
			routes, problems := Decide("me", []*corev1.Node{c.node, me}, cluster, onLink)
			if diff := cmp.Diff(c.want, show(routes)); diff != "" {
				t.Errorf("routes (-want +got):\n%s", diff)
			}
			if got := problems["n"]; !strings.Contains(got, c.problem) || (got == "") != (c.problem == "") {
				t.Errorf("problem is %q, want one with %q", got, c.problem)
			}
		})
	}
}

func show(routes []Route) string {
	var out []string
	for _, r := range routes {
		out = append(out, fmt.Sprintf("%s via %s dev %d", r.To, r.Via, r.Link))
	}
	return strings.Join(out, ", ")
}

func TestTheOlderNodeKeepsItsRange(t *testing.T) {
	nodes := []*corev1.Node{node("young", 3, "192.0.2.3", "10.42.9.128/25"), node("me", 1, "192.0.2.1", "10.42.5.0/24"), node("old", 2, "192.0.2.2", "10.42.9.0/24")}
	routes, problems := Decide("me", nodes, cluster, onLink)
	if got := show(routes); got != "10.42.9.0/24 via 192.0.2.2 dev 7" || !strings.Contains(problems["young"], "node old") {
		t.Errorf("routes %s, problems %v", got, problems)
	}
}

// TestDiffBringsTheKernelThere applies differences of random tables to a pretended kernel.
func TestDiffBringsTheKernelThere(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	table := func() map[netip.Prefix]Route {
		out := map[netip.Prefix]Route{}
		for range random.IntN(6) {
			to := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 42, byte(random.IntN(5)), 0}), 24)
			out[to] = Route{To: to, Via: netip.AddrFrom4([4]byte{192, 0, 2, byte(1 + random.IntN(3))}), Link: 1 + random.IntN(2)}
		}
		return out
	}
	for range 500 {
		kernel, want := table(), table()
		set, remove := Diff(values(want), values(kernel))
		for _, r := range remove {
			delete(kernel, r.To)
		}
		for _, r := range set {
			if kernel[r.To] == r {
				t.Fatalf("%v is set though it is there", r)
			}
			kernel[r.To] = r
		}
		if diff := cmp.Diff(values(want), values(kernel), cmp.Comparer(func(a, b Route) bool { return a == b })); diff != "" {
			t.Fatalf("(-want +kernel):\n%s", diff)
		}
	}
}

func values(m map[netip.Prefix]Route) []Route {
	var out []Route
	for _, r := range m {
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b Route) int { return a.To.Addr().Compare(b.To.Addr()) })
	return out
}
