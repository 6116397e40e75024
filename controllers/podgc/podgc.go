// Package podgc removes pods that nobody else will: those bound to a node that is gone, those that were deleted before they had a node, those
// stuck on a node that is declared out of service, and the oldest finished ones when there are too many.
//
// A node that vanished is given 40 s to come back. Nothing is polled: each case is woken by the change that makes it.
package podgc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/controllers/pod"
	"github.com/yare-project/yare/loop"
)

const (
	// DefaultThreshold is how many finished pods may stay (Kubernetes' --terminated-pod-gc-threshold).
	DefaultThreshold = 12500
	// quarantine is how long a node may be away before its pods are taken for lost.
	quarantine = 40 * time.Second
)

// finishedKey is the pass over finished pods. Others are about one pod.
var finishedKey = loop.Key{Namespace: "*", Name: "finished"}

// Descriptor declares the loop. A threshold of 0 means DefaultThreshold; below 0, finished pods stay for ever.
func Descriptor(threshold int) loop.Descriptor {
	if threshold == 0 {
		threshold = DefaultThreshold
	}
	return loop.Descriptor{
		Name:  "pod-garbage-collector",
		Reads: []loop.Access{{GroupResource: corev1.Resource("pods")}, {GroupResource: corev1.Resource("nodes")}},
		Writes: []loop.Access{{GroupResource: corev1.Resource("pods"), Verbs: []string{"delete"}},
			{GroupResource: corev1.Resource("pods/status"), Verbs: []string{"patch"}}},
		Workers: 4,
		Start:   func(in loop.Inputs) (loop.Reconcile, error) { return start(in, threshold), nil },
	}
}

type collector struct {
	in        loop.Inputs
	threshold int
	pods      client.Cache[*corev1.Pod]
	nodes     client.Cache[*corev1.Node]
	api       client.API[*corev1.Pod]
	nodeAPI   client.API[*corev1.Node]

	mu       sync.Mutex
	finished int
	missing  map[string]time.Time // nodes with pods that no cache shows, since when
}

const byFinished = "podgc.finished"

func start(in loop.Inputs, threshold int) loop.Reconcile {
	c := &collector{in: in, threshold: threshold, pods: client.CacheOf[*corev1.Pod](in.Caches, client.CacheOptions{}),
		nodes: client.CacheOf[*corev1.Node](in.Caches, client.CacheOptions{}),
		api:   client.Of[*corev1.Pod](in.Transport), nodeAPI: client.Of[*corev1.Node](in.Transport), missing: map[string]time.Time{}}
	c.pods.AddIndex(pod.ByNode, pod.NodeOf)
	c.pods.AddIndex(byFinished, func(p *corev1.Pod) []string {
		if ended(p) {
			return []string{"yes"}
		}
		return nil
	})
	c.pods.OnChange(c.podChanged)
	c.nodes.OnChange(func(old, new *corev1.Node) {
		if new == nil || outOfService(new) && (old == nil || !outOfService(old)) {
			for _, p := range c.pods.By(pod.ByNode, client.Newest(old, new).Name) {
				in.Enqueue(loop.KeyOf(p))
			}
		}
	})
	return c.reconcile
}

// ended tells whether a pod counts as finished: as the threshold does, anything that is no longer on its way or running.
func ended(p *corev1.Pod) bool {
	return p.Status.Phase != "" && p.Status.Phase != corev1.PodPending && p.Status.Phase != corev1.PodRunning && p.Status.Phase != corev1.PodUnknown
}

func (c *collector) podChanged(old, new *corev1.Pod) {
	c.mu.Lock()
	if old != nil && ended(old) {
		c.finished--
	}
	if new != nil && ended(new) {
		c.finished++
	}
	tooMany := c.threshold >= 0 && c.finished > c.threshold
	c.mu.Unlock()
	if tooMany {
		c.in.Enqueue(finishedKey)
	}
	if new == nil {
		return
	}
	deleted := new.DeletionTimestamp != nil && (old == nil || old.DeletionTimestamp == nil)
	bound := new.Spec.NodeName != "" && (old == nil || old.Spec.NodeName == "")
	if deleted || bound {
		c.in.Enqueue(loop.KeyOf(new))
	}
}

func outOfService(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService })
}

func (c *collector) reconcile(ctx context.Context, key loop.Key) (loop.Result, error) {
	if key == finishedKey {
		return loop.Result{}, c.trim(ctx)
	}
	p, ok := c.pods.Get(key.Namespace, key.Name)
	if !ok {
		return loop.Result{}, nil
	}
	if p.Spec.NodeName == "" {
		if p.DeletionTimestamp != nil {
			return loop.Result{}, c.remove(ctx, p, nil)
		}
		return loop.Result{}, nil
	}
	if n, ok := c.nodes.Get("", p.Spec.NodeName); ok {
		c.found(n.Name)
		if outOfService(n) && !ready(n) && p.DeletionTimestamp != nil {
			return loop.Result{}, c.remove(ctx, p, &corev1.PodCondition{Reason: "DeletionByPodGC", Message: "PodGC: node is out-of-service"})
		}
		return loop.Result{}, nil
	}
	return c.orphaned(ctx, p)
}

func ready(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// orphaned removes a pod whose node stayed away for the quarantine, and is not there by the server's word either.
func (c *collector) orphaned(ctx context.Context, p *corev1.Pod) (loop.Result, error) {
	if wait := c.missed(p.Spec.NodeName).Add(quarantine).Sub(c.in.Clock.Now()); wait > 0 {
		return loop.Result{After: wait}, nil
	}
	_, err := c.nodeAPI.Get(ctx, "", p.Spec.NodeName)
	if err == nil {
		return loop.Result{After: quarantine}, nil
	}
	if !apierrors.IsNotFound(err) {
		return loop.Result{}, fmt.Errorf("look for node %s: %w", p.Spec.NodeName, err)
	}
	return loop.Result{}, c.remove(ctx, p, &corev1.PodCondition{Reason: "DeletionByPodGC", Message: "PodGC: node no longer exists"})
}

// missed is since when a node has been missed.
func (c *collector) missed(node string) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	since, ok := c.missing[node]
	if !ok {
		since = c.in.Clock.Now()
		c.missing[node] = since
	}
	return since
}

func (c *collector) found(node string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.missing, node)
}

// trim removes the finished pods that are too many: evicted ones first, then the oldest.
func (c *collector) trim(ctx context.Context) error {
	pods := slices.DeleteFunc(c.pods.By(byFinished, "yes"), func(p *corev1.Pod) bool { return p.DeletionTimestamp != nil })
	excess := len(pods) - c.threshold
	if excess <= 0 {
		return nil
	}
	slices.SortFunc(pods, func(a, b *corev1.Pod) int {
		if ae, be := a.Status.Reason == "Evicted", b.Status.Reason == "Evicted"; ae != be {
			if ae {
				return -1
			}
			return 1
		}
		if t := a.CreationTimestamp.Time.Compare(b.CreationTimestamp.Time); t != 0 {
			return t
		}
		return strings.Compare(a.Name, b.Name)
	})
	var failed []error
	for _, p := range pods[:excess] {
		failed = append(failed, c.remove(ctx, p, nil))
	}
	return errors.Join(failed...)
}

// remove deletes a pod at once: no node is there to end it gracefully. One that did not finish is marked Failed before, with why.
func (c *collector) remove(ctx context.Context, p *corev1.Pod, why *corev1.PodCondition) error {
	if !pod.Finished(p) {
		status := map[string]any{"phase": corev1.PodFailed}
		if why != nil {
			why.Type, why.Status, why.LastTransitionTime = corev1.DisruptionTarget, corev1.ConditionTrue, metav1.NewTime(c.in.Clock.Now())
			status["conditions"] = []corev1.PodCondition{*why}
		}
		body, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": p.UID}, "status": status})
		if err != nil {
			return err
		}
		if _, err := c.api.Patch(ctx, p.Namespace, p.Name, types.StrategicMergePatchType, body, "status"); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("mark pod failed: %w", err)
		}
	}
	now := int64(0)
	err := c.api.Delete(ctx, p.Namespace, p.Name, metav1.DeleteOptions{GracePeriodSeconds: &now, Preconditions: &metav1.Preconditions{UID: &p.UID}})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}
