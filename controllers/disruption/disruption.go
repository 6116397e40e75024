// Package disruption keeps the status of PodDisruptionBudgets: how many of the pods that a budget selects are healthy, how many must be, and how many may
// be evicted now. The eviction subresource takes from that number; this loop renews it.
//
// The status is written only onto the state that it was computed from, so that an eviction that came between is not forgotten. A pod whose eviction was allowed
// counts as gone for two minutes, or until it is.
package disruption

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/controllers/selection"
	"github.com/yare-project/yare/loop"
)

// Descriptor declares the loop.
func Descriptor() loop.Descriptor {
	return loop.Descriptor{
		Name: "disruption",
		Reads: []loop.Access{{GroupResource: policyv1.Resource("poddisruptionbudgets")}, {GroupResource: corev1.Resource("pods")},
			{GroupResource: appsv1.Resource("replicasets")}, {GroupResource: appsv1.Resource("deployments")}, {GroupResource: appsv1.Resource("statefulsets")},
			{GroupResource: corev1.Resource("replicationcontrollers")}},
		Writes: []loop.Access{{GroupResource: policyv1.Resource("poddisruptionbudgets/status"), Verbs: []string{"update"}}},
		Start:  start,
	}
}

type controller struct {
	in          loop.Inputs
	budgets     client.Cache[*policyv1.PodDisruptionBudget]
	pods        client.Cache[*corev1.Pod]
	sets        client.Cache[*appsv1.ReplicaSet]
	deployments client.Cache[*appsv1.Deployment]
	stateful    client.Cache[*appsv1.StatefulSet]
	replication client.Cache[*corev1.ReplicationController]
	api         client.API[*policyv1.PodDisruptionBudget]
}

func start(in loop.Inputs) (loop.Reconcile, error) {
	c := &controller{in: in, budgets: client.CacheOf[*policyv1.PodDisruptionBudget](in.Caches, client.CacheOptions{}),
		pods: client.CacheOf[*corev1.Pod](in.Caches, client.CacheOptions{}),
		sets: client.CacheOf[*appsv1.ReplicaSet](in.Caches, client.CacheOptions{}), deployments: client.CacheOf[*appsv1.Deployment](in.Caches, client.CacheOptions{}),
		stateful: client.CacheOf[*appsv1.StatefulSet](in.Caches, client.CacheOptions{}), replication: client.CacheOf[*corev1.ReplicationController](in.Caches, client.CacheOptions{}),
		api: client.Of[*policyv1.PodDisruptionBudget](in.Transport)}
	selection.IndexByLabel(c.pods)
	loop.EnqueueSelf(c.budgets, in.Enqueue)
	c.pods.OnChange(func(old, new *corev1.Pod) {
		for _, p := range []*corev1.Pod{old, new} {
			if p != nil {
				c.wake(p.Namespace, p.Labels)
			}
		}
	})
	c.deployments.OnChange(func(old, new *appsv1.Deployment) {
		if old != nil && new != nil && equality.Semantic.DeepEqual(old.Spec.Replicas, new.Spec.Replicas) {
			return
		}
		d := client.Newest(old, new)
		c.wake(d.Namespace, d.Spec.Template.Labels)
	})
	c.stateful.OnChange(func(old, new *appsv1.StatefulSet) {
		if old != nil && new != nil && equality.Semantic.DeepEqual(old.Spec.Replicas, new.Spec.Replicas) {
			return
		}
		s := client.Newest(old, new)
		c.wake(s.Namespace, s.Spec.Template.Labels)
	})
	return c.reconcile, nil
}

// wake asks for a pass over the budgets that select pods with these labels.
func (c *controller) wake(namespace string, of map[string]string) {
	for _, b := range c.budgets.List(namespace) {
		if s, err := metav1.LabelSelectorAsSelector(b.Spec.Selector); err == nil && s.Matches(labels.Set(of)) {
			c.in.Enqueue(loop.KeyOf(b))
		}
	}
}

func (c *controller) reconcile(ctx context.Context, key loop.Key) (loop.Result, error) {
	b, ok := c.budgets.Get(key.Namespace, key.Name)
	if !ok {
		return loop.Result{}, nil
	}
	selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
	if err != nil {
		return loop.Result{}, nil // validation lets none through
	}
	var match map[string]string
	if b.Spec.Selector != nil {
		match = b.Spec.Selector.MatchLabels
	}
	pods := selection.Matching(c.pods, key.Namespace, match, selector)
	if len(pods) == 0 {
		c.in.Event(b, corev1.EventTypeNormal, "NoPods", "No matching pods found")
	}
	status, unmanaged, wait := decide(b, pods, c.scale, c.in.Clock.Now())
	if len(unmanaged) > 0 {
		c.in.Event(b, corev1.EventTypeWarning, "UnmanagedPods", fmt.Sprintf("Pods selected by this PodDisruptionBudget (selector: %s) were found to be unmanaged. "+
			"As a result, the status of the PDB cannot be calculated correctly, which may result in undefined behavior. To account for these pods please set \".spec.minAvailable\" "+
			"field of the PDB to an integer value.", selector))
	}
	if equality.Semantic.DeepEqual(b.Status, status) {
		return loop.Result{After: wait}, nil
	}
	b = b.DeepCopy()
	b.Status = status
	if _, err := c.api.UpdateStatus(ctx, b); err != nil && !apierrors.IsNotFound(err) {
		return loop.Result{}, fmt.Errorf("update status: %w", err)
	}
	return loop.Result{After: wait}, nil
}

// scale is how many replicas the controller of a pod is meant to have, and which it is; false if it has none that this loop knows.
func (c *controller) scale(p *corev1.Pod) (controller string, replicas int32, ok bool) {
	ref := metav1.GetControllerOfNoCopy(p)
	if ref == nil {
		return "", 0, false
	}
	switch ref.Kind {
	case "ReplicaSet":
		rs, found := c.sets.Get(p.Namespace, ref.Name)
		if !found || rs.UID != ref.UID {
			return "", 0, false
		}
		if up := metav1.GetControllerOfNoCopy(rs); up != nil && up.Kind == "Deployment" {
			d, found := c.deployments.Get(p.Namespace, up.Name)
			if !found || d.UID != up.UID {
				return "", 0, false
			}
			return string(d.UID), orOne(d.Spec.Replicas), true
		}
		return string(rs.UID), orOne(rs.Spec.Replicas), true
	case "StatefulSet":
		s, found := c.stateful.Get(p.Namespace, ref.Name)
		return string(ref.UID), replicasIf(found && s.UID == ref.UID, func() *int32 { return s.Spec.Replicas }), found && s.UID == ref.UID
	case "ReplicationController":
		rc, found := c.replication.Get(p.Namespace, ref.Name)
		return string(ref.UID), replicasIf(found && rc.UID == ref.UID, func() *int32 { return rc.Spec.Replicas }), found && rc.UID == ref.UID
	}
	return "", 0, false
}

func orOne(n *int32) int32 {
	if n == nil {
		return 1
	}
	return *n
}

func replicasIf(yes bool, n func() *int32) int32 {
	if !yes {
		return 0
	}
	return orOne(n())
}

// deletionWindow is how long an evicted pod may take to vanish before it counts again.
const deletionWindow = 2 * time.Minute
