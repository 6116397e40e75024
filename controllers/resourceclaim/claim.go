package resourceclaim

import (
	"context"
	"fmt"
	"slices"

	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yare-project/yare/loop"
)

// claim takes consumers off that are no more, and gives back what nobody uses.
func (c *controller) claim(ctx context.Context, key loop.Key, claim *resourcev1.ResourceClaim) error {
	var left []resourcev1.ResourceClaimConsumerReference
	for _, r := range claim.Status.ReservedFor {
		gone, err := c.gone(ctx, claim.Namespace, r)
		if err != nil {
			return err
		}
		if !gone {
			left = append(left, r)
		}
	}
	ours := slices.Contains(claim.Finalizers, resourcev1.Finalizer)
	if len(left) < len(claim.Status.ReservedFor) || ours && len(left) == 0 && claim.DeletionTimestamp != nil {
		if err := c.release(ctx, key, claim, left); err != nil {
			return err
		}
	}
	if len(left) > 0 {
		return nil
	}
	return c.discard(ctx, claim)
}

// gone tells whether a consumer needs a claim no more. Only pods are known here; whoever else is a consumer takes itself off.
func (c *controller) gone(ctx context.Context, namespace string, r resourcev1.ResourceClaimConsumerReference) (bool, error) {
	if r.APIGroup != "" || r.Resource != "pods" {
		return false, nil
	}
	if p, ok := c.pods.Get(namespace, r.Name); ok && p.UID == r.UID {
		return done(p), nil
	}
	p, err := c.podAPI.Get(ctx, namespace, r.Name) // the cache may not have it yet
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("consumer of a claim: %w", err)
	}
	return p.UID != r.UID, nil
}

// release writes who is left, and if nobody is, takes the devices away and lets the claim go.
func (c *controller) release(ctx context.Context, key loop.Key, claim *resourcev1.ResourceClaim, left []resourcev1.ResourceClaimConsumerReference) error {
	next := claim.DeepCopy()
	ours := slices.Index(next.Finalizers, resourcev1.Finalizer)
	if next.Status.ReservedFor = left; len(left) == 0 && ours >= 0 {
		next.Status.Allocation, next.Status.Devices = nil, nil
	}
	var err error
	if len(left) < len(claim.Status.ReservedFor) || claim.Status.Allocation != nil {
		if next, err = c.api.UpdateStatus(ctx, next); err != nil {
			return ignoreGone(err, "release claim")
		}
		c.wrote.Wrote(key, next)
	}
	if ours < 0 || next.Status.Allocation != nil {
		return nil
	}
	next = next.DeepCopy()
	next.Finalizers = slices.DeleteFunc(next.Finalizers, func(f string) bool { return f == resourcev1.Finalizer })
	if next, err = c.api.Update(ctx, next); err != nil {
		return ignoreGone(err, "let go of claim")
	}
	if next.DeletionTimestamp == nil { // else it is gone, and no cache will show this state
		c.wrote.Wrote(key, next)
	}
	return nil
}

func ignoreGone(err error, what string) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

// discard deletes a claim that was made for a pod which has no use for it any more. If the pod is gone, the garbage collector does that.
func (c *controller) discard(ctx context.Context, claim *resourcev1.ResourceClaim) error {
	name, uid := owner(claim)
	if name == "" || claim.DeletionTimestamp != nil {
		return nil
	}
	p, ok := c.pods.Get(claim.Namespace, name)
	if !ok || p.UID == uid && !done(p) {
		return nil
	}
	err := c.api.Delete(ctx, claim.Namespace, claim.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &claim.UID}})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete unused generated claim %s: %w", claim.Name, err)
	}
	return nil
}

func owner(claim *resourcev1.ResourceClaim) (string, types.UID) {
	if o := metav1.GetControllerOfNoCopy(claim); o != nil && o.APIVersion == "v1" && o.Kind == "Pod" {
		return o.Name, o.UID
	}
	return "", ""
}
