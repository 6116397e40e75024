// Package nodelifecycle notices nodes that fell silent or report trouble, and tells everybody by conditions and taints.
//
// A node is heard of by its Lease or its status. One that is silent for the grace period becomes Ready=Unknown, and its pods not ready. Conditions become
// NoSchedule taints at once. A node that is not ready also gets a NoExecute taint, by which its pods are evicted later (package tainteviction),
// but no faster than a zone's rate allows; and not at all while no node of the whole cluster is ready, since then it is likelier that this loop is cut off.
//
// Silence is timed by this process's clock from the moment it heard of a node, never by comparing clocks of different machines. It costs one pass per node
// and grace period: heartbeats only move a time.
package nodelifecycle

import (
	"context"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/controllers/pod"
	"github.com/yare-project/yare/loop"
)

// Config are the loop's times and rates. Zero values take the defaults, which are those of Kubernetes 1.36.
type Config struct {
	Grace        time.Duration // silence after which a node's state is unknown: 50 s
	StartupGrace time.Duration // the same for a node that never reported: 60 s
	Rate         float64       // NoExecute taints per second and zone: 0.1
	SlowRate     float64       // the same in a large zone of which much is down: 0.01
	LargeZone    int           // nodes above which SlowRate applies; smaller zones stop: 50
	Unhealthy    float64       // the part of a zone that must be down for that: 0.55
}

func (c Config) withDefaults() Config {
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	rate := func(f *float64, v float64) {
		if *f == 0 {
			*f = v
		}
	}
	def(&c.Grace, 50*time.Second)
	def(&c.StartupGrace, 60*time.Second)
	rate(&c.Rate, 0.1)
	rate(&c.SlowRate, 0.01)
	rate(&c.Unhealthy, 0.55)
	if c.LargeZone == 0 {
		c.LargeZone = 50
	}
	return c
}

// Descriptor declares the loop.
func Descriptor(config Config) loop.Descriptor {
	return loop.Descriptor{
		Name:  "node",
		Reads: []loop.Access{{GroupResource: corev1.Resource("nodes")}, {GroupResource: corev1.Resource("pods")}, {GroupResource: coordinationv1.Resource("leases")}},
		Writes: []loop.Access{
			{GroupResource: corev1.Resource("nodes"), Verbs: []string{"update"}},
			{GroupResource: corev1.Resource("nodes/status"), Verbs: []string{"update"}},
			{GroupResource: corev1.Resource("pods/status"), Verbs: []string{"update"}},
		},
		Workers: 8,
		Start:   func(in loop.Inputs) (loop.Reconcile, error) { return start(in, config.withDefaults()), nil },
	}
}

type controller struct {
	in     loop.Inputs
	config Config
	nodes  client.Cache[*corev1.Node]
	pods   client.Cache[*corev1.Pod]
	api    client.API[*corev1.Node]
	podAPI client.API[*corev1.Pod]
	census *census
	zones  *zones

	mu    sync.Mutex
	ready map[string]corev1.ConditionStatus // as last acted upon
}

func start(in loop.Inputs, config Config) loop.Reconcile {
	c := &controller{in: in, config: config, nodes: client.CacheOf[*corev1.Node](in.Caches, client.CacheOptions{}),
		pods: client.CacheOf[*corev1.Pod](in.Caches, client.CacheOptions{}),
		api:  client.Of[*corev1.Node](in.Transport), podAPI: client.Of[*corev1.Pod](in.Transport),
		census: newCensus(), ready: map[string]corev1.ConditionStatus{}}
	c.zones = newZones(config, c.census)
	c.pods.AddIndex(pod.ByNode, pod.NodeOf)
	c.nodes.OnChange(c.nodeChanged)
	leases := client.CacheOf[*coordinationv1.Lease](in.Caches, client.CacheOptions{Namespace: corev1.NamespaceNodeLease})
	leases.OnChange(func(old, new *coordinationv1.Lease) {
		if new != nil && (old == nil || !equality.Semantic.DeepEqual(old.Spec.RenewTime, new.Spec.RenewTime)) {
			c.hear(new.Name)
		}
	})
	return c.reconcile
}

func (c *controller) hear(node string) { c.census.hear(node, c.in.Clock.Now()) }

func (c *controller) nodeChanged(old, new *corev1.Node) {
	if new == nil {
		c.mu.Lock()
		delete(c.ready, old.Name)
		c.mu.Unlock()
		c.in.Event(old, corev1.EventTypeNormal, "RemovingNode", fmt.Sprintf("Node %s event: Removing Node %s from Controller", old.Name, old.Name))
		c.wake(c.census.leave(old.Name))
		return
	}
	switch {
	case old == nil:
		c.hear(new.Name)
		c.in.Event(new, corev1.EventTypeNormal, "RegisteredNode", fmt.Sprintf("Node %s event: Registered Node %s in Controller", new.Name, new.Name))
	case beats(old) != beats(new):
		c.hear(new.Name)
	}
	c.in.Enqueue(loop.KeyOf(new))
	c.wake(c.census.enter(new))
}

// wake looks anew at the nodes that are not ready where it matters what share of a zone is, or whether anybody is.
func (c *controller) wake(shifts []shift) {
	for _, s := range shifts {
		zone, all := c.zones.matters(s)
		if !zone && !all {
			continue
		}
		for _, n := range c.nodes.List("") {
			if (all || zoneOf(n) == s.zone) && readyStatus(n) != corev1.ConditionTrue {
				c.in.Enqueue(loop.KeyOf(n))
			}
		}
	}
}

// beats is when a node's agent says that it last looked, by its own clock.
func beats(n *corev1.Node) time.Time {
	if c := condition(n, corev1.NodeReady); c != nil && c.Status != corev1.ConditionUnknown {
		return c.LastHeartbeatTime.Time
	}
	return time.Time{}
}

func condition(n *corev1.Node, t corev1.NodeConditionType) *corev1.NodeCondition {
	for i := range n.Status.Conditions {
		if n.Status.Conditions[i].Type == t {
			return &n.Status.Conditions[i]
		}
	}
	return nil
}

func readyStatus(n *corev1.Node) corev1.ConditionStatus {
	if c := condition(n, corev1.NodeReady); c != nil {
		return c.Status
	}
	return ""
}

func (c *controller) reconcile(ctx context.Context, key loop.Key) (loop.Result, error) {
	node, ok := c.nodes.Get("", key.Name)
	if !ok {
		return loop.Result{}, nil
	}
	now := c.in.Clock.Now()
	grace := c.config.Grace
	if readyStatus(node) == "" {
		grace = c.config.StartupGrace
	}
	left := c.census.heard(node.Name).Add(grace).Sub(now)
	if left <= 0 {
		if silent := silenced(node, now); silent != node {
			updated, err := c.api.UpdateStatus(ctx, silent)
			if err != nil {
				return loop.Result{}, ignoreGone(err)
			}
			node = updated
		}
		left = grace // look again: a heartbeat alone does not wake this loop
	}
	if err := c.transition(ctx, node); err != nil {
		return loop.Result{}, err
	}
	wait, err := c.taint(ctx, node, now)
	if err != nil {
		return loop.Result{}, err
	}
	if wait > 0 {
		left = min(left, wait)
	}
	return loop.Result{After: left}, nil
}

// silenced is a node with the conditions that its agent keeps set to Unknown; the node itself if they are already.
func silenced(node *corev1.Node, now time.Time) *corev1.Node {
	changed := node.DeepCopy()
	at := metaTime(now)
	for _, t := range []corev1.NodeConditionType{corev1.NodeReady, corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure} {
		c := condition(changed, t)
		switch {
		case c == nil:
			changed.Status.Conditions = append(changed.Status.Conditions, corev1.NodeCondition{Type: t, Status: corev1.ConditionUnknown, Reason: "NodeStatusNeverUpdated",
				Message: "Kubelet never posted node status.", LastHeartbeatTime: node.CreationTimestamp, LastTransitionTime: at})
		case c.Status != corev1.ConditionUnknown:
			c.Status, c.Reason, c.Message, c.LastTransitionTime = corev1.ConditionUnknown, "NodeStatusUnknown", "Kubelet stopped posting node status.", at
		}
	}
	if equality.Semantic.DeepEqual(node.Status.Conditions, changed.Status.Conditions) {
		return node
	}
	return changed
}

// transition tells users of a node that is no longer ready, and marks its pods, once.
func (c *controller) transition(ctx context.Context, node *corev1.Node) error {
	status := readyStatus(node)
	c.mu.Lock()
	before, known := c.ready[node.Name]
	c.mu.Unlock()
	fell := known && before == corev1.ConditionTrue && status != corev1.ConditionTrue
	if fell {
		c.in.Event(node, corev1.EventTypeNormal, "NodeNotReady", fmt.Sprintf("Node %s status is now: NodeNotReady", node.Name))
	}
	if fell || status == corev1.ConditionUnknown {
		for _, p := range c.pods.By(pod.ByNode, node.Name) {
			if err := c.markNotReady(ctx, p); err != nil {
				return err
			}
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ready[node.Name] = status
	return nil
}

func (c *controller) markNotReady(ctx context.Context, p *corev1.Pod) error {
	for i, cond := range p.Status.Conditions {
		if cond.Type != corev1.PodReady || cond.Status == corev1.ConditionFalse {
			continue
		}
		p = p.DeepCopy()
		p.Status.Conditions[i].Status = corev1.ConditionFalse
		p.Status.Conditions[i].LastTransitionTime = metaTime(c.in.Clock.Now())
		if _, err := c.podAPI.UpdateStatus(ctx, p); err != nil {
			if ignoreGone(err) == nil {
				return nil
			}
			return fmt.Errorf("mark pod %s/%s not ready: %w", p.Namespace, p.Name, err)
		}
		c.in.Event(p, corev1.EventTypeWarning, "NodeNotReady", "Node is not ready")
	}
	return nil
}

func ignoreGone(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
