package route

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// protocol marks routes as Yare's: a number that rtnetlink(7) leaves to users (above RTPROT_STATIC), and iproute2 names nobody's.
const protocol netlink.RouteProtocol = 0x59

// table is the kernel's routing table, in one network namespace.
type table struct {
	handle    *netlink.Handle
	namespace netns.NsHandle
	mark      int
}

// Open gives the routing table of the calling process's network namespace. mark, not zero, tells this data folder's routes from other clusters' on
// the machine: it is their metric.
func Open(mark uint32) (Kernel, error) { return openAt(mark, netns.None()) }

func openAt(mark uint32, at netns.NsHandle) (*table, error) {
	if mark == 0 {
		return nil, errors.New("route: the mark must not be zero")
	}
	var handle *netlink.Handle
	var err error
	if at.IsOpen() {
		handle, err = netlink.NewHandleAt(at, unix.NETLINK_ROUTE)
	} else {
		handle, err = netlink.NewHandle(unix.NETLINK_ROUTE)
	}
	if err != nil {
		return nil, fmt.Errorf("route: cannot reach the kernel's routing table: %w", err)
	}
	return &table{handle: handle, namespace: at, mark: int(mark)}, nil
}

// Clean removes every route with a mark.
func Clean(mark uint32) error {
	t, err := openAt(mark, netns.None())
	if err != nil {
		return err
	}
	defer t.handle.Close()
	return t.clean()
}

func (t *table) clean() error {
	routes, err := t.Routes()
	if err != nil {
		return fmt.Errorf("route: read this machine's routes: %w", err)
	}
	var faults []error
	for _, r := range routes {
		faults = append(faults, t.Remove(r))
	}
	return errors.Join(faults...)
}

// Reach asks the kernel; it sends nothing.
func (t *table) Reach(to netip.Addr) (Hop, error) {
	found, err := t.handle.RouteGet(to.AsSlice())
	if err != nil {
		return Hop{}, err
	}
	if len(found) == 0 {
		return Hop{}, syscall.EHOSTUNREACH
	}
	hop := Hop{Link: found[0].LinkIndex, Here: found[0].Type == unix.RTN_LOCAL}
	if gateway, ok := netip.AddrFromSlice(found[0].Gw); ok {
		hop.Gateway = gateway.Unmap()
	}
	return hop, nil
}

func (t *table) Routes() ([]Route, error) {
	var out []Route
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		found, err := t.handle.RouteListFiltered(family, &netlink.Route{Protocol: protocol}, netlink.RT_FILTER_PROTOCOL)
		if err != nil && !errors.Is(err, unix.EAFNOSUPPORT) {
			return nil, err
		}
		for _, r := range found {
			if route, ok := t.own(r); ok {
				out = append(out, route)
			}
		}
	}
	return out, nil
}

func (t *table) own(r netlink.Route) (Route, bool) {
	if r.Protocol != protocol || r.Priority != t.mark || r.Dst == nil {
		return Route{}, false
	}
	to, ok := netip.AddrFromSlice(r.Dst.IP)
	if !ok {
		return Route{}, false
	}
	bits, _ := r.Dst.Mask.Size()
	via, _ := netip.AddrFromSlice(r.Gw)
	return Route{To: netip.PrefixFrom(to.Unmap(), bits), Via: via.Unmap(), Link: r.LinkIndex}, true
}

func (t *table) kernel(r Route) *netlink.Route {
	return &netlink.Route{
		Dst: &net.IPNet{IP: r.To.Addr().AsSlice(), Mask: net.CIDRMask(r.To.Bits(), r.To.Addr().BitLen())},
		Gw:  r.Via.AsSlice(), LinkIndex: r.Link, Protocol: protocol, Priority: t.mark,
	}
}

func (t *table) Set(r Route) error {
	if err := t.handle.RouteReplace(t.kernel(r)); err != nil {
		return fmt.Errorf("the kernel refuses a route to %s by way of %s: %w", r.To, r.Via, err)
	}
	return nil
}

func (t *table) Remove(r Route) error {
	if err := t.handle.RouteDel(t.kernel(r)); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("remove the route to %s by way of %s: %w", r.To, r.Via, err)
	}
	return nil
}

// Watch hears what may take or bring a route: the kernel removes one, an interface changes (when it goes down, its IPv4 routes vanish unannounced),
// or gets an address.
func (t *table) Watch(ctx context.Context, lost func(link int)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var in *netns.NsHandle
	if t.namespace.IsOpen() {
		in = &t.namespace
	}
	failed := make(chan error, 3)
	fail := func(err error) {
		select {
		case failed <- err:
		default:
		}
	}
	// Buffered: a subscription that ends finds its channel unread.
	routes, links, addresses := make(chan netlink.RouteUpdate, 16), make(chan netlink.LinkUpdate, 16), make(chan netlink.AddrUpdate, 16)
	if err := errors.Join(
		netlink.RouteSubscribeWithOptions(routes, ctx.Done(), netlink.RouteSubscribeOptions{Namespace: in, ErrorCallback: fail}),
		netlink.LinkSubscribeWithOptions(links, ctx.Done(), netlink.LinkSubscribeOptions{Namespace: in, ErrorCallback: fail}),
		netlink.AddrSubscribeWithOptions(addresses, ctx.Done(), netlink.AddrSubscribeOptions{Namespace: in, ErrorCallback: fail}),
	); err != nil {
		return err
	}
	lost(0) // whatever happened before the kernel was listened to
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-failed:
			return err
		case u, open := <-routes:
			if _, own := t.own(u.Route); own && u.Type == unix.RTM_DELROUTE {
				lost(0)
			}
			if !open {
				routes = nil
			}
		case u, open := <-links:
			if open && u.Link != nil {
				lost(u.Attrs().Index)
			} else {
				links = nil
			}
		case u, open := <-addresses:
			if open && u.NewAddr {
				lost(u.LinkIndex)
			} else if !open {
				addresses = nil
			}
		}
	}
}
