package dns

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"

	mdns "github.com/miekg/dns"
	"golang.org/x/sync/singleflight"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
)

const (
	// upstreamTimeout bounds one try at one upstream, upstreamTries the tries at each.
	upstreamTimeout = 2 * time.Second
	upstreamTries   = 2
	// cacheEntries bounds the memory of the cache; an entry is one question's answer of at most maxMessage bytes.
	cacheEntries = 4096
	maxCacheTTL  = 30 * time.Second
	maxNegative  = 5 * time.Second
)

// exchanger sends one query to one server.
type exchanger interface {
	Exchange(ctx context.Context, query *mdns.Msg, server string, tcp bool) (*mdns.Msg, error)
}

// forwarder asks the host's resolvers about names that are not the cluster's, and remembers what they said for as long as they allow.
type forwarder struct {
	upstreams func() []string
	exchange  exchanger
	clock     clock.PassiveClock
	cache     *lru.Cache
	flights   singleflight.Group
}

type cached struct {
	message *mdns.Msg
	stored  time.Time
	until   time.Time
}

func newForwarder(upstreams func() []string, exchange exchanger, clock clock.PassiveClock) *forwarder {
	return &forwarder{upstreams: upstreams, exchange: exchange, clock: clock, cache: lru.New(cacheEntries)}
}

var errNoUpstream = errors.New("no upstream resolver answered")

// resolve answers one question; the reply's id and flags of the client are the caller's to set.
func (f *forwarder) resolve(ctx context.Context, q mdns.Question) (*mdns.Msg, error) {
	key := strings.ToLower(q.Name) + "/" + mdns.TypeToString[q.Qtype] + "/" + mdns.ClassToString[q.Qclass]
	if reply := f.remembered(key); reply != nil {
		return reply, nil
	}
	// Many clients with one question cost one query.
	out, err, _ := f.flights.Do(key, func() (any, error) {
		reply, err := f.ask(ctx, q)
		if err == nil {
			f.remember(key, reply)
		}
		return reply, err
	})
	if err != nil {
		return nil, err
	}
	return out.(*mdns.Msg).Copy(), nil
}

func (f *forwarder) ask(ctx context.Context, q mdns.Question) (*mdns.Msg, error) {
	query := new(mdns.Msg)
	query.SetQuestion(q.Name, q.Qtype)
	query.Question[0].Qclass = q.Qclass
	query.SetEdns0(maxUDP, false)
	err := errNoUpstream
	for range upstreamTries {
		for _, server := range f.upstreams() {
			reply, fault := f.askOne(ctx, query, server)
			if fault == nil {
				return reply, nil
			}
			err = fault
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
		}
	}
	return nil, err
}

func (f *forwarder) askOne(ctx context.Context, query *mdns.Msg, server string) (*mdns.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, upstreamTimeout)
	defer cancel()
	reply, err := f.exchange.Exchange(ctx, query, server, false)
	if err == nil && reply.Truncated {
		reply, err = f.exchange.Exchange(ctx, query, server, true)
	}
	if err != nil {
		return nil, err
	}
	if reply.Rcode == mdns.RcodeServerFailure || reply.Rcode == mdns.RcodeRefused {
		return nil, errors.New(server + " answered " + mdns.RcodeToString[reply.Rcode])
	}
	return reply, nil
}

func (f *forwarder) remembered(key string) *mdns.Msg {
	value, ok := f.cache.Get(key)
	if !ok {
		return nil
	}
	entry := value.(cached)
	now := f.clock.Now()
	if !now.Before(entry.until) {
		f.cache.Remove(key)
		return nil
	}
	reply := entry.message.Copy()
	age := uint32(now.Sub(entry.stored) / time.Second)
	for _, section := range [][]mdns.RR{reply.Answer, reply.Ns} {
		for _, r := range section {
			r.Header().Ttl -= min(age, r.Header().Ttl)
		}
	}
	return reply
}

func (f *forwarder) remember(key string, reply *mdns.Msg) {
	ttl := maxCacheTTL
	records := reply.Answer
	if len(records) == 0 {
		ttl, records = maxNegative, reply.Ns
	}
	for _, r := range records {
		ttl = min(ttl, time.Duration(r.Header().Ttl)*time.Second)
	}
	if ttl <= 0 || reply.Len() > maxMessage {
		return
	}
	now := f.clock.Now()
	f.cache.Add(key, cached{message: reply.Copy(), stored: now, until: now.Add(ttl)})
}

// wire is the exchanger over the network.
type wire struct{}

func (wire) Exchange(ctx context.Context, query *mdns.Msg, server string, tcp bool) (*mdns.Msg, error) {
	client := &mdns.Client{Net: "udp", UDPSize: maxUDP}
	if tcp {
		client.Net = "tcp"
	}
	reply, _, err := client.ExchangeContext(ctx, query, server)
	return reply, err
}

// resolvConf reads the upstreams from a resolv.conf when it has changed, and leaves out this server's own addresses: asking itself
// would never end.
type resolvConf struct {
	path string
	own  []netip.AddrPort

	mu       sync.Mutex
	modified time.Time
	servers  []string
}

func (r *resolvConf) upstreams() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	info, err := os.Stat(r.path)
	if err != nil {
		return r.servers
	}
	if info.ModTime().Equal(r.modified) {
		return r.servers
	}
	config, err := mdns.ClientConfigFromFile(r.path)
	if err != nil {
		return r.servers
	}
	r.modified, r.servers = info.ModTime(), nil
	for _, server := range config.Servers {
		address := net.JoinHostPort(server, config.Port)
		if parsed, err := netip.ParseAddrPort(address); err != nil || !r.isOwn(parsed) {
			r.servers = append(r.servers, address)
		}
	}
	return r.servers
}

func (r *resolvConf) isOwn(a netip.AddrPort) bool {
	for _, own := range r.own {
		if own == a {
			return true
		}
	}
	return false
}
