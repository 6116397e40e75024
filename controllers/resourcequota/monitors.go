package resourcequota

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/controllers/served"
	"github.com/yare-project/yare/internal/quota"
	"github.com/yare-project/yare/loop"
)

// monitors are the resources that are watched because a quota covers them.
type monitors struct {
	mu   sync.Mutex
	byGR map[schema.GroupResource]*monitor
}

type monitor struct {
	served.Resource
	cache client.Cache[client.Object]
}

// covered returns a synced monitor for each served resource that uses of what hard bounds.
func (c *counter) covered(ctx context.Context, hard corev1.ResourceList) ([]*monitor, error) {
	resources, err := c.list(ctx)
	if err != nil && len(resources) == 0 {
		return nil, fmt.Errorf("list the served resources: %w", err)
	}
	var out []*monitor
	for _, r := range resources {
		gr := r.GroupResource()
		if !r.Namespaced || !r.Can("create", "list", "watch", "delete") || quota.Ignored(gr) || len(quota.Covered(gr, hard)) == 0 {
			continue
		}
		m := c.monitor(r)
		if r.Remote && !synced(m) {
			continue // another server that may be dead: its resource is looked for again, as one that is not served
		}
		select {
		case <-m.cache.Synced():
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		out = append(out, m)
	}
	return out, nil
}

func synced(m *monitor) bool {
	select {
	case <-m.cache.Synced():
		return true
	default:
		return false
	}
}

func (c *counter) monitor(r served.Resource) *monitor {
	c.monitors.mu.Lock()
	defer c.monitors.mu.Unlock()
	gr := r.GroupResource()
	if m := c.monitors.byGR[gr]; m != nil {
		return m
	}
	m := &monitor{Resource: r, cache: client.CacheOfResource[client.Object](c.in.Caches, r.GroupVersionResource, client.CacheOptions{})}
	m.cache.OnChange(func(old, new client.Object) { c.changed(gr, old, new) })
	if c.monitors.byGR == nil {
		c.monitors.byGR = map[schema.GroupResource]*monitor{}
	}
	c.monitors.byGR[gr] = m
	return m
}

// watchDefinitions counts the quotas again that name a resource which a new definition may bring.
func (c *counter) watchDefinitions() {
	definitions := client.CacheOf[*apiextensionsv1.CustomResourceDefinition](c.in.Caches, client.CacheOptions{})
	definitions.OnChange(func(_, new *apiextensionsv1.CustomResourceDefinition) {
		if new == nil {
			return
		}
		name := quota.CountName(schema.GroupResource{Group: new.Spec.Group, Resource: new.Spec.Names.Plural})
		for _, q := range c.quotas.List("") {
			if _, counted := q.Status.Used[name]; !counted && named(q, name) {
				c.in.Enqueue(loop.KeyOf(q))
			}
		}
	})
}

func named(q *corev1.ResourceQuota, name corev1.ResourceName) bool {
	_, ok := q.Spec.Hard[name]
	return ok
}
