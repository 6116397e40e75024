package dns

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"

	"github.com/vishvananda/netlink"
)

// Link gives the host the DNS service's address on a dummy interface of this name, so that pods and host reach the server without a
// translation. It is safe to call again. Interface names have at most 15 bytes.
func Link(name string, ip netip.Addr) error {
	link := &netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Name: name}}
	if err := netlink.LinkAdd(link); err != nil && !errors.Is(err, syscall.EEXIST) {
		return fmt.Errorf("dns: cannot make the interface %s: %w; does the kernel have the dummy driver?", name, err)
	}
	found, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("dns: interface %s: %w", name, err)
	}
	address := &netlink.Addr{IPNet: &net.IPNet{IP: ip.AsSlice(), Mask: net.CIDRMask(ip.BitLen(), ip.BitLen())}}
	if err := netlink.AddrReplace(found, address); err != nil {
		return fmt.Errorf("dns: cannot give %s the address %s: %w", name, ip, err)
	}
	if err := netlink.LinkSetUp(found); err != nil {
		return fmt.Errorf("dns: cannot set %s up: %w", name, err)
	}
	return nil
}

// Unlink removes the interface; one that is not there is no error.
func Unlink(name string) error {
	found, err := netlink.LinkByName(name)
	var missing netlink.LinkNotFoundError
	if errors.As(err, &missing) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("dns: interface %s: %w", name, err)
	}
	return netlink.LinkDel(found)
}
