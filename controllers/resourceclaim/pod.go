package resourceclaim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	claims "k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/controllers/owned"
	"github.com/yare-project/yare/loop"
)

// pod makes the claims that a pod lacks and tells it their names.
func (c *controller) pod(ctx context.Context, key loop.Key, name string) (loop.Result, error) {
	p, ok := c.pods.Get(key.Namespace, name)
	if !ok {
		c.wrote.Forget(key)
		return loop.Result{}, nil
	}
	if p.DeletionTimestamp != nil || done(p) {
		return loop.Result{}, nil
	}
	if !c.wrote.Seen(key) {
		return loop.Result{After: owned.Recheck}, nil
	}
	var told []corev1.PodResourceClaimStatus
	for i := range p.Spec.ResourceClaims {
		pc := &p.Spec.ResourceClaims[i]
		made, err := c.provide(ctx, key, p, pc)
		if err != nil {
			c.in.Event(p, corev1.EventTypeWarning, "FailedResourceClaimCreation", fmt.Sprintf("PodResourceClaim %s: %v", pc.Name, err))
			return loop.Result{}, fmt.Errorf("PodResourceClaim %s: %w", pc.Name, err)
		}
		if made != nil {
			told = append(told, corev1.PodResourceClaimStatus{Name: pc.Name, ResourceClaimName: &made.Name})
		}
	}
	if err := c.tell(ctx, p, told); err != nil {
		return loop.Result{}, err
	}
	return loop.Result{}, c.reserve(ctx, key, p)
}

// provide finds or makes the claim of a template; nil means that there is nothing new to tell the pod.
func (c *controller) provide(ctx context.Context, key loop.Key, p *corev1.Pod, pc *corev1.PodResourceClaim) (*resourcev1.ResourceClaim, error) {
	name, mine, err := claims.Name(p, pc)
	switch {
	case errors.Is(err, claims.ErrClaimNotFound):
	case err != nil:
		return nil, err
	case name == nil || !mine:
		return nil, nil // none is needed, or it is the user's to make
	default:
		if claim, ok := c.claims.Get(p.Namespace, *name); ok && claims.IsForPod(p, claim, false) == nil {
			return nil, nil
		}
	}
	for _, claim := range c.claims.By(byOwner, string(p.UID)) {
		if claim.Namespace == p.Namespace && claim.Annotations[resourcev1.PodResourceClaimAnnotation] == pc.Name {
			return claim, nil
		}
	}
	template, ok := c.templates.Get(p.Namespace, *pc.ResourceClaimTemplateName)
	if !ok {
		return nil, fmt.Errorf("resource claim template %q not found", *pc.ResourceClaimTemplateName)
	}
	made, err := c.api.Create(ctx, fromTemplate(p, pc, template))
	if err != nil {
		return nil, fmt.Errorf("create ResourceClaim: %w", err)
	}
	c.wrote.Wrote(key, made)
	return made, nil
}

// longestPrefix leaves room for a hyphen and five random characters in a name of 63.
const longestPrefix = 57

func fromTemplate(p *corev1.Pod, pc *corev1.PodResourceClaim, t *resourcev1.ResourceClaimTemplate) *resourcev1.ResourceClaim {
	notes := maps.Clone(t.Spec.Annotations)
	if notes == nil {
		notes = map[string]string{}
	}
	notes[resourcev1.PodResourceClaimAnnotation] = pc.Name
	return &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, GenerateName: prefix(p.Name, pc.Name), Labels: t.Spec.Labels, Annotations: notes,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: p.Name, UID: p.UID, Controller: ptr.To(true)}}},
		Spec: *t.Spec.Spec.DeepCopy(),
	}
}

// prefix shortens both names alike where they are too long together.
func prefix(pod, claim string) string {
	whole := pod + "-" + claim + "-"
	if len(whole) <= longestPrefix {
		return whole
	}
	return pod[:len(pod)*longestPrefix/len(whole)] + "-" + claim[:len(claim)*longestPrefix/len(whole)]
}

func (c *controller) tell(ctx context.Context, p *corev1.Pod, told []corev1.PodResourceClaimStatus) error {
	if len(told) == 0 {
		return nil
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": p.UID}, "status": map[string]any{"resourceClaimStatuses": told}})
	if err != nil {
		return err
	}
	if _, err := c.podAPI.Patch(ctx, p.Namespace, p.Name, types.StrategicMergePatchType, body, "status"); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("tell the pod of its claims: %w", err)
	}
	return nil
}

// reserve puts a pod that has a node down as a consumer of claims that have devices: one that the scheduler placed is down already.
func (c *controller) reserve(ctx context.Context, key loop.Key, p *corev1.Pod) error {
	if p.Spec.NodeName == "" {
		return nil
	}
	for i := range p.Spec.ResourceClaims {
		name, mine, err := claims.Name(p, &p.Spec.ResourceClaims[i])
		if err != nil || name == nil {
			continue // the next change of the pod brings it
		}
		claim, ok := c.claims.Get(p.Namespace, *name)
		if !ok || mine && claims.IsForPod(p, claim, false) != nil || claim.Status.Allocation == nil || claims.IsReservedForPod(p, claim, false) {
			continue
		}
		next := claim.DeepCopy()
		next.Status.ReservedFor = append(next.Status.ReservedFor, resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: p.Name, UID: p.UID})
		written, err := c.api.UpdateStatus(ctx, next)
		if err != nil {
			return fmt.Errorf("reserve claim %s: %w", claim.Name, err)
		}
		c.wrote.Wrote(key, written)
	}
	return nil
}
