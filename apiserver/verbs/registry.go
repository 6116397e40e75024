package verbs

import (
	"context"
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
	return open(r.cfg, k, store.TableConfig{Name: TableName(k), Durability: durability, Decode: stored.Decoder(k)})
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
	v := &view{revision: revision, kinds: kinds,
		served: map[schema.GroupVersionResource]*Served{}, resources: map[schema.GroupResource]*Resource{}}
	for _, k := range kinds {
		res := opened[k]
		if res == nil {
			res = old.resources[k.Resource()]
		}
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
	r.now.Store(v)
	for gr, res := range old.resources {
		if v.resources[gr] != res {
			res.retire()
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
