// Package tainteviction deletes pods from nodes whose NoExecute taints they do not tolerate, or no longer: a toleration with tolerationSeconds holds for that
// long after the taint was added, or after the pod came if that was later.
//
// A pass over a pod decides anew from the node's present taints, so that a taint that is taken back in time saves the pod.
package tainteviction

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/controllers/pod"
	"github.com/yare-project/yare/loop"
)

// Descriptor declares the loop.
func Descriptor() loop.Descriptor {
	return loop.Descriptor{
		Name:  "taint-eviction",
		Reads: []loop.Access{{GroupResource: corev1.Resource("nodes")}, {GroupResource: corev1.Resource("pods")}},
		Writes: []loop.Access{{GroupResource: corev1.Resource("pods"), Verbs: []string{"delete"}},
			{GroupResource: corev1.Resource("pods/status"), Verbs: []string{"patch"}}},
		Workers: 8,
		Start:   start,
	}
}

type controller struct {
	in    loop.Inputs
	nodes client.Cache[*corev1.Node]
	pods  client.Cache[*corev1.Pod]
	api   client.API[*corev1.Pod]
}

func start(in loop.Inputs) (loop.Reconcile, error) {
	c := &controller{in: in, nodes: client.CacheOf[*corev1.Node](in.Caches, client.CacheOptions{}),
		pods: client.CacheOf[*corev1.Pod](in.Caches, client.CacheOptions{}), api: client.Of[*corev1.Pod](in.Transport)}
	c.pods.AddIndex(pod.ByNode, pod.NodeOf)
	c.nodes.OnChange(func(old, new *corev1.Node) {
		if new == nil || old != nil && equality.Semantic.DeepEqual(old.Spec.Taints, new.Spec.Taints) || old == nil && len(noExecute(new)) == 0 {
			return
		}
		for _, p := range c.pods.By(pod.ByNode, new.Name) {
			in.Enqueue(loop.KeyOf(p))
		}
	})
	c.pods.OnChange(func(old, new *corev1.Pod) {
		if new == nil || new.Spec.NodeName == "" || new.DeletionTimestamp != nil {
			return
		}
		if old != nil && old.Spec.NodeName == new.Spec.NodeName && equality.Semantic.DeepEqual(old.Spec.Tolerations, new.Spec.Tolerations) {
			return
		}
		if n, ok := c.nodes.Get("", new.Spec.NodeName); ok && len(noExecute(n)) > 0 {
			in.Enqueue(loop.KeyOf(new))
		}
	})
	return c.reconcile, nil
}

func noExecute(n *corev1.Node) []corev1.Taint {
	var out []corev1.Taint
	for _, t := range n.Spec.Taints {
		if t.Effect == corev1.TaintEffectNoExecute {
			out = append(out, t)
		}
	}
	return out
}

func (c *controller) reconcile(ctx context.Context, key loop.Key) (loop.Result, error) {
	p, ok := c.pods.Get(key.Namespace, key.Name)
	if !ok || p.DeletionTimestamp != nil || pod.Finished(p) {
		return loop.Result{}, nil
	}
	n, ok := c.nodes.Get("", p.Spec.NodeName)
	if !ok {
		return loop.Result{}, nil
	}
	leaves, at := decide(p, noExecute(n))
	if !leaves {
		return loop.Result{}, nil
	}
	if wait := at.Sub(c.in.Clock.Now()); wait > 0 {
		return loop.Result{After: wait}, nil
	}
	return loop.Result{}, c.evict(ctx, p)
}

// decide tells whether and when a pod has to leave a node with these NoExecute taints. The zero time is at once.
func decide(p *corev1.Pod, taints []corev1.Taint) (leaves bool, at time.Time) {
	for i := range taints {
		t := &taints[i]
		tolerated, seconds := tolerates(p.Spec.Tolerations, t)
		if !tolerated {
			return true, time.Time{}
		}
		if seconds == nil {
			continue
		}
		since := p.CreationTimestamp.Time
		if t.TimeAdded != nil && t.TimeAdded.After(since) {
			since = t.TimeAdded.Time
		}
		until := since.Add(time.Duration(max(*seconds, 0)) * time.Second)
		if !leaves || until.Before(at) {
			leaves, at = true, until
		}
	}
	return leaves, at
}

// tolerates finds the first toleration that matches a taint, and how long it holds; nil seconds is for ever.
func tolerates(tolerations []corev1.Toleration, t *corev1.Taint) (bool, *int64) {
	i := slices.IndexFunc(tolerations, func(o corev1.Toleration) bool { return matches(&o, t) })
	if i < 0 {
		return false, nil
	}
	return true, tolerations[i].TolerationSeconds
}

func matches(o *corev1.Toleration, t *corev1.Taint) bool {
	if o.Effect != "" && o.Effect != t.Effect || o.Key != "" && o.Key != t.Key {
		return false
	}
	return o.Operator == corev1.TolerationOpExists || (o.Operator == "" || o.Operator == corev1.TolerationOpEqual) && o.Value == t.Value
}

func (c *controller) evict(ctx context.Context, p *corev1.Pod) error {
	c.in.Event(p, corev1.EventTypeNormal, "TaintManagerEviction", "Marking for deletion Pod "+loop.KeyOf(p).String())
	return pod.Evict(ctx, c.api, p, c.in.Clock.Now(), "DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint")
}
