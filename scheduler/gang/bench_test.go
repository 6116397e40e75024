package gang_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// BenchmarkDomains decides about a gang of 100 pods amid 5,000 nodes that must share a label's value: one of few large domains or of many small ones, where the first has room for
// all, or none has.
func BenchmarkDomains(b *testing.B) {
	for _, c := range []struct {
		domains int
		cpu     string
		fits    bool
	}{{3, "1", true}, {100, "1", true}, {100, "9", false}, {3, "9", false}} {
		b.Run(fmt.Sprintf("%d/fits=%v", c.domains, c.fits), func(b *testing.B) {
			m := newModel(b, rand.New(rand.NewPCG(1, 2)))
			for i := range 5000 {
				m.node(fmt.Sprintf("n%d 8 rack=r%d", i, i%c.domains))
			}
			w := m.want(100, slicesOf(c.cpu, 100)...)
			w.Topology = "rack"
			b.ReportAllocs()
			for b.Loop() {
				p := m.decide(w)
				if p.Settled != c.fits {
					b.Fatal(p.Message)
				}
				for _, at := range p.Placements {
					if p.Settled {
						m.nodes.RemovePod(w.Members[at.Member].Pod)
					}
				}
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "gangs/s")
		})
	}
}
