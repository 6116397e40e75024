// Package resourceclaim makes the ResourceClaims that pods ask for by template, and frees claims that nobody uses any more (KEP-4381).
//
// A pod gets one claim for each template that it names, made once whatever crashes meanwhile, and is told its name in status.resourceClaimStatuses. A consumer is
// taken off a claim once its pod has ended or is gone; a claim without consumers gives its devices back, and one that was made for a pod that has ended is
// deleted. A pod that was given a node without the scheduler is put down as a consumer of claims that have devices.
//
// A pass is over a pod or over a claim. It gives no claim devices: the scheduler does. Claims of pod groups are a feature that Kubernetes 1.36 has off.
package resourceclaim

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/controllers/owned"
	"github.com/yare-project/yare/controllers/pod"
	"github.com/yare-project/yare/loop"
)

// Descriptor declares the loop.
func Descriptor() loop.Descriptor {
	return loop.Descriptor{
		Name: "resource-claim",
		Reads: []loop.Access{{GroupResource: resourcev1.Resource("resourceclaims")}, {GroupResource: resourcev1.Resource("resourceclaimtemplates")},
			{GroupResource: corev1.Resource("pods")}},
		Writes: []loop.Access{
			{GroupResource: resourcev1.Resource("resourceclaims"), Verbs: []string{"create", "delete", "update"}},
			{GroupResource: resourcev1.Resource("resourceclaims/status"), Verbs: []string{"update"}},
			{GroupResource: resourcev1.Resource("resourceclaims/binding"), Verbs: []string{"update"}},
			{GroupResource: corev1.Resource("pods/status"), Verbs: []string{"patch"}},
			{GroupResource: corev1.Resource("pods/finalizers"), Verbs: []string{"update"}},
		},
		Workers: 10,
		Start:   start,
	}
}

const (
	byOwner    = "owner"    // claims, by the uid of their controller
	byTemplate = "template" // pods, by the templates that they name
)

type controller struct {
	in        loop.Inputs
	pods      client.Cache[*corev1.Pod]
	claims    client.Cache[*resourcev1.ResourceClaim]
	templates client.Cache[*resourcev1.ResourceClaimTemplate]
	api       client.API[*resourcev1.ResourceClaim]
	podAPI    client.API[*corev1.Pod]
	wrote     *owned.Writes[*resourcev1.ResourceClaim]
}

func start(in loop.Inputs) (loop.Reconcile, error) {
	c := &controller{in: in, pods: client.CacheOf[*corev1.Pod](in.Caches, client.CacheOptions{}), claims: client.CacheOf[*resourcev1.ResourceClaim](in.Caches, client.CacheOptions{}),
		templates: client.CacheOf[*resourcev1.ResourceClaimTemplate](in.Caches, client.CacheOptions{}), api: client.Of[*resourcev1.ResourceClaim](in.Transport),
		podAPI: client.Of[*corev1.Pod](in.Transport)}
	c.wrote = owned.NewWrites(c.claims)
	c.claims.AddIndex(byOwner, func(claim *resourcev1.ResourceClaim) []string {
		if o := metav1.GetControllerOfNoCopy(claim); o != nil {
			return []string{string(o.UID)}
		}
		return nil
	})
	c.pods.AddIndex(pod.ByClaim, pod.ClaimsOf)
	c.pods.AddIndex(byTemplate, func(p *corev1.Pod) []string {
		var out []string
		for i := range p.Spec.ResourceClaims {
			if t := p.Spec.ResourceClaims[i].ResourceClaimTemplateName; t != nil {
				out = append(out, p.Namespace+"/"+*t)
			}
		}
		return out
	})
	c.pods.OnChange(c.podChanged)
	c.claims.OnChange(c.claimChanged)
	c.templates.OnChange(func(old, new *resourcev1.ResourceClaimTemplate) {
		t := client.Newest(old, new)
		for _, p := range c.pods.By(byTemplate, t.Namespace+"/"+t.Name) {
			in.Enqueue(podKey(p))
		}
	})
	return c.reconcile, nil
}

// podKey is the key of a pass over a pod. A claim's name has no slash.
func podKey(p *corev1.Pod) loop.Key { return loop.Key{Namespace: p.Namespace, Name: "pod/" + p.Name} }

func (c *controller) podChanged(old, new *corev1.Pod) {
	for _, p := range []*corev1.Pod{old, new} {
		if p == nil || len(p.Spec.ResourceClaims) == 0 && p.Status.ExtendedResourceClaimStatus == nil {
			continue
		}
		if p != new || done(p) {
			for _, name := range pod.Claims(p) {
				c.in.Enqueue(loop.Key{Namespace: p.Namespace, Name: name})
			}
		}
		if p == new || new == nil {
			c.in.Enqueue(podKey(p))
		}
	}
}

func (c *controller) claimChanged(old, new *resourcev1.ResourceClaim) {
	claim := client.Newest(old, new)
	c.in.Enqueue(loop.KeyOf(claim))
	for _, p := range c.pods.By(pod.ByClaim, claim.Namespace+"/"+claim.Name) {
		c.in.Enqueue(podKey(p))
	}
	if o := metav1.GetControllerOfNoCopy(claim); o != nil && o.Kind == "Pod" {
		c.in.Enqueue(loop.Key{Namespace: claim.Namespace, Name: "pod/" + o.Name})
	}
}

// done tells whether a pod has no use for its claims any more.
func done(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed || p.DeletionTimestamp != nil && p.Spec.NodeName == ""
}

func (c *controller) reconcile(ctx context.Context, key loop.Key) (loop.Result, error) {
	if name, ok := strings.CutPrefix(key.Name, "pod/"); ok {
		return c.pod(ctx, key, name)
	}
	if !c.wrote.Seen(key) {
		return loop.Result{After: owned.Recheck}, nil
	}
	claim, ok := c.claims.Get(key.Namespace, key.Name)
	if !ok {
		c.wrote.Forget(key)
		return loop.Result{}, nil
	}
	return loop.Result{}, c.claim(ctx, key, claim)
}
