package scheduler

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yare-project/yare/client"
)

var _ = metav1.Now

// Claim implements framework.Volumes.
func (w *world) Claim(namespace, name string) (*corev1.PersistentVolumeClaim, bool) {
	return w.claims.Get(namespace, name)
}

// Volume implements framework.Volumes.
func (w *world) Volume(name string) (*corev1.PersistentVolume, bool) { return w.volumes.Get("", name) }

// Class implements framework.Volumes.
func (w *world) Class(name string) (*storagev1.StorageClass, bool) { return w.classes.Get("", name) }

// Node implements framework.Volumes.
func (w *world) Node(name string) (*storagev1.CSINode, bool) { return w.csiNodes.Get("", name) }

// Available implements framework.Volumes.
func (w *world) Available() []*corev1.PersistentVolume {
	var out []*corev1.PersistentVolume
	for _, v := range w.volumes.List("") {
		if v.Spec.ClaimRef == nil && v.DeletionTimestamp == nil {
			out = append(out, v)
		}
	}
	return out
}

// Bind implements framework.Volumes: it reserves the volume for the claim; the volume controller finishes the binding.
func (w *world) Bind(ctx context.Context, volume *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) error {
	v := volume.DeepCopy()
	v.Spec.ClaimRef = &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID,
		ResourceVersion: claim.ResourceVersion}
	if v.Annotations == nil {
		v.Annotations = map[string]string{}
	}
	v.Annotations[annBoundByController] = "yes"
	if _, err := client.Of[*corev1.PersistentVolume](w.config.Transport).Update(ctx, v); err != nil {
		return fmt.Errorf("reserving volume %s for claim %s: %w", volume.Name, claim.Name, err)
	}
	return w.WaitBound(ctx, claim)
}

const (
	annBoundByController = "pv.kubernetes.io/bound-by-controller"
	annSelectedNode      = "volume.kubernetes.io/selected-node"
)

// Provision implements framework.Volumes: the claim's annotation tells the provisioner where the volume is needed.
func (w *world) Provision(ctx context.Context, claim *corev1.PersistentVolumeClaim, node string) error {
	c := claim.DeepCopy()
	if c.Annotations == nil {
		c.Annotations = map[string]string{}
	}
	c.Annotations[annSelectedNode] = node
	if _, err := client.Of[*corev1.PersistentVolumeClaim](w.config.Transport).Update(ctx, c); err != nil {
		return fmt.Errorf("asking for a volume for claim %s on node %s: %w", claim.Name, node, err)
	}
	return w.WaitBound(ctx, claim)
}

// WaitBound implements framework.Volumes.
func (w *world) WaitBound(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	return errors.New("not written yet")
}
