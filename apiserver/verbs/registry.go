package verbs

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/yare-project/yare/apiserver/stored"
	"github.com/yare-project/yare/kind"
	"github.com/yare-project/yare/store"
)

// Registry is the set of kinds that are served now. Reading it costs one atomic load; kinds may come and go while requests run.
type Registry struct {
	cfg Config
	mu  sync.Mutex
	now atomic.Pointer[view]

	changed []func()
}

// view is one immutable state of the registry.
type view struct {
	revision  int64
	kinds     []*kind.Kind
	served    map[schema.GroupVersionResource]*Served
	resources map[schema.GroupResource]*Resource
}

// Served is one kind in one version.
type Served struct {
	*Resource
	Version *kind.Version
	// Protobuf tells whether the version has a protobuf form.
	Protobuf bool
}

// NewRegistry makes an empty registry.
func NewRegistry(cfg Config) *Registry {
	limitCopies()
	r := &Registry{cfg: cfg}
	r.now.Store(&view{served: map[schema.GroupVersionResource]*Served{}, resources: map[schema.GroupResource]*Resource{}})
	return r
}

// Lookup finds what serves a resource.
func (r *Registry) Lookup(gvr schema.GroupVersionResource) (*Served, bool) {
	s, ok := r.now.Load().served[gvr]
	return s, ok
}

// Resource finds a resource by any group and plural that one of its versions is served as.
func (r *Registry) Resource(gr schema.GroupResource) (*Resource, bool) {
	s, ok := r.now.Load().resources[gr]
	return s, ok
}

// Serves tells whether any kind is served in the group and version.
func (r *Registry) Serves(gv schema.GroupVersion) bool {
	for gvr := range r.now.Load().served {
		if gvr.GroupVersion() == gv {
			return true
		}
	}
	return false
}

// Kinds lists what is served, in the order it was added.
func (r *Registry) Kinds() []*kind.Kind { return r.now.Load().kinds }

// Revision changes whenever Kinds does.
func (r *Registry) Revision() int64 { return r.now.Load().revision }

// OnChange calls f after each change of what is served from now on. f must return soon and must not change the registry.
func (r *Registry) OnChange(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changed = append(r.changed, f)
}

// Resources lists the resources that keep objects.
func (r *Registry) Resources() []*Resource {
	v := r.now.Load()
	var out []*Resource
	for _, k := range v.kinds {
		if res := v.resources[k.Resource()]; res != nil && !k.Virtual {
			out = append(out, res)
		}
	}
	return out
}

// Add serves more kinds, opening their tables. A kind whose resource is served already replaces it.
func (r *Registry) Add(kinds ...*kind.Kind) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	opened, err := r.openAll(kinds)
	if err != nil {
		return err
	}
	old := r.now.Load()
	next := slices.Clone(old.kinds)
	for _, k := range kinds {
		at := slices.IndexFunc(next, func(o *kind.Kind) bool { return o.Resource() == k.Resource() })
		if at >= 0 {
			next[at] = k
		} else {
			next = append(next, k)
		}
	}
	r.publish(old.revision+1, next, opened)
	return nil
}

// Remove stops serving kinds; their objects stay in the store.
func (r *Registry) Remove(resources ...schema.GroupResource) {
	r.mu.Lock()
	defer r.mu.Unlock()
	old := r.now.Load()
	next := slices.DeleteFunc(slices.Clone(old.kinds), func(k *kind.Kind) bool { return slices.Contains(resources, k.Resource()) })
	r.publish(old.revision+1, next, nil)
}

func (r *Registry) openAll(kinds []*kind.Kind) (map[*kind.Kind]*Resource, error) {
	out := make(map[*kind.Kind]*Resource, len(kinds))
	var mu sync.Mutex
	var wg sync.WaitGroup
	var failed error
	for _, k := range kinds {
		wg.Go(func() {
			res, err := r.resource(k)
			if res != nil {
				res.lookup = r.Resource
			}
			mu.Lock()
			defer mu.Unlock()
			out[k] = res
			if err != nil && failed == nil {
				failed = err
			}
		})
	}
	wg.Wait()
	return out, failed
}

func (r *Registry) resource(k *kind.Kind) (*Resource, error) {
	if k.Virtual {
		return &Resource{Config: r.cfg, Kind: k}, nil
	}
	durability := store.Durable
	if k.Relaxed {
		durability = store.Relaxed
	}
	table := store.TableConfig{Name: TableName(k), Durability: durability, Decode: stored.Decoder(k)}
	if r.cfg.Sealer == nil {
		return open(r.cfg, k, table)
	}
	return openSealed(r.cfg, k, table)
}

// TableName is the name of a kind's table: its group, "core" for the nameless one, and its plural.
func TableName(k *kind.Kind) string {
	if k.Group == "" {
		return "core/" + k.Names.Plural
	}
	return k.Group + "/" + k.Names.Plural
}

func (r *Registry) publish(revision int64, kinds []*kind.Kind, opened map[*kind.Kind]*Resource) {
	old := r.now.Load()
	v := old.with(kinds, opened)
	v.revision = revision
	r.now.Store(v)
	for _, f := range r.changed {
		f()
	}
	for gr, res := range old.resources {
		if v.resources[gr] != res {
			res.retire()
		}
	}
}

// with is a view of kinds, of which opened are new. Kinds without a Go type come and go by the thousand: for them the rest is taken over, since no other
// resource depends on theirs.
func (v *view) with(kinds []*kind.Kind, opened map[*kind.Kind]*Resource) *view {
	stay := make(map[*kind.Kind]bool, len(kinds))
	for _, k := range kinds {
		stay[k] = opened[k] == nil
	}
	next := &view{kinds: kinds, served: maps.Clone(v.served), resources: maps.Clone(v.resources)}
	var gone []*kind.Kind
	for _, k := range v.kinds {
		if !stay[k] {
			gone = append(gone, k)
		}
	}
	news := slices.DeleteFunc(slices.Clone(kinds), func(k *kind.Kind) bool { return stay[k] })
	typed := func(k *kind.Kind) bool { return !k.Dynamic }
	if slices.ContainsFunc(gone, typed) || slices.ContainsFunc(news, typed) {
		gone, news = nil, kinds
		next.served, next.resources = map[schema.GroupVersionResource]*Served{}, map[schema.GroupResource]*Resource{}
	}
	for _, k := range gone {
		delete(next.resources, k.Resource())
		for i := range k.Versions {
			delete(next.served, k.Versions[i].GroupVersion().WithResource(k.Versions[i].Names.Plural))
		}
	}
	for _, k := range news {
		res := opened[k]
		if res == nil {
			res = v.resources[k.Resource()]
		}
		next.serve(k, res)
	}
	return next
}

func (v *view) serve(k *kind.Kind, res *Resource) {
	v.resources[k.Resource()] = res
	for i := range k.Versions {
		version := &k.Versions[i]
		if version.Unserved {
			continue
		}
		gvr := version.GroupVersion().WithResource(version.Names.Plural)
		v.served[gvr] = &Served{Resource: res, Version: version, Protobuf: stored.HasProtobuf(version.New())}
		if _, taken := v.resources[gvr.GroupResource()]; !taken {
			v.resources[gvr.GroupResource()] = res
		}
	}
}

// Run does the background work of the kinds served when it is called (expiry), until ctx ends.
func (r *Registry) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	for _, res := range r.Resources() {
		if res.Kind.TTL == nil {
			continue
		}
		if ttl := res.Kind.TTL(r.cfg.Env.Settings()); ttl > 0 {
			wg.Go(func() { res.expire(ctx, ttl) })
		}
	}
	wg.Wait()
	return ctx.Err()
}
