package server

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/discovery"

	"github.com/yare-project/yare/apiserver"
	"github.com/yare-project/yare/apiserver/aggregation"
	"github.com/yare-project/yare/apiserver/dynamic"
	"github.com/yare-project/yare/controllers/served"
	"github.com/yare-project/yare/kind"
	"github.com/yare-project/yare/kinds"
	"github.com/yare-project/yare/kinds/apiregistration"
)

// aggregator is what the gate asks about other API servers.
type aggregator struct{ *aggregation.Aggregator }

func (a aggregator) Reach(who user.Info) apiserver.Remote { return a.Client(who) }

// buildAggregator makes it before the gate is there, which it reads by lookup.
func (p *plane) buildAggregator(lookup kind.Env) error {
	certificate, err := p.proxyCertificate()
	if err != nil {
		return err
	}
	builtin := builtinVersions()
	p.others = aggregation.New(aggregation.Config{
		Certificate: certificate, Identity: p.config.FrontProxy.headers(), Resolve: dynamic.Resolve(lookup), Clock: p.config.Clock, Log: p.config.Log, Metrics: p.cluster.metrics,
		Builtin: func(gv schema.GroupVersion) (aggregation.Priority, bool) {
			group, version := apiregistration.Priorities(gv)
			return aggregation.Priority{Group: group, Version: version}, builtin[gv]
		},
	})
	return nil
}

func builtinVersions() map[schema.GroupVersion]bool {
	out := map[schema.GroupVersion]bool{}
	for _, g := range kinds.Groups() {
		for _, k := range g.Kinds {
			for i := range k.Versions {
				out[k.Versions[i].GroupVersion()] = true
			}
		}
	}
	return out
}

// aggregate passes requests on to other API servers from now on.
func (p *plane) aggregate(ctx context.Context) error {
	gate := p.gate.Local(superuser)
	p.cluster.stack.run("aggregation", func(ctx context.Context) error { return p.others.Run(ctx, gate) })
	select {
	case <-p.others.Synced():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// registerOwn keeps the APIServices of what this server serves itself.
func (p *plane) registerOwn(context.Context) error {
	registry := p.gate.Registry()
	p.cluster.stack.run("API services", func(ctx context.Context) error { return p.others.Register(ctx, registry) })
	return nil
}

// servedElsewhere adds the resources of other servers to this one's. The error names the groups of which nothing is known now, in the words of client-go.
func (p *plane) servedElsewhere(own []served.Resource) ([]served.Resource, error) {
	found, failed := p.others.Resources()
	own = slices.DeleteFunc(own, func(r served.Resource) bool { return p.others.Serves(r.GroupVersion()) })
	for _, r := range found {
		own = append(own, served.Resource{GroupVersionResource: r.GroupVersionResource, Kind: r.Kind, Namespaced: r.Namespaced, Verbs: r.Verbs, Remote: true})
	}
	if len(failed) == 0 {
		return own, nil
	}
	groups := &discovery.ErrGroupDiscoveryFailed{Groups: map[schema.GroupVersion]error{}}
	for _, gv := range failed {
		groups.Groups[gv] = errStale(gv)
	}
	return own, groups
}

type errStale schema.GroupVersion

func (e errStale) Error() string {
	return "stale GroupVersion discovery: " + schema.GroupVersion(e).String()
}
