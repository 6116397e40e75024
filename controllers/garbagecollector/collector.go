// Package garbagecollector deletes objects whose owners are all gone, and carries out the two deletions that concern dependents: foreground (the owner
// goes after them) and orphan (they lose the owner and stay).
//
// It watches every resource that can be listed, watched and deleted, through the shared caches, and works only when something changed: an owner vanished, an
// object appeared whose owner no cache shows, or a deletion began. It guarantees that an object is deleted only after the server itself, asked for
// each of its owners that no cache shows, said that it does not exist or has another uid; and only in the state that was judged. A reference to a kind
// that is not served keeps its object alive.
//
// An owner must be in the dependent's namespace or belong to the cluster; one looked for elsewhere does not exist. A cluster-wide object with an owner in
// a namespace is never collected.
package garbagecollector

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/controllers/served"
	"github.com/yare-project/yare/loop"
)

// monitorsKey is the pass that looks for resources that are served now. No object has it: its namespace is no name.
var monitorsKey = loop.Key{Namespace: "*", Name: "monitors"}

// recheck is when groups whose resources could not be discovered are looked at again.
const recheck = 10 * time.Second

var everything = schema.GroupResource{Group: "*", Resource: "*"}

// Descriptor declares the loop; list says what is served.
func Descriptor(list served.List) loop.Descriptor {
	return loop.Descriptor{
		Name:    "generic-garbage-collector",
		Reads:   []loop.Access{{GroupResource: everything}},
		Writes:  []loop.Access{{GroupResource: everything, Verbs: []string{"patch", "delete", "update"}}},
		Workers: 20,
		Start: func(in loop.Inputs) (loop.Reconcile, error) {
			c := &collector{in: in, list: list, graph: newGraph(), parked: map[loop.Key]bool{}}
			in.Enqueue(monitorsKey)
			return c.reconcile, nil
		},
	}
}

type collector struct {
	in    loop.Inputs
	list  served.List
	graph *graph

	mu     sync.Mutex
	ready  bool              // every resource that was listed first is synced
	parked map[loop.Key]bool // keys that came before
}

// ignored are resources that own nothing and are owned by nothing, and change all the time.
func ignored(r served.Resource) bool {
	return r.Resource == "events"
}

func (c *collector) reconcile(ctx context.Context, key loop.Key) (loop.Result, error) {
	if key == monitorsKey {
		return c.monitor(ctx)
	}
	if c.park(key) {
		return loop.Result{}, nil
	}
	m, o, ok := c.graph.find(key)
	if !ok {
		return loop.Result{}, nil
	}
	switch {
	case orphans(o):
		return loop.Result{}, c.orphan(ctx, m, o)
	case deletesDependents(o):
		return loop.Result{}, c.foreground(ctx, m, o)
	case o.GetDeletionTimestamp() != nil || len(o.GetOwnerReferences()) == 0:
		return loop.Result{}, nil
	}
	return loop.Result{}, c.collect(ctx, m, o)
}

func (c *collector) park(key loop.Key) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ready {
		c.parked[key] = true
	}
	return !c.ready
}

// monitor starts to watch every resource that is served and not watched yet.
// What another API server keeps is watched when that server lets it be: until then its objects are neither owners nor dependents that a cache shows, and
// what names them as owners is kept in doubt.
func (c *collector) monitor(ctx context.Context) (loop.Result, error) {
	resources, err := c.list(ctx)
	for _, r := range resources {
		if !r.Can("list", "watch", "delete") || ignored(r) {
			continue
		}
		m, isNew := c.graph.add(r, func() client.Cache[client.Object] {
			return client.CacheOfResource[client.Object](c.in.Caches, r.GroupVersionResource, client.CacheOptions{})
		})
		if !isNew {
			continue
		}
		m.cache.OnChange(func(old, new client.Object) { c.changed(m, old, new) })
		if r.Remote {
			continue
		}
		select {
		case <-m.cache.Synced():
		case <-ctx.Done():
			return loop.Result{}, ctx.Err()
		}
	}
	if err != nil && len(resources) == 0 {
		return loop.Result{}, fmt.Errorf("list the served resources: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ready = true
	for key := range c.parked {
		c.in.Enqueue(key)
	}
	clear(c.parked)
	if err != nil {
		c.in.Log.Debug("some served resources are not known", "error", err)
		return loop.Result{After: recheck}, nil
	}
	return loop.Result{}, nil
}

// definesResources tells whether a change of such an object may change what is served.
func definesResources(m *monitor) bool {
	return m.Resource.Resource == "customresourcedefinitions" || m.Resource.Resource == "apiservices"
}

// changed keeps the graph and wakes whoever the change concerns.
func (c *collector) changed(m *monitor, old, new client.Object) {
	if definesResources(m) {
		c.in.Enqueue(monitorsKey)
	}
	newest := client.Newest(old, new)
	key := m.key(newest.GetNamespace(), newest.GetName())
	var before, after []metav1.OwnerReference
	if old != nil {
		before = old.GetOwnerReferences()
	}
	if new != nil {
		after = new.GetOwnerReferences()
	}
	if !slices.EqualFunc(before, after, func(a, b metav1.OwnerReference) bool { return equality.Semantic.DeepEqual(a, b) }) {
		c.graph.relink(key, before, after)
		c.wakeOwners(before, newest.GetNamespace())
	}
	if old != nil && (new == nil || new.GetUID() != old.GetUID()) {
		c.enqueue(c.graph.dependentsOf(old.GetUID()))
	}
	if new != nil {
		c.appeared(key, old, new)
	}
}

// appeared wakes an object itself if it may have to go, or its deletion concerns others.
func (c *collector) appeared(key loop.Key, old, new client.Object) {
	begins := new.GetDeletionTimestamp() != nil && (old == nil || old.GetDeletionTimestamp() == nil)
	switch {
	case orphans(new) && (begins || !orphans(old)), deletesDependents(new) && (begins || !deletesDependents(old)):
		c.in.Enqueue(key)
		c.enqueue(c.graph.dependentsOf(new.GetUID()))
		return
	case new.GetDeletionTimestamp() != nil || old != nil && equality.Semantic.DeepEqual(old.GetOwnerReferences(), new.GetOwnerReferences()):
		return
	}
	for _, ref := range new.GetOwnerReferences() {
		if owner, ok := c.graph.cached(ref, new.GetNamespace()); !ok || deletesDependents(owner) {
			c.in.Enqueue(key)
			return
		}
	}
}

// wakeOwners wakes those that wait for their dependents to go.
func (c *collector) wakeOwners(refs []metav1.OwnerReference, namespace string) {
	for _, ref := range refs {
		if owner, ok := c.graph.cached(ref, namespace); ok && owner.GetDeletionTimestamp() != nil {
			m, ns := c.graph.owner(ref, namespace)
			c.in.Enqueue(m.key(ns, ref.Name))
		}
	}
}

func (c *collector) enqueue(keys []loop.Key) {
	for _, k := range keys {
		c.in.Enqueue(k)
	}
}
