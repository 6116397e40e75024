package core

import (
	"math/big"
	"net/netip"
)

// usableRange leaves out the network's own address, and IPv4's broadcast address.
func usableRange(cidr netip.Prefix) (first, last netip.Addr) {
	cidr = cidr.Masked()
	size := rangeSize(cidr)
	first, last = cidr.Addr().Next(), addTo(cidr.Addr(), size-1)
	if cidr.Addr().Is4() {
		last = last.Prev()
	}
	return first, last
}

// rangeSize is the number of addresses, at most 2^62.
func rangeSize(cidr netip.Prefix) uint64 {
	return uint64(1) << min(cidr.Addr().BitLen()-cidr.Bits(), 62)
}

func addTo(ip netip.Addr, n uint64) netip.Addr {
	b := ip.As16()
	sum := new(big.Int).Add(new(big.Int).SetBytes(b[:]), new(big.Int).SetUint64(n))
	sum.FillBytes(b[:])
	out := netip.AddrFrom16(b)
	if ip.Is4() {
		return out.Unmap()
	}
	return out
}

// lowerBand is how many values at the start of a range are left to those who ask for a certain one, as long as there are others.
func lowerBand(size, fraction, most uint64) uint64 {
	band := min(max(16, size/fraction), most)
	if band >= size {
		return 0
	}
	return band
}

func pickAddress(cidr netip.Prefix, seed uint64, free func(ip string) bool) (string, bool) {
	first, _ := usableRange(cidr)
	size := rangeSize(cidr.Masked()) - 1 // the network's address
	if cidr.Addr().Is4() {
		size--
	}
	if cidr.Addr().BitLen()-cidr.Bits() < 2 {
		return "", false
	}
	n, ok := pick(size, lowerBand(size, 16, 256), seed, func(i uint64) bool { return free(addTo(first, i).String()) })
	return addTo(first, n).String(), ok
}

// pick finds a free number below size: from the seed's place upwards and around in the upper band, then in the lower one.
func pick(size, band, seed uint64, free func(uint64) bool) (uint64, bool) {
	for _, r := range []struct{ from, n uint64 }{{band, size - band}, {0, band}} {
		for i := uint64(0); i < r.n; i++ {
			if at := r.from + (seed%r.n+i)%r.n; free(at) {
				return at, true
			}
		}
	}
	return 0, false
}
