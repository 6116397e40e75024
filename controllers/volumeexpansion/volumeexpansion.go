// Package volumeexpansion says who is to grow a volume whose claim asks for more than it has. Volumes are grown by their drivers' external resizers; one of an in-tree plugin is
// given to the resizer of the CSI driver that took the plugin over, by the claim's annotation volume.kubernetes.io/storage-resizer (KEP-625), for the resizer can't tell by the
// volume that it is its own.
//
// It grows nothing itself, and whether a claim may ask for more is for admission to say.
package volumeexpansion

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/internal/csimigration"
	"github.com/yare-project/yare/loop"
)

// resizer is the annotation of a claim that names the driver which is to grow its volume.
const resizer = "volume.kubernetes.io/storage-resizer"

const byVolume = "volumeexpansion.volume" // claims by the volume that they name

// Descriptor declares the loop.
func Descriptor() loop.Descriptor {
	claims, volumes := corev1.Resource("persistentvolumeclaims"), corev1.Resource("persistentvolumes")
	return loop.Descriptor{
		Name:    "expand-controller",
		Reads:   []loop.Access{{GroupResource: claims}, {GroupResource: volumes}},
		Writes:  []loop.Access{{GroupResource: claims, Verbs: []string{"update"}}},
		Workers: 2,
		Start:   func(in loop.Inputs) (loop.Reconcile, error) { return start(in), nil },
	}
}

type expander struct {
	in      loop.Inputs
	claims  client.Cache[*corev1.PersistentVolumeClaim]
	volumes client.Cache[*corev1.PersistentVolume]
}

func start(in loop.Inputs) loop.Reconcile {
	e := &expander{in: in, claims: client.CacheOf[*corev1.PersistentVolumeClaim](in.Caches, client.CacheOptions{}), volumes: client.CacheOf[*corev1.PersistentVolume](in.Caches, client.CacheOptions{})}
	e.claims.AddIndex(byVolume, func(c *corev1.PersistentVolumeClaim) []string { return []string{c.Spec.VolumeName} })
	e.claims.OnChange(func(old, new *corev1.PersistentVolumeClaim) {
		if new != nil && grows(new) && (old == nil || !grows(old) || size(old.Spec.Resources.Requests) != size(new.Spec.Resources.Requests)) {
			in.Enqueue(loop.KeyOf(new))
		}
	})
	e.volumes.OnChange(func(old, new *corev1.PersistentVolume) {
		if old != nil || new == nil {
			return
		}
		for _, c := range e.claims.By(byVolume, new.Name) { // which the claims' cache showed first
			in.Enqueue(loop.KeyOf(c))
		}
	})
	return e.reconcile
}

func size(list corev1.ResourceList) int64 {
	q := list[corev1.ResourceStorage]
	return q.Value()
}

// grows tells whether a bound claim asks for more than it has.
func grows(c *corev1.PersistentVolumeClaim) bool {
	return c.Spec.VolumeName != "" && c.Status.Phase == corev1.ClaimBound && size(c.Spec.Resources.Requests) > size(c.Status.Capacity)
}

func (e *expander) reconcile(ctx context.Context, key loop.Key) (loop.Result, error) {
	c, ok := e.claims.Get(key.Namespace, key.Name)
	if !ok || !grows(c) {
		return loop.Result{}, nil
	}
	v, ok := e.volumes.Get("", c.Spec.VolumeName)
	if !ok || v.Spec.ClaimRef == nil || v.Spec.ClaimRef.UID != c.UID {
		return loop.Result{}, nil
	}
	plugin := csimigration.PluginOf(v)
	if plugin == "" {
		kind, message := corev1.EventTypeNormal, "waiting for an external controller to expand this PVC"
		if v.Spec.CSI == nil {
			kind = corev1.EventTypeWarning
			message += "; volumes of this sort have no CSI driver that could"
		}
		e.in.Event(c, kind, "ExternalExpanding", message)
		return loop.Result{}, nil
	}
	e.in.Event(c, corev1.EventTypeNormal, "ExternalExpanding", fmt.Sprintf("CSI migration enabled for %s; waiting for external resizer to expand the pvc", plugin))
	driver := csimigration.Driver(plugin)
	if c.Annotations[resizer] == driver {
		return loop.Result{}, nil
	}
	next := c.DeepCopy()
	if next.Annotations == nil {
		next.Annotations = map[string]string{}
	}
	next.Annotations[resizer] = driver
	if _, err := client.Of[*corev1.PersistentVolumeClaim](e.in.Transport).Update(ctx, next); err != nil && !apierrors.IsNotFound(err) {
		return loop.Result{}, fmt.Errorf("name the resizer of claim %s/%s: %w", c.Namespace, c.Name, err)
	}
	return loop.Result{}, nil
}
