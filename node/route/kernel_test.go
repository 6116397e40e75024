package route

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"

	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/client/fake"
	"github.com/yare-project/yare/internal/resource"
	"github.com/yare-project/yare/loop"
)

const (
	patience = 10 * time.Second
	mark     = 7
)

// machine is a network namespace with one link, 192.0.2.1/24, whose router 192.0.2.254 leads everywhere else.
type machine struct {
	*testing.T
	at     netns.NsHandle
	handle *netlink.Handle
	link   netlink.Link
	table  *table
	api    *fake.Transport
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("NOT TESTED: needs root, to make network namespaces")
	}
	m := &machine{T: t, api: fake.New(clock.RealClock{})}
	m.at = namespace(t)
	var err error
	m.handle, err = netlink.NewHandleAt(m.at)
	m.must(err)
	t.Cleanup(m.handle.Close)
	m.must(m.handle.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth0"}, PeerName: "peer"}))
	for _, name := range []string{"peer", "eth0"} {
		m.link, err = m.handle.LinkByName(name)
		m.must(err)
		m.must(m.handle.LinkSetUp(m.link))
	}
	m.address()
	m.table, err = openAt(mark, m.at)
	m.must(err)
	t.Cleanup(m.table.handle.Close)
	return m
}

// namespace makes a network namespace that vanishes with its handle.
func namespace(t *testing.T) netns.NsHandle {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	home, err := netns.Get()
	if err != nil {
		t.Fatal(err)
	}
	defer home.Close()
	at, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { at.Close() })
	if err := netns.Set(home); err != nil {
		t.Fatal(err)
	}
	return at
}

func (m *machine) must(err error) {
	m.Helper()
	if err != nil {
		m.Fatal(err)
	}
}

func ipnet(s string) *net.IPNet {
	ip, n, err := net.ParseCIDR(s)
	if err != nil {
		panic(err)
	}
	return &net.IPNet{IP: ip, Mask: n.Mask}
}

// address gives the link its address and the way out: what a link loses when it goes down.
func (m *machine) address() {
	m.must(m.handle.AddrReplace(m.link, &netlink.Addr{IPNet: ipnet("192.0.2.1/24")}))
	m.must(m.handle.RouteReplace(&netlink.Route{Dst: ipnet("0.0.0.0/0"), Gw: net.ParseIP("192.0.2.254"), LinkIndex: m.link.Attrs().Index}))
}

// start runs the loop for the node "me" until the test ends.
func (m *machine) start() *Router {
	m.Helper()
	r := New(Config{NodeName: "me", ClusterCIDR: cluster, Kernel: m.table, Clock: clock.RealClock{}, Log: slog.New(slog.DiscardHandler)})
	caches := client.NewCaches(client.CachesConfig{Transport: m.api})
	loops, err := loop.New(loop.Config{Transport: func(string) client.Transport { return m.api }, Caches: caches})
	m.must(err)
	m.must(loops.Add(r.Descriptor()))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{}, 3)
	go func() { caches.Run(ctx); ended <- struct{}{} }()
	go func() { _ = loops.Run(ctx); ended <- struct{}{} }()
	go func() { _ = r.Run(ctx); ended <- struct{}{} }()
	m.Cleanup(func() {
		cancel()
		for range 3 {
			<-ended
		}
	})
	select {
	case <-r.Ready():
	case <-time.After(patience):
		m.Fatal("the loop made no pass")
	}
	return r
}

// routes shows what the kernel has beside the link's own.
func (m *machine) routes() string {
	m.Helper()
	found, err := m.handle.RouteList(nil, netlink.FAMILY_V4)
	m.must(err)
	var out []string
	for _, r := range found {
		if r.Gw != nil && r.Dst != nil && r.Dst.IP.To4()[0] == 10 {
			out = append(out, fmt.Sprintf("%s via %s metric %d", r.Dst, r.Gw, r.Priority))
		}
	}
	return strings.Join(out, "\n")
}

// until looks again, soon, until the kernel has these routes.
func (m *machine) until(what string, want ...string) {
	m.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		diff := cmp.Diff(strings.Join(want, "\n"), m.routes())
		if diff == "" {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			m.Fatalf("%s: not within %s (-want +got):\n%s", what, patience, diff)
		}
	}
}

const toA = "10.42.1.0/24 via 192.0.2.11 metric 7"

func TestRoutesFollowNodes(t *testing.T) {
	m := newMachine(t)
	m.api.MustCreate(node("me", 0, "192.0.2.1", "10.42.0.0/24"))
	m.api.MustCreate(node("a", 1, "192.0.2.11", "10.42.1.0/24"))
	m.start()
	m.until("a node that is there", toA)
	m.api.MustCreate(node("b", 2, "192.0.2.12", "10.42.2.0/24"))
	m.until("a node that comes", toA, "10.42.2.0/24 via 192.0.2.12 metric 7")
	moved := node("b", 2, "192.0.2.13", "10.42.2.0/24")
	_, err := client.Of[*corev1.Node](m.api).UpdateStatus(t.Context(), moved)
	m.must(err)
	m.until("a node with a new address", toA, "10.42.2.0/24 via 192.0.2.13 metric 7")
	m.must(client.Of[*corev1.Node](m.api).Delete(t.Context(), "", "b", metav1.DeleteOptions{}))
	m.until("a node that goes", toA)
}

func TestLostRoutesComeBack(t *testing.T) {
	m := newMachine(t)
	m.api.MustCreate(node("a", 1, "192.0.2.11", "10.42.1.0/24"))
	m.start()
	m.until("at first", toA)
	m.must(m.table.clean())
	m.until("after somebody removed it", toA)
	m.must(m.handle.LinkSetDown(m.link))
	m.must(m.handle.LinkSetUp(m.link))
	m.address()
	m.until("after the link was down", toA)
}

func TestOthersRoutesAreLeftAlone(t *testing.T) {
	m := newMachine(t)
	foreign := []netlink.Route{
		{Dst: ipnet("10.42.77.0/24"), Priority: mark},                         // an administrator's
		{Dst: ipnet("10.42.78.0/24"), Protocol: protocol, Priority: mark + 1}, // another cluster's
	}
	for _, r := range foreign {
		r.Gw, r.LinkIndex = net.ParseIP("192.0.2.99"), m.link.Attrs().Index
		m.must(m.handle.RouteAdd(&r))
	}
	left := []string{"10.42.77.0/24 via 192.0.2.99 metric 7", "10.42.78.0/24 via 192.0.2.99 metric 8"}
	m.api.MustCreate(node("a", 1, "192.0.2.11", "10.42.1.0/24"))
	// What an earlier run left, for a node that is gone.
	m.must(m.table.Set(Route{To: netip.MustParsePrefix("10.42.5.0/24"), Via: netip.MustParseAddr("192.0.2.15"), Link: m.link.Attrs().Index}))
	m.start()
	m.until("while it runs", append([]string{toA}, left...)...)
	m.must(m.table.clean())
}

func TestCleanTakesItsOwnOnly(t *testing.T) {
	m := newMachine(t)
	other, err := openAt(mark+1, m.at)
	m.must(err)
	defer other.handle.Close()
	to := func(s string) Route {
		return Route{To: netip.MustParsePrefix(s), Via: netip.MustParseAddr("192.0.2.11"), Link: m.link.Attrs().Index}
	}
	m.must(m.table.Set(to("10.42.1.0/24")))
	m.must(other.Set(to("10.42.2.0/24")))
	m.must(m.table.clean())
	m.must(m.table.clean())
	m.until("after the cleaning", "10.42.2.0/24 via 192.0.2.11 metric 8")
}

// TestANodeBehindARouterIsToldOf: such a node gets no route, which would be ignored or worse, but an Event that says what to do.
func TestANodeBehindARouterIsToldOf(t *testing.T) {
	m := newMachine(t)
	m.api.MustCreate(node("far", 1, "198.51.100.9", "10.42.1.0/24"))
	m.start()
	events := resource.Ref{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "events"}}
	var found *corev1.Event
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	watch, err := m.api.Watch(ctx, events, listAll)
	m.must(err)
	defer watch.Stop()
	for found == nil {
		select {
		case e := <-watch.ResultChan():
			if e.Type == apiwatch.Added {
				found, _ = e.Object.(*corev1.Event)
			}
		case <-ctx.Done():
			t.Fatal("no Event")
		}
	}
	if found.InvolvedObject.Name != "far" || found.Reason != ReasonFailed || !strings.Contains(found.Message, "router 192.0.2.254") {
		t.Errorf("the Event is %s about %s: %s", found.Reason, found.InvolvedObject.Name, found.Message)
	}
	m.until("there is no route", "")
}

var (
	initial = true
	listAll = metav1.ListOptions{SendInitialEvents: &initial, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, AllowWatchBookmarks: true}
)
