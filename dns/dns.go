// Package dns answers the cluster's names on each node, from the Yare process itself: no pod, no hop to another machine.
//
// It follows the Kubernetes DNS-Based Service Discovery specification 1.1.0. [Zone] is the pure part, a function from a question and a
// [View] to an answer; the server around it reads packets, and forwards what is not the cluster's to the host's resolvers, with a bounded cache.
// A change of a Service or an endpoint slice shows in the next answer; clients may keep the last for [TTL] seconds.
//
// It serves no zone transfers, no dynamic updates and no DNSSEC, and never recurses for a name of the cluster.
package dns

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	mdns "github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/yare-project/yare/client"
)

const (
	// maxUDP is the UDP payload that avoids fragments everywhere (DNS Flag Day 2020).
	maxUDP = 1232
	// maxMessage is the largest DNS message.
	maxMessage = 65535
	// maxInFlight bounds the questions that wait for upstreams, and with them memory.
	maxInFlight = 1000
	// maxChase bounds how many CNAMEs are followed for one question.
	maxChase = 8
	// idleTimeout ends a TCP connection on which nothing is asked.
	idleTimeout = 10 * time.Second
)

// Config is what the server needs.
type Config struct {
	// Domain of the cluster, such as "cluster.local".
	Domain string
	// Listen addresses, served over UDP and TCP each.
	Listen []netip.AddrPort
	// ResolvConf names the file with the upstream resolvers; empty means /etc/resolv.conf.
	ResolvConf string
	Caches     *client.Caches
	Clock      clock.PassiveClock
	Log        *slog.Logger
	Metrics    prometheus.Registerer
}

// Server answers questions until its Run ends.
type Server struct {
	config  Config
	zone    *Zone
	forward *forwarder
	slots   chan struct{}
	ready   chan struct{}
	answers *prometheus.CounterVec
}

// New builds a server; nothing listens before Run.
func New(c Config) (*Server, error) {
	if c.ResolvConf == "" {
		c.ResolvConf = "/etc/resolv.conf"
	}
	if _, ok := mdns.IsDomainName(c.Domain); !ok || c.Domain == "" {
		return nil, fmt.Errorf("dns: %q is not a domain name", c.Domain)
	}
	s := &Server{
		config: c,
		zone:   &Zone{Domain: mdns.CanonicalName(c.Domain), View: newView(c.Caches)},
		slots:  make(chan struct{}, maxInFlight),
		ready:  make(chan struct{}),
		answers: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "yare_dns_responses_total", Help: "DNS answers by response code and origin (cluster or upstream).",
		}, []string{"rcode", "origin"}),
	}
	conf := &resolvConf{path: c.ResolvConf, own: c.Listen}
	s.forward = newForwarder(conf.upstreams, wire{}, c.Clock)
	if c.Metrics != nil {
		if err := c.Metrics.Register(s.answers); err != nil {
			return nil, fmt.Errorf("dns: %w", err)
		}
	}
	return s, nil
}

// Ready is closed once every address is listened on.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// Run serves until ctx ends. It returns an error if an address cannot be listened on. It is called once.
func (s *Server) Run(ctx context.Context) error {
	servers, err := s.listen(ctx)
	if err != nil {
		return err
	}
	close(s.ready)
	ended := make(chan error, len(servers))
	var running sync.WaitGroup
	for _, server := range servers {
		running.Go(func() { ended <- server.ActivateAndServe() })
	}
	select {
	case <-ctx.Done():
	case err = <-ended:
	}
	for _, server := range servers {
		_ = server.Shutdown()
		closeSocket(server)
	}
	running.Wait()
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("dns: %w", err)
}

// listen opens every socket, or none. IP_FREEBIND lets it start before the address is on an interface.
func (s *Server) listen(ctx context.Context) ([]*mdns.Server, error) {
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var fault error
		err := c.Control(func(fd uintptr) { fault = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_IP, syscall.IP_FREEBIND, 1) })
		return errors.Join(err, fault)
	}}
	var out []*mdns.Server
	fail := func(a netip.AddrPort, err error) ([]*mdns.Server, error) {
		for _, server := range out {
			closeSocket(server)
		}
		return nil, fmt.Errorf("dns: cannot listen on %s: %w; is another DNS server or cluster using that address?", a, err)
	}
	for _, a := range s.config.Listen {
		packets, err := config.ListenPacket(ctx, "udp", a.String())
		if err != nil {
			return fail(a, err)
		}
		out = append(out, &mdns.Server{PacketConn: packets, Handler: s, UDPSize: maxUDP})
		listener, err := config.Listen(ctx, "tcp", a.String())
		if err != nil {
			return fail(a, err)
		}
		out = append(out, &mdns.Server{Listener: listener, Handler: s, IdleTimeout: func() time.Duration { return idleTimeout }, ReadTimeout: idleTimeout})
	}
	return out, nil
}

func closeSocket(s *mdns.Server) {
	if s.PacketConn != nil {
		_ = s.PacketConn.Close()
	}
	if s.Listener != nil {
		_ = s.Listener.Close()
	}
}

// ServeDNS answers one message.
func (s *Server) ServeDNS(w mdns.ResponseWriter, query *mdns.Msg) {
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	default:
		return // overloaded: the client asks again, and memory stays bounded
	}
	ctx, cancel := context.WithTimeout(context.Background(), upstreamTimeout*upstreamTries*2)
	defer cancel()
	reply := s.Answer(ctx, query)
	if _, udp := w.RemoteAddr().(*net.UDPAddr); udp {
		size := mdns.MinMsgSize
		if edns := query.IsEdns0(); edns != nil {
			size = max(size, min(int(edns.UDPSize()), maxUDP))
		}
		reply.Truncate(size)
	}
	if err := w.WriteMsg(reply); err != nil {
		s.config.Log.Debug("dns: cannot send an answer", "to", w.RemoteAddr(), "error", err)
	}
}

// Answer makes the reply to a query.
func (s *Server) Answer(ctx context.Context, query *mdns.Msg) *mdns.Msg {
	reply := new(mdns.Msg)
	reply.SetReply(query)
	reply.RecursionAvailable = true
	reply.Compress = true
	origin := "cluster"
	switch {
	case query.Opcode != mdns.OpcodeQuery:
		reply.Rcode = mdns.RcodeNotImplemented
	case len(query.Question) != 1:
		reply.Rcode = mdns.RcodeFormatError
	case query.Question[0].Qclass != mdns.ClassINET || query.Question[0].Qtype == mdns.TypeAXFR || query.Question[0].Qtype == mdns.TypeIXFR:
		reply.Rcode = mdns.RcodeRefused
	default:
		origin = s.fill(ctx, reply, query.Question[0])
	}
	if edns := query.IsEdns0(); edns != nil {
		reply.SetEdns0(maxUDP, false)
	}
	s.answers.WithLabelValues(mdns.RcodeToString[reply.Rcode], origin).Inc()
	return reply
}

func (s *Server) fill(ctx context.Context, reply *mdns.Msg, q mdns.Question) (origin string) {
	answer, ours := s.zone.Resolve(q.Name, q.Qtype)
	if !ours {
		s.fillUpstream(ctx, reply, q)
		return "upstream"
	}
	reply.Authoritative = true
	reply.Rcode = answer.Code
	reply.Answer, reply.Extra = answer.Answer, answer.Extra
	s.chase(ctx, reply, answer.Follow, q.Qtype)
	if len(reply.Answer) == 0 {
		reply.Ns = []mdns.RR{s.zone.SOA()}
	}
	return "cluster"
}

func (s *Server) fillUpstream(ctx context.Context, reply *mdns.Msg, q mdns.Question) {
	got, err := s.forward.resolve(ctx, q)
	if err != nil {
		s.config.Log.Debug("dns: no upstream answer", "name", q.Name, "error", err)
		reply.Rcode = mdns.RcodeServerFailure
		return
	}
	reply.Rcode, reply.Answer, reply.Ns = got.Rcode, got.Answer, got.Ns
	for _, r := range got.Extra {
		if r.Header().Rrtype != mdns.TypeOPT {
			reply.Extra = append(reply.Extra, r)
		}
	}
}

// chase appends what a CNAME's target resolves to, in the cluster or upstream. A target that nobody knows leaves the CNAME alone.
func (s *Server) chase(ctx context.Context, reply *mdns.Msg, target string, qtype uint16) {
	for range maxChase {
		if target == "" {
			return
		}
		answer, ours := s.zone.Resolve(target, qtype)
		if !ours {
			got, err := s.forward.resolve(ctx, mdns.Question{Name: target, Qtype: qtype, Qclass: mdns.ClassINET})
			if err == nil {
				reply.Answer = append(reply.Answer, got.Answer...)
			}
			return
		}
		reply.Answer = append(reply.Answer, answer.Answer...)
		target = answer.Follow
	}
}
