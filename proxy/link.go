package proxy

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"

	"github.com/vishvananda/netlink"
)

// Link makes an interface of this name (15 bytes at most) that gives the node a route to the Services' addresses, whether or not it
// has a default route: their packets must pass through netfilter, where they are translated. It also carries own, addresses of
// Services that are answered on the node itself, such as cluster DNS. It is safe to call again.
func Link(name string, serviceCIDR []netip.Prefix, own ...netip.Addr) error {
	// A bridge without ports: unlike a dummy, each kernel that can run pods has it.
	if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name}}); err != nil && !errors.Is(err, syscall.EEXIST) {
		return fmt.Errorf("proxy: cannot make the interface %s: %w; does the kernel have the bridge driver?", name, err)
	}
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("proxy: interface %s: %w", name, err)
	}
	for _, ip := range own {
		address := &netlink.Addr{IPNet: &net.IPNet{IP: ip.AsSlice(), Mask: net.CIDRMask(ip.BitLen(), ip.BitLen())}}
		if err := netlink.AddrReplace(link, address); err != nil {
			return fmt.Errorf("proxy: cannot give %s the address %s: %w", name, ip, err)
		}
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("proxy: cannot set %s up: %w", name, err)
	}
	for _, p := range serviceCIDR {
		to := &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
		route := &netlink.Route{LinkIndex: link.Attrs().Index, Dst: to, Scope: netlink.SCOPE_LINK}
		if err := netlink.RouteReplace(route); err != nil {
			return fmt.Errorf("proxy: cannot route %s to %s: %w", p, name, err)
		}
	}
	return nil
}

// Unlink removes the interface with its routes; one that is not there is no error.
func Unlink(name string) error {
	link, err := netlink.LinkByName(name)
	var missing netlink.LinkNotFoundError
	if errors.As(err, &missing) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("proxy: interface %s: %w", name, err)
	}
	return netlink.LinkDel(link)
}
