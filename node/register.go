package node

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/yare-project/yare/client"
)

const (
	// statusEvery is how often the Node's status is written even if nothing changed; the Lease tells in between that the node lives.
	statusEvery = 5 * time.Minute
	// checkEvery is how often the machine is looked at for what no event tells: memory, disk, images, the runtime's health.
	checkEvery = 10 * time.Second
	// firstCheck is the wait between looks at a runtime that is not ready yet; it doubles up to checkEvery.
	firstCheck = 100 * time.Millisecond
)

// registration keeps this machine's Node and Lease.
type registration struct {
	*Agent
	cache          client.Cache[*corev1.Node]
	runtimeVersion string
	handlers       []*runtimeapi.RuntimeHandler
	features       *runtimeapi.RuntimeFeatures
	// registered is closed once the API has the Node: pods are judged by its labels and taints.
	registered chan struct{}

	mu   sync.Mutex
	node *corev1.Node // newest from the API

	wrote corev1.NodeStatus // what was written last; it belongs to run
}

func newRegistration(a *Agent) *registration {
	return &registration{Agent: a, registered: make(chan struct{}), cache: client.CacheOf[*corev1.Node](a.cfg.Caches, client.CacheOptions{FieldSelector: "metadata.name=" + a.cfg.Name})}
}

// run registers the Node, and keeps its status and Lease until ctx ends.
func (r *registration) run(ctx context.Context) {
	changed := make(chan struct{}, 1)
	r.cache.OnChange(func(_, node *corev1.Node) {
		if node == nil {
			r.set(nil) // somebody deleted it: it is registered again
		} else {
			r.set(node)
		}
		select {
		case changed <- struct{}{}:
		default:
		}
	})
	if !r.register(ctx) {
		return
	}
	close(r.registered)
	r.nodeEvent("Starting", "Starting kubelet.")
	r.running.Go(func() { r.keepLease(ctx) })
	wait := firstCheck
	var last time.Time
	for {
		ready, err := r.refresh(ctx, &last)
		if err != nil && ctx.Err() == nil {
			r.cfg.Log.Warn("node status", "err", err)
		}
		if ready && err == nil {
			wait = checkEvery
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-r.cfg.Clock.After(wait):
		}
		wait = min(2*wait, checkEvery)
	}
}

func (r *registration) set(node *corev1.Node) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if node == nil || r.node == nil || node.UID != r.node.UID || !older(node.ResourceVersion, r.node.ResourceVersion) {
		r.node = node
	}
}

func (r *registration) get() *corev1.Node {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.node
}

// present answers the Node as far as it is known: with the API's labels and taints, and with what the machine has.
func (r *registration) present() *corev1.Node {
	node := r.get()
	if node == nil {
		node = r.initial()
	}
	if node.Status.Allocatable == nil {
		node = node.DeepCopy()
		node.Status.Allocatable = r.allocatable()
	}
	return node
}

// register makes the Node, or takes over the one that is there; it tries until it has worked or ctx ends.
func (r *registration) register(ctx context.Context) bool {
	wait := firstCheck
	for {
		node, err := r.try(ctx)
		if err == nil {
			r.set(node)
			r.running.Go(func() { r.tellStorage(ctx, node) })
			return true
		}
		if ctx.Err() == nil {
			r.cfg.Log.Warn("the node is not registered yet", "err", err, "again-in", wait)
		}
		select {
		case <-ctx.Done():
			return false
		case <-r.cfg.Clock.After(wait):
		}
		wait = min(2*wait, checkEvery)
	}
}

func (r *registration) try(ctx context.Context) (*corev1.Node, error) {
	nodes := client.Of[*corev1.Node](r.cfg.Transport)
	have, err := nodes.Get(ctx, "", r.cfg.Name)
	if apierrors.IsNotFound(err) {
		node := r.initial()
		node.Status = r.build(ctx, node)
		have, err = nodes.Create(ctx, node)
		if !apierrors.IsAlreadyExists(err) {
			return have, err
		}
		have, err = nodes.Get(ctx, "", r.cfg.Name)
	}
	if err != nil {
		return nil, err
	}
	return r.takeOver(ctx, have)
}

// takeOver gives an existing Node the labels that are this machine's, and addresses for its pods if it has none.
func (r *registration) takeOver(ctx context.Context, have *corev1.Node) (*corev1.Node, error) {
	want := r.initial()
	patch := map[string]any{}
	labels := map[string]string{}
	for k, v := range want.Labels {
		if have.Labels[k] != v {
			labels[k] = v
		}
	}
	if len(labels) > 0 {
		patch["metadata"] = map[string]any{"labels": labels}
	}
	if have.Spec.PodCIDR == "" && want.Spec.PodCIDR != "" {
		patch["spec"] = map[string]any{"podCIDR": want.Spec.PodCIDR, "podCIDRs": want.Spec.PodCIDRs}
	}
	if len(patch) == 0 {
		return have, nil
	}
	body, err := json.Marshal(patch)
	if err != nil {
		return nil, err
	}
	return client.Of[*corev1.Node](r.cfg.Transport).Patch(ctx, "", have.Name, types.StrategicMergePatchType, body, "")
}

// initial is the Node as it is registered.
func (r *registration) initial() *corev1.Node {
	os, arch := platform()
	labels := map[string]string{corev1.LabelHostname: r.cfg.Name, corev1.LabelOSStable: os, corev1.LabelArchStable: arch,
		"beta.kubernetes.io/os": os, "beta.kubernetes.io/arch": arch}
	maps.Copy(labels, r.cfg.Labels)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: r.cfg.Name, Labels: labels,
		Annotations: map[string]string{"volumes.kubernetes.io/controller-managed-attach-detach": "true"}}}
	node.Spec.Taints = r.cfg.Taints
	if len(r.cfg.PodCIDRs) > 0 {
		node.Spec.PodCIDR, node.Spec.PodCIDRs = r.cfg.PodCIDRs[0], r.cfg.PodCIDRs
	}
	return node
}

// held answers the Node as it was last seen, or nil if there is none any more. An answer to a write can come after the event of a deletion, so
// a Node that the cache lacks is asked for: it is deleted, or too new for the cache.
func (r *registration) held(ctx context.Context) (*corev1.Node, error) {
	have := r.get()
	if have == nil {
		return nil, nil
	}
	if _, cached := r.cache.Get("", r.cfg.Name); cached {
		return have, nil
	}
	node, err := client.Of[*corev1.Node](r.cfg.Transport).Get(ctx, "", r.cfg.Name)
	if apierrors.IsNotFound(err) {
		r.set(nil)
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	r.set(node)
	return r.get(), nil
}

// refresh writes the status if it changed, or if it is time to. It answers whether the node is ready.
func (r *registration) refresh(ctx context.Context, last *time.Time) (bool, error) {
	have, err := r.held(ctx)
	if err != nil {
		return false, err
	}
	if have == nil {
		if !r.register(ctx) {
			return false, ctx.Err()
		}
		have = r.get()
	}
	want := r.build(ctx, have)
	ready := isReady(&want)
	now := r.cfg.Clock.Now()
	if now.Sub(*last) < statusEvery && r.current(&have.Status, &want) {
		return ready, nil
	}
	got, err := r.patch(ctx, have, &want)
	if apierrors.IsNotFound(err) {
		r.set(nil)
		return false, err
	}
	if err != nil {
		return ready, err
	}
	*last, r.wrote = now, want
	r.set(got)
	if was := isReady(&have.Status); was != ready {
		reason := "NodeNotReady"
		if ready {
			reason = "NodeReady"
		}
		r.nodeEvent(reason, fmt.Sprintf("Node %s status is now: %s", r.cfg.Name, reason))
	}
	return ready, nil
}

// current answers whether the API has a status. What it does not keep as it was written is compared with what was written.
func (r *registration) current(have, want *corev1.NodeStatus) bool {
	have, want = withoutHeartbeat(have), withoutHeartbeat(want)
	if equality.Semantic.DeepEqual(have, want) {
		return true
	}
	return equality.Semantic.DeepEqual(have.Conditions, want.Conditions) && equality.Semantic.DeepEqual(withoutHeartbeat(&r.wrote), want)
}

func isReady(s *corev1.NodeStatus) bool {
	for _, c := range s.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func withoutHeartbeat(s *corev1.NodeStatus) *corev1.NodeStatus {
	out := s.DeepCopy()
	for i := range out.Conditions {
		out.Conditions[i].LastHeartbeatTime = metav1.Time{}
	}
	return out
}

func (r *registration) patch(ctx context.Context, have *corev1.Node, want *corev1.NodeStatus) (*corev1.Node, error) {
	old, err := json.Marshal(corev1.Node{Status: have.Status})
	if err != nil {
		return nil, err
	}
	now, err := json.Marshal(corev1.Node{Status: *want})
	if err != nil {
		return nil, err
	}
	body, err := strategicpatch.CreateTwoWayMergePatch(old, now, corev1.Node{})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	return client.Of[*corev1.Node](r.cfg.Transport).Patch(ctx, "", r.cfg.Name, types.StrategicMergePatchType, body, "status")
}

func (r *registration) nodeEvent(reason, text string) {
	ref := corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: r.cfg.Name, UID: types.UID(r.cfg.Name)}
	r.cfg.Event(ref, corev1.EventTypeNormal, reason, text)
}
