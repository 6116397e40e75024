package proxy

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/knftables"
)

// world is a node with a bridge and two pods, and a client outside, each in a network namespace that only this test's thread knows.
type world struct {
	t            *testing.T
	node, client netns.NsHandle
	pods         map[string]netns.NsHandle // by address
	table        *table
}

const (
	nodeIP, clientIP = "198.51.100.1", "198.51.100.2"
	podA, podB       = "10.42.0.5", "10.42.0.6"
	gateway          = "10.42.0.1"
)

// newWorld locks the test to its thread. The namespaces vanish with their handles.
func newWorld(t *testing.T) *world {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("NOT TESTED: needs root, to make network namespaces and nftables rules")
	}
	runtime.LockOSThread()
	home, err := netns.Get()
	check(t, err)
	t.Cleanup(func() {
		check(t, netns.Set(home))
		home.Close()
		runtime.UnlockOSThread()
	})
	w := &world{t: t, pods: map[string]netns.NsHandle{}}
	w.client, w.node = w.namespace(), w.namespace() // the thread is in the node's now
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "cni0"}}
	check(t, netlink.LinkAdd(bridge))
	w.address(bridge, gateway+"/24")
	services := []netip.Prefix{netip.MustParsePrefix("10.43.0.0/16")}
	check(t, Link("services", services, netip.MustParseAddr("10.43.0.10")))
	w.link(w.client, nodeIP+"/24", clientIP+"/24", nodeIP, nil)
	w.pods[podA], w.pods[podB] = w.namespace(), w.namespace()
	check(t, netns.Set(w.node))
	for ip, ns := range w.pods {
		w.link(ns, "", ip+"/24", gateway, bridge)
	}
	w.sysctl("net/ipv4/ip_forward", "1")
	w.sysctl("net/bridge/bridge-nf-call-iptables", "1")
	nft, err := knftables.New(knftables.IPv4Family, "yare-test")
	check(t, err)
	w.table = newTable(nft, knftables.IPv4Family, here.ClusterCIDR, services)
	check(t, w.table.replace(t.Context(), nil))
	return w
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// namespace makes one and leaves the thread in it.
func (w *world) namespace() netns.NsHandle {
	w.t.Helper()
	ns, err := netns.New()
	check(w.t, err)
	w.t.Cleanup(func() { ns.Close() })
	lo, err := netlink.LinkByName("lo")
	check(w.t, err)
	check(w.t, netlink.LinkSetUp(lo))
	return ns
}

var links int

// link joins the node with another namespace by a veth pair.
func (w *world) link(other netns.NsHandle, ours, theirs, via string, bridge netlink.Link) {
	w.t.Helper()
	links++
	name, peer := fmt.Sprintf("veth%d", links), fmt.Sprintf("peer%d", links)
	check(w.t, netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: peer}))
	far, err := netlink.LinkByName(peer)
	check(w.t, err)
	check(w.t, netlink.LinkSetNsFd(far, int(other)))
	near, err := netlink.LinkByName(name)
	check(w.t, err)
	if bridge != nil {
		check(w.t, netlink.LinkSetMaster(near, bridge))
		check(w.t, netlink.LinkSetHairpin(near, true))
		check(w.t, netlink.LinkSetUp(near))
	} else {
		w.address(near, ours)
	}
	w.in(other, func() {
		far, err := netlink.LinkByName(peer)
		check(w.t, err)
		w.address(far, theirs)
		check(w.t, netlink.RouteAdd(&netlink.Route{Gw: net.ParseIP(via)}))
	})
}

func (w *world) address(l netlink.Link, text string) {
	w.t.Helper()
	a, err := netlink.ParseAddr(text)
	check(w.t, err)
	check(w.t, netlink.AddrAdd(l, a))
	check(w.t, netlink.LinkSetUp(l))
}

func (w *world) sysctl(key, value string) {
	w.t.Helper()
	check(w.t, os.WriteFile("/proc/sys/"+key, []byte(value), 0o644))
}

// in runs f with the thread in another namespace.
func (w *world) in(ns netns.NsHandle, f func()) {
	check(w.t, netns.Set(ns))
	f()
	check(w.t, netns.Set(w.node))
}

// serve answers each connection to a pod's port 8080 with the pod's address and the address that the client seems to have.
func (w *world) serve(pods ...string) {
	w.t.Helper()
	for _, ip := range pods {
		w.in(w.pods[ip], func() {
			l, err := net.Listen("tcp", ip+":8080")
			check(w.t, err)
			w.t.Cleanup(func() { l.Close() })
			go func() {
				for {
					c, err := l.Accept()
					if err != nil {
						return
					}
					from, _, _ := net.SplitHostPort(c.RemoteAddr().String())
					fmt.Fprintf(c, "%s %s\n", ip, from)
					c.Close()
				}
			}()
		})
	}
}

// ask connects from a namespace and returns who answered, and whom they saw.
func (w *world) ask(from netns.NsHandle, address string) (pod, seen string, err error) {
	w.in(from, func() {
		var c net.Conn
		if c, err = net.DialTimeout("tcp", address, 2*time.Second); err != nil {
			return
		}
		defer c.Close()
		check(w.t, c.SetDeadline(time.Now().Add(2*time.Second)))
		var line string
		line, err = bufio.NewReader(c).ReadString('\n')
		pod, seen, _ = strings.Cut(strings.TrimSpace(line), " ")
	})
	return pod, seen, err
}

func (w *world) apply(s *corev1.Service, endpoints ...discoveryv1.Endpoint) {
	w.t.Helper()
	_, err := w.table.update(w.t.Context(), map[types.NamespacedName]Fragment{key(s): Build(Ports(s, slice(endpoints...), here, false), here)})
	check(w.t, err)
}

// answers asks n times and counts who answered.
func (w *world) answers(from netns.NsHandle, address string, n int) map[string]int {
	w.t.Helper()
	out := map[string]int{}
	for range n {
		pod, _, err := w.ask(from, address)
		if err != nil {
			w.t.Errorf("%s: %v", address, err)
			return out
		}
		out[pod]++
	}
	return out
}

func TestKernelClusterIP(t *testing.T) {
	w := newWorld(t)
	w.serve(podA, podB)
	w.apply(svc("web", "10.43.0.20", nil), ep(podA, "here", ready), ep(podB, "here", ready))
	for who, ns := range map[string]netns.NsHandle{"the node": w.node, "a pod": w.pods[podA]} {
		if got := w.answers(ns, "10.43.0.20:80", 24); got[podA] == 0 || got[podB] == 0 {
			t.Errorf("from %s: 24 connections went to %v, not to both", who, got)
		}
	}
	w.apply(svc("web", "10.43.0.20", nil), ep(podB, "here", ready))
	if got := w.answers(w.node, "10.43.0.20:80", 8); got[podB] != 8 {
		t.Errorf("after one endpoint left: %v", got)
	}
}

func TestKernelAPodReachesItself(t *testing.T) {
	w := newWorld(t)
	w.serve(podA)
	w.apply(svc("web", "10.43.0.20", nil), ep(podA, "here", ready))
	pod, seen, err := w.ask(w.pods[podA], "10.43.0.20:80")
	if err != nil || pod != podA || seen != gateway {
		t.Errorf("answered by %q, which saw %q (want the gateway), error %v", pod, seen, err)
	}
}

func TestKernelNodePort(t *testing.T) {
	w := newWorld(t)
	w.serve(podA)
	w.apply(svc("web", "10.43.0.20", nodePort), ep(podA, "here", ready))
	pod, seen, err := w.ask(w.client, nodeIP+":30080")
	if err != nil || pod != podA || seen != gateway {
		t.Errorf("Cluster policy: answered by %q, which saw %q (want the node), error %v", pod, seen, err)
	}
	w.apply(svc("web", "10.43.0.20", localExternal), ep(podA, "here", ready))
	pod, seen, err = w.ask(w.client, nodeIP+":30080")
	if err != nil || pod != podA || seen != clientIP {
		t.Errorf("Local policy: answered by %q, which saw %q (want the client), error %v", pod, seen, err)
	}
	if _, _, err := w.ask(w.node, nodeIP+":30080"); err != nil {
		t.Errorf("Local policy, from the node itself: %v", err)
	}
}

func TestKernelAffinity(t *testing.T) {
	w := newWorld(t)
	w.serve(podA, podB)
	s := svc("web", "10.43.0.20", func(s *corev1.Service) { s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP })
	w.apply(s, ep(podA, "here", ready), ep(podB, "here", ready))
	got := w.answers(w.node, "10.43.0.20:80", 20)
	if len(got) != 1 {
		t.Fatalf("one client's 20 connections went to %v", got)
	}
	for pod := range got {
		other := map[string]string{podA: podB, podB: podA}[pod]
		w.apply(s, ep(other, "here", ready))
		if after := w.answers(w.node, "10.43.0.20:80", 5); after[other] != 5 {
			t.Errorf("after its endpoint left, the client's connections went to %v", after)
		}
	}
}

func TestKernelRefusesWithoutEndpoints(t *testing.T) {
	w := newWorld(t)
	w.apply(svc("web", "10.43.0.20", nodePort))
	for address, ns := range map[string]netns.NsHandle{"10.43.0.20:80": w.node, nodeIP + ":30080": w.client} {
		if _, _, err := w.ask(ns, address); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("%s: %v; want a refusal at once, not a time-out", address, err)
		}
	}
	for address, what := range map[string]string{"10.43.0.20:80": "no endpoints", "10.43.0.20:81": "another port", "10.43.0.99:80": "no Service"} {
		for who, ns := range map[string]netns.NsHandle{"a pod": w.pods[podA], "the node": w.node} {
			if _, _, err := w.ask(ns, address); !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("%s, from %s: %v; want a refusal at once", what, who, err)
			}
		}
	}
}

func TestKernelPodsReachTheWorld(t *testing.T) {
	w := newWorld(t)
	var l net.Listener
	w.in(w.client, func() {
		var err error
		l, err = net.Listen("tcp", clientIP+":9090")
		check(t, err)
	})
	defer l.Close()
	seen := make(chan string, 1)
	go func() {
		if c, err := l.Accept(); err == nil {
			from, _, _ := net.SplitHostPort(c.RemoteAddr().String())
			c.Close()
			seen <- from
		}
	}()
	w.in(w.pods[podA], func() {
		c, err := net.DialTimeout("tcp", clientIP+":9090", 2*time.Second)
		check(t, err)
		c.Close()
	})
	if got := <-seen; got != nodeIP {
		t.Errorf("the world saw %s, not the node", got)
	}
}

func TestKernelItsOwnAddressIsAnsweredHere(t *testing.T) {
	w := newWorld(t)
	l, err := net.Listen("tcp", "10.43.0.10:80")
	check(t, err)
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			fmt.Fprintln(c, "dns")
			c.Close()
		}
	}()
	s := svc("dns", "10.43.0.10", nil)
	sl := slice(ep("10.43.0.10", "here", ready))
	*sl[0].Ports[0].Port = 80
	_, err = w.table.update(t.Context(), map[types.NamespacedName]Fragment{key(s): Build(Ports(s, sl, here, false), here)})
	check(t, err)
	for who, ns := range map[string]netns.NsHandle{"a pod": w.pods[podA], "the node": w.node} {
		if pod, _, err := w.ask(ns, "10.43.0.10:80"); err != nil || pod != "dns" {
			t.Errorf("from %s: %q, %v", who, pod, err)
		}
	}
}

func TestKernelDamageIsSeen(t *testing.T) {
	w := newWorld(t)
	s := svc("web", "10.43.0.20", nil)
	w.apply(s, ep(podA, "here", ready))
	if !w.table.intact(t.Context()) {
		t.Error("an untouched table counts as damaged")
	}
	check(t, Clean(t.Context(), "yare-test"))
	if w.table.intact(t.Context()) {
		t.Error("a table that is gone counts as whole")
	}
}

func TestKernelCleanIsIdempotent(t *testing.T) {
	newWorld(t)
	for range 2 {
		check(t, Clean(t.Context(), "yare-test"))
	}
}
