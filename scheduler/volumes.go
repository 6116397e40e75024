package scheduler

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/component-helpers/storage/volume"

	"github.com/yare-project/yare/client"
)

// Claim implements framework.Volumes.
func (w *world) Claim(namespace, name string) (*corev1.PersistentVolumeClaim, bool) {
	return w.claims.Get(namespace, name)
}

// Volume implements framework.Volumes.
func (w *world) Volume(name string) (*corev1.PersistentVolume, bool) { return w.volumes.Get("", name) }

// List implements framework.Volumes.
func (w *world) List() []*corev1.PersistentVolume { return w.volumes.List("") }

// Class implements framework.Volumes.
func (w *world) Class(name string) (*storagev1.StorageClass, bool) { return w.classes.Get("", name) }

// Node implements framework.Volumes.
func (w *world) Node(name string) (*storagev1.CSINode, bool) { return w.csiNodes.Get("", name) }

const byNode = "node"

// Driver implements framework.Capacity.
func (w *world) Driver(name string) (*storagev1.CSIDriver, bool) { return w.drivers.Get("", name) }

// Capacities implements framework.Capacity.
func (w *world) Capacities() []*storagev1.CSIStorageCapacity { return w.capacities.List("") }

// Attachments implements framework.Capacity.
func (w *world) Attachments(node string) []*storagev1.VolumeAttachment {
	return w.attachments.By(byNode, node)
}

// Bind implements framework.Volumes: it reserves the volume for the claim; the volume controller finishes the binding.
func (w *world) Bind(ctx context.Context, pv *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) error {
	next, dirty, err := volume.GetBindVolumeToClaim(pv, claim)
	if err != nil {
		return fmt.Errorf("reserving volume %s for claim %s: %w", pv.Name, claim.Name, err)
	}
	if !dirty {
		return nil
	}
	if _, err := client.Of[*corev1.PersistentVolume](w.config.Transport).Update(ctx, next); err != nil {
		return fmt.Errorf("reserving volume %s for claim %s: %w", pv.Name, claim.Name, err)
	}
	return nil
}

const annSelectedNode = "volume.kubernetes.io/selected-node"

// Provision implements framework.Volumes: the claim's annotation tells the provisioner where the volume is needed.
func (w *world) Provision(ctx context.Context, claim *corev1.PersistentVolumeClaim, node string) (*corev1.PersistentVolumeClaim, error) {
	if claim.Annotations[annSelectedNode] == node {
		return claim, nil
	}
	c := claim.DeepCopy()
	if c.Annotations == nil {
		c.Annotations = map[string]string{}
	}
	c.Annotations[annSelectedNode] = node
	c, err := client.Of[*corev1.PersistentVolumeClaim](w.config.Transport).Update(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("asking for a volume for claim %s on node %s: %w", claim.Name, node, err)
	}
	return c, nil
}

// WaitBound implements framework.Volumes.
func (w *world) WaitBound(ctx context.Context, claim *corev1.PersistentVolumeClaim, node string) error {
	for {
		changed := w.claimTick.next()
		now, ok := w.claims.Get(claim.Namespace, claim.Name)
		seen := client.Saw(w.claims, claim.ResourceVersion)
		switch {
		case ok && now.UID == claim.UID && now.Spec.VolumeName != "" && now.Status.Phase == corev1.ClaimBound:
			return nil
		case seen && (!ok || now.UID != claim.UID):
			return fmt.Errorf("claim %s is gone", claim.Name)
		case seen && node != "" && now.Spec.VolumeName == "" && now.Annotations[annSelectedNode] != node:
			return fmt.Errorf("no volume could be made for claim %s on node %s; another node will be tried", claim.Name, node)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("waiting for claim %s to be bound: %w", claim.Name, ctx.Err())
		}
	}
}

// tick tells any number of waiters that something changed.
type tick struct {
	mu sync.Mutex
	ch chan struct{}
}

// next is closed at the next change.
func (t *tick) next() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ch == nil {
		t.ch = make(chan struct{})
	}
	return t.ch
}

func (t *tick) fire() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ch != nil {
		close(t.ch)
		t.ch = nil
	}
}
