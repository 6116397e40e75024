package nodeipam

import (
	"net/netip"
	"testing"
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
		var taken []netip.Prefix
		for _, text := range c.taken {
			taken = append(taken, netip.MustParsePrefix(text))
		}
		got, ok := Free(netip.MustParsePrefix(c.cluster), c.bits, taken)
		if ok != (c.want != "") || ok && got.String() != c.want {
			t.Errorf("%s: %v, %v; want %q", c.what, got, ok, c.want)
		}
	}
}
