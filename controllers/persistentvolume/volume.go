package persistentvolume

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/component-helpers/storage/volume"

	"github.com/yare-project/yare/loop"
)

// syncVolume settles a volume's phase by what became of its claim.
func (b *binder) syncVolume(ctx context.Context, v *corev1.PersistentVolume) error {
	ref := v.Spec.ClaimRef
	if ref == nil || ref.UID == "" {
		// Free, or reserved by its author: the claim's pass takes it.
		_, err := b.setPhase(ctx, v, corev1.VolumeAvailable, "")
		return err
	}
	c, err := b.holder(ctx, v)
	if err != nil {
		return err
	}
	switch {
	case c == nil:
		return b.release(ctx, v)
	case c.Spec.VolumeName == v.Name:
		_, err := b.setPhase(ctx, v, corev1.VolumeBound, "")
		return err
	case c.Spec.VolumeName == "":
		if volume.CheckVolumeModeMismatches(&c.Spec, &v.Spec) {
			b.in.Event(v, corev1.EventTypeWarning, "VolumeMismatch", fmt.Sprintf("Cannot bind PersistentVolume to requested PersistentVolumeClaim %q due to incompatible volumeMode.", c.Name))
			b.in.Event(c, corev1.EventTypeWarning, "VolumeMismatch", fmt.Sprintf("Cannot bind PersistentVolume %q to requested PersistentVolumeClaim due to incompatible volumeMode.", v.Name))
			return nil
		}
		b.in.Enqueue(loop.KeyOf(c))
		return nil
	case provisioned(v) && v.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete:
		return b.release(ctx, v) // it was made for a claim that found another
	}
	return b.unbind(ctx, v)
}

func provisioned(v *corev1.PersistentVolume) bool {
	return v.Annotations[volume.AnnDynamicallyProvisioned] != ""
}

// holder is the claim that a volume is bound to; nil if it is gone. Only the server's word counts for that, until the volume is released.
func (b *binder) holder(ctx context.Context, v *corev1.PersistentVolume) (*corev1.PersistentVolumeClaim, error) {
	ref := v.Spec.ClaimRef
	if c, ok := b.claims.Get(ref.Namespace, ref.Name); ok && c.UID == ref.UID {
		return c, nil
	}
	if released(v) {
		return nil, nil
	}
	c, err := b.claimAPI.Get(ctx, ref.Namespace, ref.Name)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for the claim of volume %s: %w", v.Name, err)
	}
	if c.UID != ref.UID {
		return nil, nil
	}
	return c, nil
}

func released(v *corev1.PersistentVolume) bool {
	return v.Status.Phase == corev1.VolumeReleased || v.Status.Phase == corev1.VolumeFailed
}

// release lets go of a volume whose claim is gone, and does what its policy says.
func (b *binder) release(ctx context.Context, v *corev1.PersistentVolume) error {
	if !released(v) {
		var err error
		if v, err = b.setPhase(ctx, v, corev1.VolumeReleased, ""); err != nil {
			return err
		}
	}
	if v.Annotations[volume.AnnMigratedTo] != "" {
		return nil // all that is left to do, the driver's provisioner does
	}
	switch v.Spec.PersistentVolumeReclaimPolicy {
	case corev1.PersistentVolumeReclaimRetain:
		return nil
	case corev1.PersistentVolumeReclaimDelete:
		maker := v.Annotations[volume.AnnDynamicallyProvisioned]
		if maker != "" && !strings.HasPrefix(maker, inTree) || v.Spec.CSI != nil {
			return nil // its provisioner deletes it
		}
		return b.fail(ctx, v, "VolumeFailedDelete", fmt.Sprintf("error getting deleter volume plugin for volume %q: no provisioner made it, so none deletes it; "+
			"remove what is stored there by hand, then delete the PersistentVolume, or set persistentVolumeReclaimPolicy to Retain", v.Name))
	case corev1.PersistentVolumeReclaimRecycle:
		return b.fail(ctx, v, "VolumeFailedRecycle", "No recycler plugin found for the volume! The policy Recycle is deprecated and not supported: use Retain, or a class with dynamic provisioning")
	}
	return b.fail(ctx, v, "VolumeUnknownReclaimPolicy", "Volume has unrecognized PersistentVolumeReclaimPolicy")
}

// fail marks a volume, once, with why it could not be reclaimed.
func (b *binder) fail(ctx context.Context, v *corev1.PersistentVolume, reason, message string) error {
	if v.Status.Phase == corev1.VolumeFailed {
		return nil
	}
	now, err := b.setPhase(ctx, v, corev1.VolumeFailed, message)
	if err == nil {
		b.in.Event(now, corev1.EventTypeWarning, reason, message)
	}
	return err
}

// unbind takes back a reservation for a claim that is bound elsewhere. One that the volume's author made stays, without the claim's uid.
func (b *binder) unbind(ctx context.Context, v *corev1.PersistentVolume) error {
	next := v.DeepCopy()
	if _, ours := v.Annotations[volume.AnnBoundByController]; ours {
		next.Spec.ClaimRef = nil
		delete(next.Annotations, volume.AnnBoundByController)
	} else {
		next.Spec.ClaimRef.UID = ""
	}
	now, err := b.volumeAPI.Update(ctx, next)
	if err != nil {
		return fmt.Errorf("unbind volume %s: %w", v.Name, err)
	}
	_, err = b.setPhase(ctx, now, corev1.VolumeAvailable, "")
	return err
}
