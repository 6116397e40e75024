package persistentvolume

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/component-helpers/storage/volume"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/internal/csimigration"
)

// completed tells whether a claim has been bound, whatever became of it since.
func completed(c *corev1.PersistentVolumeClaim) bool {
	_, ok := c.Annotations[volume.AnnBindCompleted]
	return ok
}

// syncUnbound finds a volume for a claim that never had one.
func (b *binder) syncUnbound(ctx context.Context, c *corev1.PersistentVolumeClaim) error {
	if c.DeletionTimestamp != nil {
		return nil
	}
	if c.Spec.VolumeName != "" {
		return b.syncNamed(ctx, c)
	}
	class, hasClass := b.classes.Get("", volume.GetPersistentVolumeClaimClass(c))
	delay := hasClass && ptr.Deref(class.VolumeBindingMode, "") == storagev1.VolumeBindingWaitForFirstConsumer
	reserved, free := b.volumes.By(byHolder, c.Namespace+"/"+c.Name), b.volumes.By(byFree, volume.GetPersistentVolumeClaimClass(c))
	v, err := match(c, reserved, free, delay)
	if err != nil {
		return fmt.Errorf("find a volume for claim %s/%s: %w", c.Namespace, c.Name, err)
	}
	if v != nil {
		return b.bind(ctx, v, c)
	}
	if assigned, err := b.assignClass(ctx, c); assigned || err != nil {
		return err
	}
	switch {
	case delay && !volume.IsDelayBindingProvisioning(c):
		b.tellWaiting(c)
	case volume.GetPersistentVolumeClaimClass(c) != "":
		return b.askProvisioner(ctx, c, class, hasClass)
	default:
		b.in.Event(c, corev1.EventTypeNormal, "FailedBinding", "no persistent volumes available for this claim and no storage class is set")
	}
	_, err = b.setClaimStatus(ctx, c, corev1.ClaimPending, nil)
	return err
}

// tellWaiting says what a claim waits for: a first pod, or the placing of those that there are.
func (b *binder) tellWaiting(c *corev1.PersistentVolumeClaim) {
	var names []string
	for _, p := range b.pods.By(byUse, c.Namespace+"/"+c.Name) {
		names = append(names, p.Name)
	}
	slices.Sort(names)
	switch len(names) {
	case 0:
		b.in.Event(c, corev1.EventTypeNormal, "WaitForFirstConsumer", "waiting for first consumer to be created before binding")
	case 1:
		b.in.Event(c, corev1.EventTypeNormal, "WaitForPodScheduled", fmt.Sprintf("waiting for pod %s to be scheduled", names[0]))
	default:
		b.in.Event(c, corev1.EventTypeNormal, "WaitForPodScheduled", fmt.Sprintf("waiting for pods %s to be scheduled", strings.Join(names, ",")))
	}
}

// assignClass gives a claim that names no class the default class that came after it.
func (b *binder) assignClass(ctx context.Context, c *corev1.PersistentVolumeClaim) (bool, error) {
	if volume.PersistentVolumeClaimHasClass(c) || c.Spec.StorageClassName != nil {
		return false, nil
	}
	class := newestDefault(b.classes.List(""))
	if class == nil {
		return false, nil
	}
	next := c.DeepCopy()
	next.Spec.StorageClassName = &class.Name
	if _, err := b.claimAPI.Update(ctx, next); err != nil {
		return false, fmt.Errorf("give claim %s/%s the default class: %w", c.Namespace, c.Name, err)
	}
	return true, nil
}

func isDefault(class *storagev1.StorageClass) bool {
	return class.Annotations["storageclass.kubernetes.io/is-default-class"] == "true" || class.Annotations["storageclass.beta.kubernetes.io/is-default-class"] == "true"
}

// newestDefault is the default class that admission would take: the newest, then the first by name.
func newestDefault(classes []*storagev1.StorageClass) (found *storagev1.StorageClass) {
	for _, class := range classes {
		if !isDefault(class) {
			continue
		}
		if found == nil || found.CreationTimestamp.Before(&class.CreationTimestamp) ||
			found.CreationTimestamp.Equal(&class.CreationTimestamp) && class.Name < found.Name {
			found = class
		}
	}
	return found
}

// askProvisioner annotates a claim for the provisioner that its class names, or says why nobody will make a volume.
func (b *binder) askProvisioner(ctx context.Context, c *corev1.PersistentVolumeClaim, class *storagev1.StorageClass, found bool) error {
	refusal, provisioner := "", ""
	if found {
		provisioner = cmp.Or(csimigration.Driver(class.Provisioner), class.Provisioner)
	}
	switch {
	case !found:
		refusal = fmt.Sprintf("storageclass.storage.k8s.io %q not found", volume.GetPersistentVolumeClaimClass(c))
	case class.Provisioner == volume.NotSupportedProvisioner:
		refusal = fmt.Sprintf("storage class %q makes no volumes (provisioner %s): create a PersistentVolume of this class that satisfies the claim", class.Name, class.Provisioner)
	case strings.HasPrefix(provisioner, inTree):
		refusal = fmt.Sprintf("no volume plugin matched name %s: it is none that a CSI driver took over; use a class of a CSI driver, or create a PersistentVolume by hand", provisioner)
	}
	if refusal != "" {
		b.in.Event(c, corev1.EventTypeWarning, "ProvisioningFailed", refusal)
		_, err := b.setClaimStatus(ctx, c, corev1.ClaimPending, nil)
		return err
	}
	if c.Annotations[volume.AnnStorageProvisioner] != provisioner || c.Annotations[volume.AnnBetaStorageProvisioner] != provisioner {
		next := c.DeepCopy()
		annotate(next, volume.AnnStorageProvisioner, provisioner)
		annotate(next, volume.AnnBetaStorageProvisioner, provisioner)
		mark(next, provisioner)
		var err error
		if c, err = b.claimAPI.Update(ctx, next); err != nil {
			return fmt.Errorf("ask %s for a volume: %w", provisioner, err)
		}
	}
	b.in.Event(c, corev1.EventTypeNormal, "ExternalProvisioning", fmt.Sprintf("Waiting for a volume to be created either by the external provisioner '%s' or manually by the "+
		"system administrator. If volume creation is delayed, please verify that the provisioner is running and correctly registered.", provisioner))
	return nil
}

// syncNamed binds a claim to the volume that its author chose.
func (b *binder) syncNamed(ctx context.Context, c *corev1.PersistentVolumeClaim) error {
	v, ok := b.volumes.Get("", c.Spec.VolumeName)
	switch {
	case !ok:
	case v.Spec.ClaimRef == nil:
		why := unfit(v, c)
		if why == "" {
			return b.bind(ctx, v, c)
		}
		b.in.Event(c, corev1.EventTypeWarning, "VolumeMismatch", fmt.Sprintf("Cannot bind to requested volume %q: %s", v.Name, why))
	case volume.IsVolumeBoundToClaim(v, c):
		return b.bind(ctx, v, c)
	default:
		b.in.Event(c, corev1.EventTypeWarning, "FailedBinding", fmt.Sprintf("volume %q already bound to a different claim.", v.Name))
	}
	_, err := b.setClaimStatus(ctx, c, corev1.ClaimPending, nil)
	return err
}

// syncBound keeps a binding whole, or says that it is lost.
func (b *binder) syncBound(ctx context.Context, c *corev1.PersistentVolumeClaim) error {
	if c.Spec.VolumeName == "" {
		return b.lose(ctx, c, "ClaimLost", "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!")
	}
	v, ok := b.volumes.Get("", c.Spec.VolumeName)
	if !ok {
		var err error
		if v, err = b.liveVolume(ctx, c.Spec.VolumeName); err != nil {
			return err
		}
	}
	switch {
	case v == nil:
		return b.lose(ctx, c, "ClaimLost", "Bound claim has lost its PersistentVolume. Data on the volume is lost!")
	case v.Spec.ClaimRef == nil || v.Spec.ClaimRef.UID == c.UID:
		return b.bind(ctx, v, c)
	}
	return b.lose(ctx, c, "ClaimMisbound", "Two claims are bound to the same volume, this one is bound incorrectly")
}

func (b *binder) lose(ctx context.Context, c *corev1.PersistentVolumeClaim, reason, message string) error {
	if c.Status.Phase == corev1.ClaimLost {
		return nil
	}
	now, err := b.setClaimStatus(ctx, c, corev1.ClaimLost, nil)
	if err == nil {
		b.in.Event(now, corev1.EventTypeWarning, reason, message)
	}
	return err
}
