package dns

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	mdns "github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/yare-project/yare/internal/freeport"
)

// upstream is a resolver on loopback that counts what it is asked.
type upstream struct {
	asked   atomic.Int32
	address netip.AddrPort
	answer  func(q mdns.Question, tcp bool) *mdns.Msg
}

func startUpstream(t *testing.T, answer func(q mdns.Question, tcp bool) *mdns.Msg) *upstream {
	t.Helper()
	u := &upstream{answer: answer}
	u.address = closedPort(t)
	packets, err := net.ListenPacket("udp", u.address.String())
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", u.address.String())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []*mdns.Server{{PacketConn: packets}, {Listener: listener}} {
		s.Handler = mdns.HandlerFunc(func(w mdns.ResponseWriter, query *mdns.Msg) {
			u.asked.Add(1)
			_, tcp := w.RemoteAddr().(*net.TCPAddr)
			reply := u.answer(query.Question[0], tcp)
			code, truncated := reply.Rcode, reply.Truncated
			reply.SetReply(query)
			reply.Rcode, reply.Truncated = code, truncated
			_ = w.WriteMsg(reply)
		})
		go s.ActivateAndServe()
		t.Cleanup(func() { _ = s.Shutdown() })
	}
	return u
}

type bench struct {
	*Server
	clock *clocktesting.FakeClock
}

func newBench(t *testing.T, servers ...netip.AddrPort) *bench {
	t.Helper()
	clock := clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0))
	var list []string
	for _, s := range servers {
		list = append(list, s.String())
	}
	s := &Server{
		config:  Config{Log: slog.New(slog.DiscardHandler)},
		zone:    cluster(),
		slots:   make(chan struct{}, maxInFlight),
		ready:   make(chan struct{}),
		answers: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "answers"}, []string{"rcode", "origin"}),
	}
	s.forward = newForwarder(func() []string { return list }, wire{}, clock)
	return &bench{s, clock}
}

func (b *bench) ask(name string, qtype uint16) *mdns.Msg {
	query := new(mdns.Msg)
	query.SetQuestion(name, qtype)
	return b.Answer(context.Background(), query)
}

func address(name, ip string, ttl uint32) *mdns.Msg {
	m := new(mdns.Msg)
	m.Answer = []mdns.RR{&mdns.A{Hdr: mdns.RR_Header{Name: name, Rrtype: mdns.TypeA, Class: mdns.ClassINET, Ttl: ttl}, A: net.ParseIP(ip)}}
	return m
}

func TestOthersNamesAreForwardedAndRemembered(t *testing.T) {
	up := startUpstream(t, func(q mdns.Question, _ bool) *mdns.Msg { return address(q.Name, "192.0.2.7", 20) })
	b := newBench(t, up.address)
	for range 3 {
		if got := text(b.ask("example.org.", mdns.TypeA).Answer); got != "A 192.0.2.7" {
			t.Fatalf("got %q", got)
		}
	}
	if n := up.asked.Load(); n != 1 {
		t.Errorf("three equal questions asked the upstream %d times", n)
	}
	b.clock.Step(15 * time.Second)
	if ttl := b.ask("example.org.", mdns.TypeA).Answer[0].Header().Ttl; ttl != 5 {
		t.Errorf("after 15 of 20 seconds the TTL is %d, not 5", ttl)
	}
	b.clock.Step(5 * time.Second)
	b.ask("example.org.", mdns.TypeA)
	if n := up.asked.Load(); n != 2 {
		t.Errorf("after the TTL the upstream was asked %d times in all, not 2", n)
	}
}

func TestTheClustersNamesNeverLeave(t *testing.T) {
	up := startUpstream(t, func(q mdns.Question, _ bool) *mdns.Msg { return address(q.Name, "192.0.2.7", 20) })
	b := newBench(t, up.address)
	reply := b.ask("none.default.svc.cluster.local.", mdns.TypeA)
	if reply.Rcode != mdns.RcodeNameError || len(reply.Ns) != 1 || !reply.Authoritative {
		t.Errorf("a missing name: %s", reply)
	}
	if n := up.asked.Load(); n != 0 {
		t.Errorf("the upstream was asked about a name of the cluster")
	}
}

func TestExternalNamesAreFollowed(t *testing.T) {
	up := startUpstream(t, func(q mdns.Question, _ bool) *mdns.Msg { return address(q.Name, "192.0.2.25", 20) })
	b := newBench(t, up.address)
	if diff := cmp.Diff("CNAME mail.example.org.\nA 192.0.2.25", text(b.ask("mail.default.svc.cluster.local.", mdns.TypeA).Answer)); diff != "" {
		t.Errorf("a target elsewhere (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff("CNAME web.default.svc.cluster.local.\nA 10.43.0.20", text(b.ask("alias.default.svc.cluster.local.", mdns.TypeA).Answer)); diff != "" {
		t.Errorf("a target in the cluster (-want +got):\n%s", diff)
	}
}

func TestATruncatedAnswerIsFetchedOverTCP(t *testing.T) {
	up := startUpstream(t, func(q mdns.Question, tcp bool) *mdns.Msg {
		m := address(q.Name, "192.0.2.7", 20)
		m.Truncated = !tcp
		if !tcp {
			m.Answer = nil
		}
		return m
	})
	if got := text(newBench(t, up.address).ask("big.example.org.", mdns.TypeA).Answer); got != "A 192.0.2.7" {
		t.Errorf("got %q", got)
	}
}

func TestAFailingUpstreamIsPassedOver(t *testing.T) {
	bad := startUpstream(t, func(mdns.Question, bool) *mdns.Msg {
		return &mdns.Msg{MsgHdr: mdns.MsgHdr{Rcode: mdns.RcodeServerFailure}}
	})
	good := startUpstream(t, func(q mdns.Question, _ bool) *mdns.Msg { return address(q.Name, "192.0.2.8", 20) })
	closed := closedPort(t)
	if got := text(newBench(t, closed, bad.address, good.address).ask("example.org.", mdns.TypeA).Answer); got != "A 192.0.2.8" {
		t.Errorf("got %q", got)
	}
}

func TestWithoutUpstreamsTheAnswerIsServerFailure(t *testing.T) {
	if got := newBench(t, closedPort(t)).ask("example.org.", mdns.TypeA).Rcode; got != mdns.RcodeServerFailure {
		t.Errorf("got %s", mdns.RcodeToString[got])
	}
	if got := newBench(t).ask("example.org.", mdns.TypeA).Rcode; got != mdns.RcodeServerFailure {
		t.Errorf("with no upstream at all: %s", mdns.RcodeToString[got])
	}
}

func closedPort(t *testing.T) netip.AddrPort {
	t.Helper()
	port, err := freeport.Find("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	return netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(port))
}

func TestOddQueries(t *testing.T) {
	b := newBench(t)
	for _, c := range []struct {
		what string
		edit func(*mdns.Msg)
		want int
	}{
		{"an update", func(m *mdns.Msg) { m.Opcode = mdns.OpcodeUpdate }, mdns.RcodeNotImplemented},
		{"no question", func(m *mdns.Msg) { m.Question = nil }, mdns.RcodeFormatError},
		{"two questions", func(m *mdns.Msg) { m.Question = append(m.Question, m.Question[0]) }, mdns.RcodeFormatError},
		{"class CHAOS", func(m *mdns.Msg) { m.Question[0].Qclass = mdns.ClassCHAOS }, mdns.RcodeRefused},
		{"a zone transfer", func(m *mdns.Msg) { m.Question[0].Qtype = mdns.TypeAXFR }, mdns.RcodeRefused},
	} {
		query := new(mdns.Msg)
		query.SetQuestion("web.default.svc.cluster.local.", mdns.TypeA)
		c.edit(query)
		if got := b.Answer(context.Background(), query).Rcode; got != c.want {
			t.Errorf("%s: %s, want %s", c.what, mdns.RcodeToString[got], mdns.RcodeToString[c.want])
		}
	}
}

func TestItServesUDPAndTCPAndStops(t *testing.T) {
	b := newBench(t)
	b.config.Listen = []netip.AddrPort{closedPort(t)}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- b.Run(ctx) }()
	<-b.Ready()
	for _, network := range []string{"udp", "tcp"} {
		client := &mdns.Client{Net: network}
		query := new(mdns.Msg)
		query.SetQuestion("web.default.svc.cluster.local.", mdns.TypeA)
		reply, _, err := client.Exchange(query, b.config.Listen[0].String())
		if err != nil || text(reply.Answer) != "A 10.43.0.20" {
			t.Errorf("%s: %v, %v", network, reply, err)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("the end: %v", err)
	}
}

func TestItsOwnAddressIsNoUpstream(t *testing.T) {
	path := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(path, []byte("nameserver 10.43.0.10\nnameserver 192.0.2.53\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	r := &resolvConf{path: path, own: []netip.AddrPort{netip.MustParseAddrPort("10.43.0.10:53")}}
	if diff := cmp.Diff([]string{"192.0.2.53:53"}, r.upstreams()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func BenchmarkAnswer(b *testing.B) {
	s := &Server{config: Config{Log: slog.New(slog.DiscardHandler)}, zone: cluster(),
		answers: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "answers"}, []string{"rcode", "origin"})}
	query := new(mdns.Msg)
	query.SetQuestion("web.default.svc.cluster.local.", mdns.TypeA)
	b.ReportAllocs()
	for b.Loop() {
		s.Answer(context.Background(), query)
	}
}
