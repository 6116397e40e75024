// Package nodeipam gives each Node its own range of pod addresses out of the cluster's (Kubernetes: node-ipam-controller).
//
// A range belongs to one Node for as long as the Node exists. What is taken is read from the Nodes themselves: nothing is kept that a
// crash could lose. A Node that has a range already, whoever gave it, keeps it.
package nodeipam

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/loop"
)

// Config of the loop.
type Config struct {
	// Cluster is divided into ranges of NodeBits (24 for IPv4 and 64 for IPv6 when zero).
	Cluster  netip.Prefix
	NodeBits int
}

func (c Config) nodeBits() int {
	switch {
	case c.NodeBits > 0:
		return c.NodeBits
	case c.Cluster.Addr().Is6():
		return max(64, c.Cluster.Bits())
	default:
		return max(24, c.Cluster.Bits())
	}
}

// Descriptor declares the loop.
func Descriptor(c Config) loop.Descriptor {
	return loop.Descriptor{
		Name:   "node-ipam",
		Reads:  []loop.Access{{GroupResource: corev1.Resource("nodes")}},
		Writes: []loop.Access{{GroupResource: corev1.Resource("nodes"), Verbs: []string{"patch"}}},
		Start:  func(in loop.Inputs) (loop.Reconcile, error) { return start(in, c), nil },
	}
}

type controller struct {
	Config
	in    loop.Inputs
	nodes client.Cache[*corev1.Node]
	api   client.API[*corev1.Node]

	mu     sync.Mutex
	ranges *Ranges // in use by nodes that the cache shows, or promised
	// promised are ranges given out that the cache does not show yet, by node.
	promised map[string]netip.Prefix
	waiting  map[string]bool // nodes for which none was free
}

func start(in loop.Inputs, config Config) loop.Reconcile {
	c := &controller{Config: config, in: in, promised: map[string]netip.Prefix{}, waiting: map[string]bool{}, ranges: NewRanges(config.Cluster, config.nodeBits()),
		nodes: client.CacheOf[*corev1.Node](in.Caches, client.CacheOptions{}), api: client.Of[*corev1.Node](in.Transport)}
	c.nodes.OnChange(func(old, node *corev1.Node) {
		c.account(old, node)
		switch {
		case node == nil:
			c.forget(old.Name)
			c.wakeWaiting() // its range is free
		case len(node.Spec.PodCIDRs) > 0:
			c.forget(node.Name)
		default:
			in.Enqueue(loop.Key{Name: node.Name})
		}
	})
	return c.reconcile
}

// wakeWaiting has those try again for whom there was no range.
func (c *controller) wakeWaiting() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name := range c.waiting {
		c.in.Enqueue(loop.Key{Name: name})
	}
	clear(c.waiting)
}

func (c *controller) reconcile(ctx context.Context, key loop.Key) (loop.Result, error) {
	node, ok := c.nodes.Get("", key.Name)
	if !ok || len(node.Spec.PodCIDRs) > 0 {
		return loop.Result{}, nil
	}
	cidr, ok := c.promise(node.Name)
	if !ok {
		c.in.Event(node, corev1.EventTypeWarning, "CIDRNotAvailable",
			fmt.Sprintf("Node %s has no range of pod addresses: all of %s is given out; use a larger --cluster-cidr", node.Name, c.Cluster))
		return loop.Result{}, nil
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": node.ResourceVersion},
		"spec":     map[string]any{"podCIDR": cidr.String(), "podCIDRs": []string{cidr.String()}},
	})
	if err != nil {
		return loop.Result{}, err
	}
	if _, err = c.api.Patch(ctx, "", node.Name, types.MergePatchType, patch, ""); err != nil {
		c.forget(node.Name)
	}
	return loop.Result{}, err
}

// promise picks a range for a node and keeps others from getting it before the cache shows it.
func (c *controller) promise(node string) (netip.Prefix, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if cidr, ok := c.promised[node]; ok {
		return cidr, true
	}
	cidr, ok := c.ranges.Free()
	if !ok {
		c.waiting[node] = true
		return cidr, false
	}
	c.promised[node] = cidr
	c.ranges.Take(cidr)
	return cidr, true
}

// forget gives back what was promised to a node. Whoever found it in the cache first has taken what it really has.
func (c *controller) forget(node string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if cidr, ok := c.promised[node]; ok {
		delete(c.promised, node)
		c.ranges.Give(cidr)
	}
}

// account keeps the ranges in use in step with the nodes.
func (c *controller) account(old, node *corev1.Node) {
	if old != nil && node != nil && slices.Equal(old.Spec.PodCIDRs, node.Spec.PodCIDRs) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range ranges(node) {
		c.ranges.Take(p)
	}
	for _, p := range ranges(old) {
		c.ranges.Give(p)
	}
}

// ranges are those that a node has; none of what can't be read.
func ranges(n *corev1.Node) []netip.Prefix {
	if n == nil {
		return nil
	}
	var out []netip.Prefix
	for _, text := range n.Spec.PodCIDRs {
		if p, err := netip.ParsePrefix(text); err == nil {
			out = append(out, p)
		}
	}
	return out
}
