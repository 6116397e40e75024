// Package proxy makes Services work on one node: it turns Services and endpoint slices into nftables rules.
//
// The heart is pure: [Ports] reads objects, [Choose] picks endpoints, [Build] writes one Service's rules, [Diff] finds the smallest
// transaction between two states. The shell around it wakes on changes, applies them in one kernel transaction, and collects what
// changes meanwhile into the next: no timer delays a change, and only what changed is written.
//
// It guarantees that the kernel holds a complete old or a complete new state, that only the table of its own name is touched (so that
// two clusters and a host's firewall stand side by side), and that a table which somebody else damaged is made anew. hostPort belongs to
// the CNI plugin portmap. NodePorts answer on every address of the node except 127.0.0.0/8.
package proxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/knftables"

	"github.com/yare-project/yare/client"
)

const (
	// checkEvery is how often the kernel is asked whether the table is whole.
	checkEvery = time.Minute
	// retryFirst and retryMost bound the wait after the kernel refused a transaction.
	retryFirst = 100 * time.Millisecond
	retryMost  = 30 * time.Second
)

// Config is what the proxy needs.
type Config struct {
	// Table is the name of the nftables table, one for each cluster on the machine.
	Table       string
	NodeName    string
	ClusterCIDR []netip.Prefix
	ServiceCIDR []netip.Prefix
	Caches      *client.Caches
	Clock       clock.WithTicker
	Log         *slog.Logger
	Metrics     prometheus.Registerer
	// NFT opens a table of a family; nil means the kernel's.
	NFT func(knftables.Family, string) (knftables.Interface, error)
	// Conntrack forgets UDP flows; nil means the kernel's.
	Conntrack Conntrack
}

const byService = "proxy/service"

// Proxy keeps the rules until its Run ends.
type Proxy struct {
	config   Config
	services client.Cache[*corev1.Service]
	slices   client.Cache[*discoveryv1.EndpointSlice]
	nodes    client.Cache[*corev1.Node]
	tables   map[bool]*table // by IPv6
	health   *healthServer
	sync     prometheus.Histogram
	wake     chan struct{}
	ready    chan struct{}

	mu    sync.Mutex
	dirty map[types.NamespacedName]bool
	all   bool

	ports map[types.NamespacedName][]Port // as applied; Run's goroutine only
}

// New builds a proxy. It fails if the machine cannot have nftables rules. Nothing is changed before Run.
func New(c Config) (*Proxy, error) {
	if c.NFT == nil {
		c.NFT = openKernel
	}
	if c.Conntrack == nil {
		c.Conntrack = kernelConntrack{}
	}
	p := &Proxy{
		config: c, tables: map[bool]*table{}, dirty: map[types.NamespacedName]bool{}, all: true,
		wake: make(chan struct{}, 1), ready: make(chan struct{}), ports: map[types.NamespacedName][]Port{},
		services: client.CacheOf[*corev1.Service](c.Caches, client.CacheOptions{}),
		slices:   client.CacheOf[*discoveryv1.EndpointSlice](c.Caches, client.CacheOptions{}),
		nodes:    client.CacheOf[*corev1.Node](c.Caches, client.CacheOptions{FieldSelector: "metadata.name=" + c.NodeName}),
		health:   newHealthServer(c.Log),
		sync:     prometheus.NewHistogram(prometheus.HistogramOpts{Name: "yare_proxy_sync_seconds", Help: "Time to bring the kernel up to date.", Buckets: prometheus.ExponentialBuckets(0.001, 2, 14)}),
	}
	for _, cidr := range c.ServiceCIDR {
		family := knftables.IPv4Family
		if cidr.Addr().Is6() {
			family = knftables.IPv6Family
		}
		nft, err := c.NFT(family, c.Table)
		if err != nil {
			return nil, err
		}
		p.tables[cidr.Addr().Is6()] = newTable(nft, family, c.ClusterCIDR, c.ServiceCIDR)
	}
	if c.Metrics != nil {
		if err := c.Metrics.Register(p.sync); err != nil {
			return nil, fmt.Errorf("proxy: %w", err)
		}
	}
	p.watch()
	return p, nil
}

func openKernel(family knftables.Family, name string) (knftables.Interface, error) {
	nft, err := knftables.New(family, name)
	if err != nil {
		return nil, fmt.Errorf("proxy: nftables cannot be used: %w; install the package nftables (the program nft, 1.0.1 or newer) and use a kernel with nf_tables", err)
	}
	return nft, nil
}

func (p *Proxy) watch() {
	p.slices.AddIndex(byService, func(s *discoveryv1.EndpointSlice) []string {
		return []string{s.Namespace + "/" + s.Labels[discoveryv1.LabelServiceName]}
	})
	p.services.OnChange(func(old, new *corev1.Service) {
		for _, s := range []*corev1.Service{old, new} {
			if s != nil {
				p.mark(types.NamespacedName{Namespace: s.Namespace, Name: s.Name})
			}
		}
	})
	p.slices.OnChange(func(old, new *discoveryv1.EndpointSlice) {
		for _, s := range []*discoveryv1.EndpointSlice{old, new} {
			if s != nil && s.Labels[discoveryv1.LabelServiceName] != "" {
				p.mark(types.NamespacedName{Namespace: s.Namespace, Name: s.Labels[discoveryv1.LabelServiceName]})
			}
		}
	})
	p.nodes.OnChange(func(old, new *corev1.Node) {
		if old == nil || new == nil || zone(old) != zone(new) {
			p.markAll()
		}
	})
}

func zone(n *corev1.Node) string { return n.Labels[corev1.LabelTopologyZone] }

func (p *Proxy) mark(name types.NamespacedName) {
	p.mu.Lock()
	p.dirty[name] = true
	p.mu.Unlock()
	p.signal()
}

func (p *Proxy) markAll() {
	p.mu.Lock()
	p.all = true
	p.mu.Unlock()
	p.signal()
}

func (p *Proxy) signal() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Ready is closed once the kernel has held a complete state.
func (p *Proxy) Ready() <-chan struct{} { return p.ready }

// Run keeps the kernel up to date until ctx ends. The rules stay: connections go on while Yare restarts. Clean removes them.
func (p *Proxy) Run(ctx context.Context) error {
	defer p.health.close()
	for _, synced := range []<-chan struct{}{p.services.Synced(), p.slices.Synced(), p.nodes.Synced()} {
		select {
		case <-synced:
		case <-ctx.Done():
			return nil
		}
	}
	check := p.config.Clock.NewTicker(checkEvery)
	defer check.Stop()
	wait := retryFirst
	for {
		if err := p.pass(ctx); err != nil && ctx.Err() == nil {
			p.config.Log.Error("proxy: the rules are not up to date; trying again", "error", err, "in", wait)
			p.markAll()
			select {
			case <-ctx.Done():
				return nil
			case <-p.config.Clock.After(wait):
			}
			wait = min(2*wait, retryMost)
			continue
		}
		wait = retryFirst
		select {
		case <-ctx.Done():
			return nil
		case <-p.wake:
		case <-check.C():
			p.verify(ctx)
		}
	}
}

func (p *Proxy) verify(ctx context.Context) {
	for _, t := range p.tables {
		if !t.intact(ctx) && ctx.Err() == nil {
			p.config.Log.Warn("proxy: the nftables table was changed by somebody else; making it anew", "table", p.config.Table)
			p.markAll()
			return
		}
	}
}

// pass brings the kernel up to date with what changed since the last one.
func (p *Proxy) pass(ctx context.Context) error {
	start := p.config.Clock.Now()
	names, all := p.take()
	if len(names) == 0 && !all {
		return nil
	}
	node := p.node()
	if all {
		names = p.everything()
	}
	want := map[bool]map[types.NamespacedName]Fragment{false: {}, true: {}}
	ports := map[types.NamespacedName][]Port{}
	for _, name := range names {
		svc, ok := p.services.Get(name.Namespace, name.Name)
		for v6 := range p.tables {
			var its []Port
			if ok {
				its = Ports(svc, p.slices.By(byService, name.String()), node, v6)
			}
			ports[name] = append(ports[name], its...)
			want[v6][name] = Build(its, node)
		}
	}
	for v6, t := range p.tables {
		if err := p.apply(ctx, t, want[v6], all); err != nil {
			return err
		}
	}
	p.after(ports, all)
	p.sync.Observe(p.config.Clock.Since(start).Seconds())
	return nil
}

func (p *Proxy) apply(ctx context.Context, t *table, want map[types.NamespacedName]Fragment, all bool) error {
	if all {
		return t.replace(ctx, want)
	}
	again, err := t.update(ctx, want)
	for _, name := range again {
		p.mark(name)
	}
	return err
}

// after forgets UDP flows to endpoints that went away and answers health checks by the new state.
func (p *Proxy) after(ports map[types.NamespacedName][]Port, all bool) {
	node := p.node()
	for name, its := range ports {
		if err := p.config.Conntrack.Forget(stale(p.ports[name], its, node)); err != nil {
			p.config.Log.Warn("proxy: UDP flows to an endpoint that is gone may go on until they time out", "service", name, "error", err)
		}
		if len(its) == 0 {
			delete(p.ports, name)
		} else {
			p.ports[name] = its
		}
		svc, ok := p.services.Get(name.Namespace, name.Name)
		p.health.set(name, svc, ok, its)
	}
	if all {
		select {
		case <-p.ready:
		default:
			close(p.ready)
		}
	}
}

func (p *Proxy) take() (names []types.NamespacedName, all bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name := range p.dirty {
		names = append(names, name)
	}
	all = p.all
	p.all = false
	clear(p.dirty)
	return names, all
}

// everything is every Service that there is, and those whose rules must go.
func (p *Proxy) everything() []types.NamespacedName {
	seen := map[types.NamespacedName]bool{}
	for _, s := range p.services.List("") {
		seen[types.NamespacedName{Namespace: s.Namespace, Name: s.Name}] = true
	}
	for name := range p.ports {
		seen[name] = true
	}
	out := make([]types.NamespacedName, 0, len(seen))
	for name := range seen {
		out = append(out, name)
	}
	return out
}

func (p *Proxy) node() Node {
	n := Node{Name: p.config.NodeName, ClusterCIDR: p.config.ClusterCIDR}
	if obj, ok := p.nodes.Get("", p.config.NodeName); ok {
		n.Zone = zone(obj)
	}
	return n
}

// Clean removes the tables of this name. What is not there is no error.
func Clean(ctx context.Context, name string) error {
	var faults []error
	for _, family := range []knftables.Family{knftables.IPv4Family, knftables.IPv6Family} {
		nft, err := openKernel(family, name)
		if err != nil {
			return err
		}
		tx := nft.NewTransaction()
		tx.Add(&knftables.Table{}) // so that the deletion always finds one
		tx.Delete(&knftables.Table{})
		faults = append(faults, nft.Run(ctx, tx))
	}
	return errors.Join(faults...)
}
