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

	mu sync.Mutex
	// promised are ranges given out that the cache does not show yet, by node.
	promised map[string]netip.Prefix
}

func start(in loop.Inputs, config Config) loop.Reconcile {
	c := &controller{Config: config, in: in, promised: map[string]netip.Prefix{},
		nodes: client.CacheOf[*corev1.Node](in.Caches, client.CacheOptions{}), api: client.Of[*corev1.Node](in.Transport)}
	c.nodes.OnChange(func(old, node *corev1.Node) {
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

func (c *controller) wakeWaiting() {
	for _, n := range c.nodes.List("") {
		if len(n.Spec.PodCIDRs) == 0 {
			c.in.Enqueue(loop.Key{Name: n.Name})
		}
	}
}

func (c *controller) forget(node string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.promised, node)
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
	var taken []netip.Prefix
	for _, n := range c.nodes.List("") {
		for _, text := range n.Spec.PodCIDRs {
			if p, err := netip.ParsePrefix(text); err == nil {
				taken = append(taken, p)
			}
		}
	}
	for _, p := range c.promised {
		taken = append(taken, p)
	}
	cidr, ok := Free(c.Cluster, c.nodeBits(), taken)
	if ok {
		c.promised[node] = cidr
	}
	return cidr, ok
}

// Free finds the first range of the given size in cluster that overlaps none of taken.
func Free(cluster netip.Prefix, bits int, taken []netip.Prefix) (netip.Prefix, bool) {
	cluster = cluster.Masked()
	for at := cluster.Addr(); cluster.Contains(at); {
		p := netip.PrefixFrom(at, bits)
		blocker, overlaps := overlapping(p, taken)
		if !overlaps {
			return p, true
		}
		// Skip all of what is in the way, in steps of our own size.
		if blocker.Bits() > bits {
			blocker = p
		}
		next, ok := after(blocker)
		if !ok {
			break
		}
		at = next
	}
	return netip.Prefix{}, false
}

func overlapping(p netip.Prefix, taken []netip.Prefix) (netip.Prefix, bool) {
	for _, t := range taken {
		if t.Overlaps(p) {
			return t.Masked(), true
		}
	}
	return netip.Prefix{}, false
}

// after is the first address behind a range; false at the end of the address space.
func after(p netip.Prefix) (netip.Addr, bool) {
	bytes := p.Masked().Addr().AsSlice()
	for bit := p.Bits() - 1; bit >= 0; bit-- {
		mask := byte(1) << (7 - bit%8)
		bytes[bit/8] ^= mask
		if bytes[bit/8]&mask != 0 { // no carry
			a, _ := netip.AddrFromSlice(bytes)
			return a, true
		}
	}
	return netip.Addr{}, false
}
