package nodeipam

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"
)

func TestFree(t *testing.T) {
	for _, c := range []struct {
		what    string
		cluster string
		bits    int
		taken   []string
		want    string
	}{
		{"the first", "10.42.0.0/16", 24, nil, "10.42.0.0/24"},
		{"the next", "10.42.0.0/16", 24, []string{"10.42.0.0/24"}, "10.42.1.0/24"},
		{"a gap", "10.42.0.0/16", 24, []string{"10.42.0.0/24", "10.42.2.0/24"}, "10.42.1.0/24"},
		{"behind a larger one", "10.42.0.0/16", 24, []string{"10.42.0.0/20"}, "10.42.16.0/24"},
		{"around a smaller one", "10.42.0.0/16", 24, []string{"10.42.0.128/25"}, "10.42.1.0/24"},
		{"others' ranges do not matter", "10.42.0.0/16", 24, []string{"192.0.2.0/24"}, "10.42.0.0/24"},
		{"all taken", "10.42.0.0/23", 24, []string{"10.42.0.0/24", "10.42.1.0/24"}, ""},
		{"the end of the address space", "255.255.255.0/24", 24, []string{"255.255.255.0/24"}, ""},
		{"IPv6", "fd00:42::/56", 64, []string{"fd00:42::/64"}, "fd00:42:0:1::/64"},
	} {
		r := NewRanges(netip.MustParsePrefix(c.cluster), c.bits)
		for _, text := range c.taken {
			r.Take(netip.MustParsePrefix(text))
		}
		got, ok := r.Free()
		if ok != (c.want != "") || ok && got.String() != c.want {
			t.Errorf("%s: %v, %v; want %q", c.what, got, ok, c.want)
		}
	}
}

// Whatever was taken and given back, the first free piece is the one that trying them all finds.
func TestFreeIsTheFirst(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 1))
	cluster := netip.MustParsePrefix("10.42.0.0/19")
	r := NewRanges(cluster, 24)
	var taken []netip.Prefix
	for step := range 3000 {
		switch n := random.IntN(10); {
		case n < 4 && len(taken) > 0:
			i := random.IntN(len(taken))
			r.Give(taken[i])
			taken = slices.Delete(taken, i, i+1)
		default:
			p, ok := r.Free()
			if n == 9 || !ok { // somebody's own choice
				p = netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 42, byte(random.IntN(40)), byte(random.IntN(256))}), 21+random.IntN(6))
			}
			r.Take(p)
			taken = append(taken, p)
		}
		if len(taken) > 28 {
			r.Give(taken[0])
			taken = taken[1:]
		}
		want := netip.Prefix{}
		for i := range 32 {
			p := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 42, byte(i), 0}), 24)
			if !slices.ContainsFunc(taken, p.Overlaps) {
				want = p
				break
			}
		}
		if got, ok := r.Free(); got != want || ok != want.IsValid() {
			t.Fatalf("seed %d, step %d: %v is free with %v taken, got %v", seed, step, want, taken, got)
		}
	}
}
