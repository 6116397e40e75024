package persistentvolume

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/storage/volume"

	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/internal/csimigration"
)

// inTree begins the names of plugins that were part of Kubernetes.
const inTree = "kubernetes.io/"

// mark has an object say which CSI driver took over the in-tree plugin that made or is to make its volume: the driver's provisioner heeds no other of these
// (KEP-625). For anybody else than such a plugin it says nothing.
func mark(o client.Object, provisioner string) {
	if driver := csimigration.Driver(provisioner); driver != "" {
		annotate(o, volume.AnnMigratedTo, driver)
		return
	}
	delete(o.GetAnnotations(), volume.AnnMigratedTo)
}

// unmarked tells whether mark would change an object.
func unmarked(o client.Object, provisioner string) bool {
	return csimigration.Driver(provisioner) != o.GetAnnotations()[volume.AnnMigratedTo]
}

// markClaim marks a claim that somebody was asked to make a volume for.
func (b *binder) markClaim(ctx context.Context, c *corev1.PersistentVolumeClaim) (*corev1.PersistentVolumeClaim, error) {
	provisioner, asked := c.Annotations[volume.AnnStorageProvisioner]
	if !asked {
		provisioner, asked = c.Annotations[volume.AnnBetaStorageProvisioner]
	}
	if !asked || !unmarked(c, provisioner) {
		return c, nil
	}
	next := c.DeepCopy()
	mark(next, provisioner)
	now, err := b.claimAPI.Update(ctx, next)
	if err != nil {
		return nil, fmt.Errorf("say which driver took over claim %s/%s: %w", c.Namespace, c.Name, err)
	}
	return now, nil
}

// markVolume marks a volume that somebody made. The finalizer by which an in-tree plugin kept it until its storage was deleted goes: the plugin is not there to
// take it off, and the driver's provisioner has one of its own.
func (b *binder) markVolume(ctx context.Context, v *corev1.PersistentVolume) (*corev1.PersistentVolume, error) {
	maker, made := v.Annotations[volume.AnnDynamicallyProvisioned]
	held := csimigration.Driver(maker) != "" && slices.Contains(v.Finalizers, volume.PVDeletionInTreeProtectionFinalizer)
	if !made || !held && !unmarked(v, maker) {
		return v, nil
	}
	next := v.DeepCopy()
	mark(next, maker)
	if held {
		next.Finalizers = slices.DeleteFunc(next.Finalizers, func(f string) bool { return f == volume.PVDeletionInTreeProtectionFinalizer })
	}
	now, err := b.volumeAPI.Update(ctx, next)
	if err != nil {
		return nil, fmt.Errorf("say which driver took over volume %s: %w", v.Name, err)
	}
	return now, nil
}
