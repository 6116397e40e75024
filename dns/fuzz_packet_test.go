package dns

import (
	"context"
	"testing"

	mdns "github.com/miekg/dns"
)

// FuzzPacket answers any packet that can be read as a question. The answer must fit on the wire.
func FuzzPacket(f *testing.F) {
	for _, name := range []string{"web.shop.svc.cluster.local.", "_http._tcp.web.shop.svc.cluster.local.", "1.0.96.10.in-addr.arpa.", "10-0-0-1.shop.pod.cluster.local.", "cluster.local.", ".", "*.", "x.ip6.arpa."} {
		for _, qtype := range []uint16{mdns.TypeA, mdns.TypeSRV, mdns.TypePTR, mdns.TypeANY, mdns.TypeSOA, mdns.TypeNone} {
			m := new(mdns.Msg)
			m.SetQuestion(name, qtype)
			packet, err := m.Pack()
			if err != nil {
				f.Fatal(err)
			}
			f.Add(packet)
		}
	}
	f.Add([]byte{0, 1, 1, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0xc0, 12, 0, 1, 0, 1}) // a name that points at itself
	f.Fuzz(func(t *testing.T, packet []byte) {
		query := new(mdns.Msg)
		if query.Unpack(packet) != nil {
			return
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel() // nobody is asked on
		reply := newBench(t).Answer(ctx, query)
		if reply == nil {
			return
		}
		if _, err := reply.Pack(); err != nil {
			t.Errorf("the answer to %v cannot be written: %v", query, err)
		}
	})
}
