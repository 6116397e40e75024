// Package ephemeralvolume makes the claims of generic ephemeral volumes (KEP-1698): a pod's volume with a volumeClaimTemplate gets a PersistentVolumeClaim of the pod's own, named
// POD-VOLUME, which goes with the pod by its owner reference.
//
// A claim that is deleted while its pod needs it is made again. A claim of that name which belongs to somebody else is left alone, and the pod's user is told; once it is gone the
// pod gets its own. A pod that is being deleted, or has ended, gets none.
package ephemeralvolume

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/storage/ephemeral"

	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/loop"
)

// byClaim finds pods by the claims of their ephemeral volumes, as namespace/name.
const byClaim = "ephemeralvolume.claim"

// Descriptor declares the loop.
func Descriptor() loop.Descriptor {
	claims := corev1.Resource("persistentvolumeclaims")
	return loop.Descriptor{
		Name:  "ephemeral-volume-controller",
		Reads: []loop.Access{{GroupResource: corev1.Resource("pods")}, {GroupResource: claims}},
		Writes: []loop.Access{{GroupResource: claims, Verbs: []string{"create"}},
			{GroupResource: corev1.Resource("pods/finalizers"), Verbs: []string{"update"}}}, // to own what blocks a pod's deletion
		Workers: 4,
		Start:   func(in loop.Inputs) (loop.Reconcile, error) { return start(in), nil },
	}
}

type controller struct {
	in     loop.Inputs
	pods   client.Cache[*corev1.Pod]
	claims client.Cache[*corev1.PersistentVolumeClaim]
	api    client.API[*corev1.PersistentVolumeClaim]
}

func start(in loop.Inputs) loop.Reconcile {
	c := &controller{in: in, pods: client.CacheOf[*corev1.Pod](in.Caches, client.CacheOptions{}), claims: client.CacheOf[*corev1.PersistentVolumeClaim](in.Caches, client.CacheOptions{}),
		api: client.Of[*corev1.PersistentVolumeClaim](in.Transport)}
	c.pods.AddIndex(byClaim, func(p *corev1.Pod) (names []string) {
		for i := range p.Spec.Volumes {
			if v := &p.Spec.Volumes[i]; v.Ephemeral != nil {
				names = append(names, p.Namespace+"/"+ephemeral.VolumeClaimName(p, v))
			}
		}
		return names
	})
	c.pods.OnChange(func(old, new *corev1.Pod) {
		if new != nil && (old == nil || old.UID != new.UID) && wanting(new) {
			in.Enqueue(loop.KeyOf(new))
		}
	})
	c.claims.OnChange(func(old, new *corev1.PersistentVolumeClaim) {
		if old == nil || new != nil && new.UID == old.UID {
			return
		}
		for _, p := range c.pods.By(byClaim, old.Namespace+"/"+old.Name) {
			if wanting(p) {
				in.Enqueue(loop.KeyOf(p))
			}
		}
	})
	return c.reconcile
}

// wanting tells whether a pod has ephemeral volumes that somebody may have to make.
func wanting(p *corev1.Pod) bool {
	if p.DeletionTimestamp != nil || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
		return false
	}
	for i := range p.Spec.Volumes {
		if p.Spec.Volumes[i].Ephemeral != nil {
			return true
		}
	}
	return false
}

func (c *controller) reconcile(ctx context.Context, key loop.Key) (loop.Result, error) {
	p, ok := c.pods.Get(key.Namespace, key.Name)
	if !ok || !wanting(p) {
		return loop.Result{}, nil
	}
	for i := range p.Spec.Volumes {
		v := &p.Spec.Volumes[i]
		if v.Ephemeral == nil || v.Ephemeral.VolumeClaimTemplate == nil {
			continue
		}
		retry, err := c.provide(ctx, p, v)
		if err != nil {
			c.in.Event(p, corev1.EventTypeWarning, "FailedBinding", fmt.Sprintf("ephemeral volume %s: %v", v.Name, err))
		}
		if retry {
			return loop.Result{}, fmt.Errorf("pod %s/%s, ephemeral volume %s: %w", p.Namespace, p.Name, v.Name, err)
		}
	}
	return loop.Result{}, nil
}

// provide sees to it that a volume has its claim. An error that is not to be retried ends with a change of the claim that is in the way.
func (c *controller) provide(ctx context.Context, p *corev1.Pod, v *corev1.Volume) (retry bool, err error) {
	name := ephemeral.VolumeClaimName(p, v)
	if have, ok := c.claims.Get(p.Namespace, name); ok {
		return false, ephemeral.VolumeIsForPod(p, have)
	}
	_, err = c.api.Create(ctx, claimOf(p, v, name))
	if apierrors.IsAlreadyExists(err) { // newer than the cache
		have, err := c.api.Get(ctx, p.Namespace, name)
		if err != nil {
			return true, fmt.Errorf("look for PVC %s: %w", name, err)
		}
		return false, ephemeral.VolumeIsForPod(p, have)
	}
	if err != nil {
		return true, fmt.Errorf("create PVC %s: %w", name, err)
	}
	return false, nil
}

// claimOf is the claim that a volume's template describes.
func claimOf(p *corev1.Pod, v *corev1.Volume, name string) *corev1.PersistentVolumeClaim {
	t := v.Ephemeral.VolumeClaimTemplate.DeepCopy()
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: name, Labels: t.Labels, Annotations: t.Annotations,
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(p, corev1.SchemeGroupVersion.WithKind("Pod"))}}, Spec: t.Spec}
}
