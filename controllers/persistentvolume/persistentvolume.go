// Package persistentvolume brings claims and volumes together, and reclaims volumes whose claims are gone.
//
// A binding is two pointers: the volume's spec.claimRef, written first, and the claim's spec.volumeName. Each pass over a claim or a volume looks at both
// and does the next step, so that a binding which was interrupted anywhere is finished or rolled back. Who loses a race for a volume looks again. A volume
// that holds a claim's uid is never given to another claim.
//
// A claim whose class waits for its first consumer is left to the scheduler, which reserves a volume for it or names a node. Volumes are made by external
// provisioners only: the claim is annotated for the one that its class names, or for the CSI driver that took over the in-tree plugin which its class names.
// Volumes are deleted by the provisioner that made them, or by their CSI driver; one of neither is not deleted but marked Failed, and says why. What an in-tree
// plugin made in times gone by is marked for the driver that took it over.
package persistentvolume

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/component-helpers/storage/volume"

	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/loop"
)

// Descriptor declares the loop.
func Descriptor() loop.Descriptor {
	claims, volumes := corev1.Resource("persistentvolumeclaims"), corev1.Resource("persistentvolumes")
	update := []string{"update"}
	return loop.Descriptor{
		Name: "persistent-volume-binder",
		Reads: []loop.Access{{GroupResource: claims}, {GroupResource: volumes}, {GroupResource: corev1.Resource("pods")},
			{GroupResource: storagev1.Resource("storageclasses")}},
		Writes: []loop.Access{{GroupResource: claims, Verbs: update}, {GroupResource: corev1.Resource("persistentvolumeclaims/status"), Verbs: update},
			{GroupResource: volumes, Verbs: update}, {GroupResource: corev1.Resource("persistentvolumes/status"), Verbs: update}},
		Workers: 4,
		Start:   func(in loop.Inputs) (loop.Reconcile, error) { return start(in), nil },
	}
}

type binder struct {
	in        loop.Inputs
	claims    client.Cache[*corev1.PersistentVolumeClaim]
	volumes   client.Cache[*corev1.PersistentVolume]
	classes   client.Cache[*storagev1.StorageClass]
	pods      client.Cache[*corev1.Pod]
	claimAPI  client.API[*corev1.PersistentVolumeClaim]
	volumeAPI client.API[*corev1.PersistentVolume]
}

const (
	byVolume  = "persistentvolume.volume"  // claims by the volume that they name
	byWaiting = "persistentvolume.waiting" // claims that are not bound, by class
	byHolder  = "persistentvolume.holder"  // volumes by the claim that they are for, namespace/name
	byFree    = "persistentvolume.free"    // volumes that are for nobody, by class
	byUse     = "persistentvolume.use"     // pods that have no node, by the claims that they name
)

func start(in loop.Inputs) loop.Reconcile {
	b := &binder{in: in,
		claims:    client.CacheOf[*corev1.PersistentVolumeClaim](in.Caches, client.CacheOptions{}),
		volumes:   client.CacheOf[*corev1.PersistentVolume](in.Caches, client.CacheOptions{}),
		classes:   client.CacheOf[*storagev1.StorageClass](in.Caches, client.CacheOptions{}),
		pods:      client.CacheOf[*corev1.Pod](in.Caches, client.CacheOptions{}),
		claimAPI:  client.Of[*corev1.PersistentVolumeClaim](in.Transport),
		volumeAPI: client.Of[*corev1.PersistentVolume](in.Transport),
	}
	b.index()
	b.claims.OnChange(b.claimChanged)
	b.volumes.OnChange(b.volumeChanged)
	b.classes.OnChange(func(old, new *storagev1.StorageClass) {
		class := client.Newest(old, new)
		b.wakeWaiting(class.Name)
		if isDefault(class) {
			b.wakeWaiting("")
		}
	})
	b.pods.OnChange(func(old, new *corev1.Pod) {
		if old == nil && new.Spec.NodeName == "" {
			for _, name := range claimsOf(new) {
				if c, ok := b.claims.Get(new.Namespace, name); ok && !completed(c) {
					in.Enqueue(loop.KeyOf(c))
				}
			}
		}
	})
	return b.reconcile
}

func (b *binder) index() {
	b.claims.AddIndex(byVolume, func(c *corev1.PersistentVolumeClaim) []string { return []string{c.Spec.VolumeName} })
	b.claims.AddIndex(byWaiting, func(c *corev1.PersistentVolumeClaim) []string {
		if completed(c) {
			return nil
		}
		return []string{volume.GetPersistentVolumeClaimClass(c)}
	})
	b.volumes.AddIndex(byHolder, func(v *corev1.PersistentVolume) []string {
		if v.Spec.ClaimRef == nil {
			return nil
		}
		return []string{v.Spec.ClaimRef.Namespace + "/" + v.Spec.ClaimRef.Name}
	})
	b.volumes.AddIndex(byFree, func(v *corev1.PersistentVolume) []string {
		if v.Spec.ClaimRef != nil {
			return nil
		}
		return []string{volume.GetPersistentVolumeClass(v)}
	})
	b.pods.AddIndex(byUse, func(p *corev1.Pod) []string {
		var out []string
		for _, name := range claimsOf(p) {
			if p.Spec.NodeName == "" {
				out = append(out, p.Namespace+"/"+name)
			}
		}
		return out
	})
}

func claimsOf(p *corev1.Pod) (out []string) {
	for _, v := range p.Spec.Volumes {
		switch {
		case v.PersistentVolumeClaim != nil:
			out = append(out, v.PersistentVolumeClaim.ClaimName)
		case v.Ephemeral != nil:
			out = append(out, p.Name+"-"+v.Name)
		}
	}
	return out
}

func (b *binder) claimChanged(old, new *corev1.PersistentVolumeClaim) {
	c := client.Newest(old, new)
	if new != nil {
		b.in.Enqueue(loop.KeyOf(c))
	}
	if c.Spec.VolumeName != "" {
		b.in.Enqueue(loop.Key{Name: c.Spec.VolumeName})
	}
	for _, v := range b.volumes.By(byHolder, c.Namespace+"/"+c.Name) {
		b.in.Enqueue(loop.KeyOf(v))
	}
}

func (b *binder) volumeChanged(old, new *corev1.PersistentVolume) {
	v := client.Newest(old, new)
	if new != nil {
		b.in.Enqueue(loop.KeyOf(v))
	}
	for _, c := range b.claims.By(byVolume, v.Name) {
		b.in.Enqueue(loop.KeyOf(c))
	}
	if ref := v.Spec.ClaimRef; ref != nil {
		b.in.Enqueue(loop.Key{Namespace: ref.Namespace, Name: ref.Name})
		return
	}
	if new != nil && new.Status.Phase == corev1.VolumeAvailable {
		b.wakeWaiting(volume.GetPersistentVolumeClass(new))
	}
}

func (b *binder) wakeWaiting(class string) {
	for _, c := range b.claims.By(byWaiting, class) {
		b.in.Enqueue(loop.KeyOf(c))
	}
}

// reconcile works on a claim, or on a volume, whose key has no namespace.
func (b *binder) reconcile(ctx context.Context, key loop.Key) (loop.Result, error) {
	if key.Namespace == "" {
		v, ok := b.volumes.Get("", key.Name)
		if !ok {
			return loop.Result{}, nil
		}
		v, err := b.markVolume(ctx, v)
		if err != nil {
			return b.again(key, err)
		}
		return b.again(key, b.syncVolume(ctx, v))
	}
	c, ok := b.claims.Get(key.Namespace, key.Name)
	if !ok {
		return loop.Result{}, nil
	}
	c, err := b.markClaim(ctx, c)
	if err != nil {
		return b.again(key, err)
	}
	if completed(c) {
		return b.again(key, b.syncBound(ctx, c))
	}
	return b.again(key, b.syncUnbound(ctx, c))
}
