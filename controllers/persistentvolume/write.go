package persistentvolume

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/storage/volume"

	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/loop"
)

// again looks at once after a lost race, for the cache shows the winner now or in a moment, and takes something that went meanwhile for done.
func (b *binder) again(key loop.Key, err error) (loop.Result, error) {
	switch {
	case apierrors.IsConflict(err):
		b.in.Enqueue(key)
		return loop.Result{}, nil
	case apierrors.IsNotFound(err):
		return loop.Result{}, nil
	}
	return loop.Result{}, err
}

func annotate(o client.Object, key, value string) {
	all := o.GetAnnotations()
	if all == nil {
		all = map[string]string{}
	}
	all[key] = value
	o.SetAnnotations(all)
}

// bind does what is left to do of a binding: the volume's pointer and phase, then the claim's.
func (b *binder) bind(ctx context.Context, v *corev1.PersistentVolume, c *corev1.PersistentVolumeClaim) error {
	next, dirty, err := volume.GetBindVolumeToClaim(v, c)
	if err != nil {
		return fmt.Errorf("bind volume %s: %w", v.Name, err)
	}
	if dirty {
		if v, err = b.volumeAPI.Update(ctx, next); err != nil {
			return fmt.Errorf("bind volume %s to claim %s/%s: %w", next.Name, c.Namespace, c.Name, err)
		}
	}
	if v, err = b.setPhase(ctx, v, corev1.VolumeBound, ""); err != nil {
		return err
	}
	if c, err = b.point(ctx, c, v.Name); err != nil {
		return err
	}
	_, err = b.setClaimStatus(ctx, c, corev1.ClaimBound, v)
	return err
}

// point makes a claim name its volume.
func (b *binder) point(ctx context.Context, c *corev1.PersistentVolumeClaim, name string) (*corev1.PersistentVolumeClaim, error) {
	if c.Spec.VolumeName == name && completed(c) {
		return c, nil
	}
	next := c.DeepCopy()
	if c.Spec.VolumeName != name {
		next.Spec.VolumeName = name
		annotate(next, volume.AnnBoundByController, "yes")
	}
	annotate(next, volume.AnnBindCompleted, "yes")
	now, err := b.claimAPI.Update(ctx, next)
	if err != nil {
		return nil, fmt.Errorf("bind claim %s/%s to volume %s: %w", c.Namespace, c.Name, name, err)
	}
	return now, nil
}

// setClaimStatus writes a claim's phase and what it has of its volume; v is nil for a claim without.
func (b *binder) setClaimStatus(ctx context.Context, c *corev1.PersistentVolumeClaim, phase corev1.PersistentVolumeClaimPhase, v *corev1.PersistentVolume) (*corev1.PersistentVolumeClaim, error) {
	next := c.DeepCopy()
	s := &next.Status
	s.Phase = phase
	if v == nil {
		s.AccessModes, s.Capacity, s.CurrentVolumeAttributesClassName = nil, nil, nil
	} else {
		s.AccessModes = v.Spec.AccessModes
		// Later sizes are the resizer's to report, and later classes of attributes.
		if c.Status.Phase != phase {
			s.Capacity = capacity(v)
		}
		if c.Status.Phase == corev1.ClaimPending {
			s.CurrentVolumeAttributesClassName = v.Spec.VolumeAttributesClassName
		}
	}
	if equality.Semantic.DeepEqual(c.Status, next.Status) {
		return c, nil
	}
	now, err := b.claimAPI.UpdateStatus(ctx, next)
	if err != nil {
		return nil, fmt.Errorf("set claim %s/%s %s: %w", c.Namespace, c.Name, phase, err)
	}
	return now, nil
}

// preResize is the annotation that keeps a volume's size from before an expansion that its file system has not followed yet.
const preResize = "volume.alpha.kubernetes.io/pre-resize-capacity"

func capacity(v *corev1.PersistentVolume) corev1.ResourceList {
	if text, ok := v.Annotations[preResize]; ok {
		if q, err := resource.ParseQuantity(text); err == nil {
			return corev1.ResourceList{corev1.ResourceStorage: q}
		}
	}
	return v.Spec.Capacity
}

func (b *binder) setPhase(ctx context.Context, v *corev1.PersistentVolume, phase corev1.PersistentVolumePhase, message string) (*corev1.PersistentVolume, error) {
	if v.Status.Phase == phase {
		return v, nil
	}
	next := v.DeepCopy()
	now := metav1.NewTime(b.in.Clock.Now())
	next.Status.Phase, next.Status.Message, next.Status.LastPhaseTransitionTime = phase, message, &now
	written, err := b.volumeAPI.UpdateStatus(ctx, next)
	if err != nil {
		return nil, fmt.Errorf("set volume %s %s: %w", v.Name, phase, err)
	}
	return written, nil
}

// liveVolume asks the server; nil if there is no such volume.
func (b *binder) liveVolume(ctx context.Context, name string) (*corev1.PersistentVolume, error) {
	v, err := b.volumeAPI.Get(ctx, "", name)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for volume %s: %w", name, err)
	}
	return v, nil
}
