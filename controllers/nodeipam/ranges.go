package nodeipam

import "net/netip"

// Ranges are what is given out of a cluster's addresses, in pieces of one size. Finding the next free piece costs the same however many there are, as long
// as those that somebody else chose are of the same size too.
type Ranges struct {
	cluster netip.Prefix
	bits    int
	pieces  map[netip.Prefix]int // pieces of the usual size that are taken, and how often
	odd     map[netip.Prefix]int // ranges of other sizes
	from    netip.Addr           // no piece below is free
}

// NewRanges divides cluster into pieces of the given number of bits.
func NewRanges(cluster netip.Prefix, bits int) *Ranges {
	cluster = cluster.Masked()
	return &Ranges{cluster: cluster, bits: bits, pieces: map[netip.Prefix]int{}, odd: map[netip.Prefix]int{}, from: cluster.Addr()}
}

// Take notes that p is in use, by one more. Ranges outside the cluster's don't matter.
func (r *Ranges) Take(p netip.Prefix) {
	if p = p.Masked(); r.cluster.Overlaps(p) {
		r.of(p)[p]++
	}
}

// Give notes that p is in use by one less.
func (r *Ranges) Give(p netip.Prefix) {
	p = p.Masked()
	in := r.of(p)
	switch n := in[p]; n {
	case 0:
		return
	case 1:
		delete(in, p)
	default:
		in[p] = n - 1
		return
	}
	start := p.Addr()
	if p.Bits() > r.bits { // the piece around it may be free now
		start = netip.PrefixFrom(start, r.bits).Masked().Addr()
	}
	if start.Less(r.from) {
		r.from = start
	}
	if r.from.Less(r.cluster.Addr()) {
		r.from = r.cluster.Addr()
	}
}

func (r *Ranges) of(p netip.Prefix) map[netip.Prefix]int {
	if p.Bits() == r.bits {
		return r.pieces
	}
	return r.odd
}

// Free finds the first piece that overlaps nothing in use; false if there is none. It stays free until it is taken.
func (r *Ranges) Free() (netip.Prefix, bool) {
	for at := r.from; at.IsValid() && r.cluster.Contains(at); {
		p := netip.PrefixFrom(at, r.bits)
		blocker, blocked := r.blocker(p)
		if !blocked {
			r.from = at
			return p, true
		}
		if at = after(blocker); at.IsValid() {
			r.from = at // nothing before is free, though nothing may be behind either
		}
	}
	return netip.Prefix{}, false
}

// blocker is what must be passed to find the next piece after p, if p is not free.
func (r *Ranges) blocker(p netip.Prefix) (netip.Prefix, bool) {
	if r.pieces[p] > 0 {
		return p, true
	}
	for o := range r.odd {
		switch {
		case !o.Overlaps(p):
		case o.Bits() < r.bits:
			return o, true
		default:
			return p, true
		}
	}
	return netip.Prefix{}, false
}

// after is the first address behind a range, invalid at the end of the address space.
func after(p netip.Prefix) netip.Addr {
	bytes := p.Masked().Addr().AsSlice()
	for bit := p.Bits() - 1; bit >= 0; bit-- {
		mask := byte(1) << (7 - bit%8)
		bytes[bit/8] ^= mask
		if bytes[bit/8]&mask != 0 { // no carry
			a, _ := netip.AddrFromSlice(bytes)
			return a
		}
	}
	return netip.Addr{}
}
