// Package volumeprotection lets claims, volumes and volume attributes classes go, once they are deleted and nobody uses them: it takes off the finalizer that
// admission put on them.
//
// A claim is used as long as a pod that has a node names it, finished or not; a volume as long as it is bound; a class as long as a claim or volume names it.
// Before a claim goes, the server itself is asked for its pods: a cache may not show the newest yet.
package volumeprotection

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/loop"
)

const (
	claimFinalizer  = "kubernetes.io/pvc-protection"
	volumeFinalizer = "kubernetes.io/pv-protection"
	classFinalizer  = "kubernetes.io/vac-protection"
	byClaim         = "volumeprotection.claim" // pods by the claims that they name
	byClass         = "volumeprotection.class" // claims and volumes by their attributes classes
	ofClasses       = "*"                      // the namespace of keys of classes, which is no name; keys of volumes have none
)

// Descriptor declares the loop.
func Descriptor() loop.Descriptor {
	claims, volumes, classes := corev1.Resource("persistentvolumeclaims"), corev1.Resource("persistentvolumes"), storagev1.Resource("volumeattributesclasses")
	update := []string{"update"}
	return loop.Descriptor{
		Name:    "volume-protection-controller",
		Reads:   []loop.Access{{GroupResource: corev1.Resource("pods")}, {GroupResource: claims}, {GroupResource: volumes}, {GroupResource: classes}},
		Writes:  []loop.Access{{GroupResource: claims, Verbs: update}, {GroupResource: volumes, Verbs: update}, {GroupResource: classes, Verbs: update}},
		Workers: 4,
		Start:   func(in loop.Inputs) (loop.Reconcile, error) { return start(in), nil },
	}
}

type protection struct {
	in      loop.Inputs
	pods    client.Cache[*corev1.Pod]
	claims  client.Cache[*corev1.PersistentVolumeClaim]
	volumes client.Cache[*corev1.PersistentVolume]
	classes client.Cache[*storagev1.VolumeAttributesClass]
}

func start(in loop.Inputs) loop.Reconcile {
	p := &protection{in: in,
		pods:    client.CacheOf[*corev1.Pod](in.Caches, client.CacheOptions{}),
		claims:  client.CacheOf[*corev1.PersistentVolumeClaim](in.Caches, client.CacheOptions{}),
		volumes: client.CacheOf[*corev1.PersistentVolume](in.Caches, client.CacheOptions{}),
		classes: client.CacheOf[*storagev1.VolumeAttributesClass](in.Caches, client.CacheOptions{}),
	}
	p.pods.AddIndex(byClaim, func(pod *corev1.Pod) []string { return claimsOf(pod) })
	p.claims.AddIndex(byClass, classesOfClaim)
	p.volumes.AddIndex(byClass, classesOfVolume)
	p.pods.OnChange(func(old, new *corev1.Pod) {
		if new == nil {
			for _, name := range claimsOf(old) {
				namespace, name, _ := strings.Cut(name, "/")
				in.Enqueue(loop.Key{Namespace: namespace, Name: name})
			}
		}
	})
	p.claims.OnChange(func(old, new *corev1.PersistentVolumeClaim) {
		if new != nil {
			in.Enqueue(loop.KeyOf(new))
		}
		if old != nil {
			p.wakeClasses(classesOfClaim(old))
		}
	})
	p.volumes.OnChange(func(old, new *corev1.PersistentVolume) {
		if new != nil {
			in.Enqueue(loop.KeyOf(new))
		}
		if old != nil {
			p.wakeClasses(classesOfVolume(old))
		}
	})
	p.classes.OnChange(func(_, new *storagev1.VolumeAttributesClass) {
		if new != nil {
			in.Enqueue(loop.Key{Namespace: ofClasses, Name: new.Name})
		}
	})
	return p.reconcile
}

// claimsOf are the claims that a pod names, as namespace/name; those that are made for it among them.
func claimsOf(pod *corev1.Pod) (out []string) {
	for _, v := range pod.Spec.Volumes {
		switch {
		case v.PersistentVolumeClaim != nil:
			out = append(out, pod.Namespace+"/"+v.PersistentVolumeClaim.ClaimName)
		case v.Ephemeral != nil:
			out = append(out, pod.Namespace+"/"+pod.Name+"-"+v.Name)
		}
	}
	return out
}

func classesOfClaim(c *corev1.PersistentVolumeClaim) (out []string) {
	for _, name := range []*string{c.Spec.VolumeAttributesClassName, c.Status.CurrentVolumeAttributesClassName} {
		if name != nil && *name != "" {
			out = append(out, *name)
		}
	}
	if m := c.Status.ModifyVolumeStatus; m != nil && m.TargetVolumeAttributesClassName != "" {
		out = append(out, m.TargetVolumeAttributesClassName)
	}
	return out
}

func classesOfVolume(v *corev1.PersistentVolume) []string {
	if name := v.Spec.VolumeAttributesClassName; name != nil && *name != "" {
		return []string{*name}
	}
	return nil
}

func (p *protection) wakeClasses(names []string) {
	for _, name := range names {
		p.in.Enqueue(loop.Key{Namespace: ofClasses, Name: name})
	}
}

func (p *protection) reconcile(ctx context.Context, key loop.Key) (loop.Result, error) {
	switch key.Namespace {
	case "":
		v, ok := p.volumes.Get("", key.Name)
		if !ok {
			return loop.Result{}, nil
		}
		return loop.Result{}, settle(ctx, p, v, volumeFinalizer, func() (bool, error) { return v.Status.Phase == corev1.VolumeBound, nil })
	case ofClasses:
		c, ok := p.classes.Get("", key.Name)
		if !ok {
			return loop.Result{}, nil
		}
		return loop.Result{}, settle(ctx, p, c, classFinalizer, func() (bool, error) {
			return len(p.claims.By(byClass, c.Name)) > 0 || len(p.volumes.By(byClass, c.Name)) > 0, nil
		})
	}
	c, ok := p.claims.Get(key.Namespace, key.Name)
	if !ok {
		return loop.Result{}, nil
	}
	return loop.Result{}, settle(ctx, p, c, claimFinalizer, func() (bool, error) { return p.used(ctx, c) })
}

// settle takes the finalizer off an object that is deleted and not used, and puts it on one that was made without.
func settle[T client.Object](ctx context.Context, p *protection, obj T, finalizer string, used func() (bool, error)) error {
	has, deleted := slices.Contains(obj.GetFinalizers(), finalizer), obj.GetDeletionTimestamp() != nil
	if has != deleted {
		return nil
	}
	next := obj.DeepCopyObject().(T)
	if deleted {
		if inUse, err := used(); err != nil || inUse {
			return err
		}
		next.SetFinalizers(slices.DeleteFunc(slices.Clone(obj.GetFinalizers()), func(f string) bool { return f == finalizer }))
	} else {
		next.SetFinalizers(append(slices.Clone(obj.GetFinalizers()), finalizer))
	}
	if _, err := client.Of[T](p.in.Transport).Update(ctx, next); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("set the finalizers of %s: %w", obj.GetName(), err)
	}
	return nil
}

// used tells whether a pod that has a node names a claim.
func (p *protection) used(ctx context.Context, c *corev1.PersistentVolumeClaim) (bool, error) {
	uses := func(pod *corev1.Pod) bool { return uses(pod, c) }
	if slices.ContainsFunc(p.pods.By(byClaim, c.Namespace+"/"+c.Name), uses) {
		return true, nil
	}
	live, err := client.Of[*corev1.Pod](p.in.Transport).List(ctx, c.Namespace, metav1.ListOptions{})
	if err != nil {
		return false, fmt.Errorf("list the pods that may use claim %s: %w", c.Name, err)
	}
	return slices.ContainsFunc(live, uses), nil
}

func uses(pod *corev1.Pod, c *corev1.PersistentVolumeClaim) bool {
	if pod.Spec.NodeName == "" {
		return false // no node will start it any more: the claim is deleted
	}
	return slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		if v.PersistentVolumeClaim != nil {
			return v.PersistentVolumeClaim.ClaimName == c.Name
		}
		return v.Ephemeral != nil && pod.Name+"-"+v.Name == c.Name && metav1.IsControlledBy(c, pod)
	})
}
