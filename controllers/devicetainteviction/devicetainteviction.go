// Package devicetainteviction deletes pods that use devices with NoExecute taints which their claims do not tolerate, or no longer (KEP-5055): a toleration
// with tolerationSeconds holds for that long after the taint was added.
//
// A pass over a pod decides anew from what drivers publish at present, so that a taint that is taken back in time saves the pod. DeviceTaintRules, which put taints on devices
// without their drivers, are a feature that Kubernetes 1.36 has off.
package devicetainteviction

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	claims "k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/controllers/pod"
	"github.com/yare-project/yare/loop"
)

// Descriptor declares the loop.
func Descriptor() loop.Descriptor {
	return loop.Descriptor{
		Name: "device-taint-eviction",
		Reads: []loop.Access{{GroupResource: corev1.Resource("pods")}, {GroupResource: resourcev1.Resource("resourceclaims")},
			{GroupResource: resourcev1.Resource("resourceslices")}},
		Writes: []loop.Access{{GroupResource: corev1.Resource("pods"), Verbs: []string{"delete"}},
			{GroupResource: corev1.Resource("pods/status"), Verbs: []string{"patch"}}},
		Workers: 8,
		Start:   start,
	}
}

const (
	byPool = "pool" // slices, and claims with devices, by driver and pool
)

type controller struct {
	in     loop.Inputs
	pods   client.Cache[*corev1.Pod]
	claims client.Cache[*resourcev1.ResourceClaim]
	slices client.Cache[*resourcev1.ResourceSlice]
	api    client.API[*corev1.Pod]
}

func poolKey(driver, pool string) string { return driver + "/" + pool }

func start(in loop.Inputs) (loop.Reconcile, error) {
	c := &controller{in: in, pods: client.CacheOf[*corev1.Pod](in.Caches, client.CacheOptions{}), claims: client.CacheOf[*resourcev1.ResourceClaim](in.Caches, client.CacheOptions{}),
		slices: client.CacheOf[*resourcev1.ResourceSlice](in.Caches, client.CacheOptions{}), api: client.Of[*corev1.Pod](in.Transport)}
	c.slices.AddIndex(byPool, func(s *resourcev1.ResourceSlice) []string { return []string{poolKey(s.Spec.Driver, s.Spec.Pool.Name)} })
	c.claims.AddIndex(byPool, func(claim *resourcev1.ResourceClaim) []string {
		if claim.Status.Allocation == nil {
			return nil
		}
		seen, out := map[string]bool{}, []string(nil)
		for _, r := range claim.Status.Allocation.Devices.Results {
			if k := poolKey(r.Driver, r.Pool); !seen[k] {
				seen[k], out = true, append(out, k)
			}
		}
		return out
	})
	c.pods.AddIndex(pod.ByClaim, pod.ClaimsOf)
	c.slices.OnChange(func(old, new *resourcev1.ResourceSlice) {
		if !tainted(old) && !tainted(new) {
			return
		}
		s := client.Newest(old, new)
		for _, claim := range c.claims.By(byPool, poolKey(s.Spec.Driver, s.Spec.Pool.Name)) {
			c.claimChanged(claim)
		}
	})
	c.claims.OnChange(func(_, new *resourcev1.ResourceClaim) {
		if new != nil && new.Status.Allocation != nil {
			c.claimChanged(new)
		}
	})
	c.pods.OnChange(func(old, new *corev1.Pod) {
		if new != nil && new.DeletionTimestamp == nil && new.Spec.NodeName != "" && len(pod.Claims(new)) > 0 && (old == nil || old.Spec.NodeName == "") {
			in.Enqueue(loop.KeyOf(new))
		}
	})
	return c.reconcile, nil
}

func tainted(s *resourcev1.ResourceSlice) bool {
	if s == nil {
		return false
	}
	for i := range s.Spec.Devices {
		if len(s.Spec.Devices[i].Taints) > 0 {
			return true
		}
	}
	return false
}

func (c *controller) claimChanged(claim *resourcev1.ResourceClaim) {
	for _, p := range c.pods.By(pod.ByClaim, claim.Namespace+"/"+claim.Name) {
		c.in.Enqueue(loop.KeyOf(p))
	}
}

func (c *controller) reconcile(ctx context.Context, key loop.Key) (loop.Result, error) {
	p, ok := c.pods.Get(key.Namespace, key.Name)
	if !ok || p.DeletionTimestamp != nil || p.Spec.NodeName == "" || pod.Finished(p) {
		return loop.Result{}, nil
	}
	leaves, at := false, time.Time{}
	for _, name := range pod.Claims(p) {
		claim, ok := c.claims.Get(p.Namespace, name)
		if !ok || claim.Status.Allocation == nil || !claims.IsReservedForPod(p, claim, false) {
			continue
		}
		if must, when := decide(claim.Status.Allocation, c.taintsOf); must && (!leaves || when.Before(at)) {
			leaves, at = true, when
		}
	}
	if !leaves {
		return loop.Result{}, nil
	}
	if wait := at.Sub(c.in.Clock.Now()); wait > 0 {
		return loop.Result{After: wait}, nil
	}
	return loop.Result{}, c.evict(ctx, p)
}

// taintsOf are the taints of a device as its driver published them last.
func (c *controller) taintsOf(driver, pool, device string) []resourcev1.DeviceTaint {
	var taints []resourcev1.DeviceTaint
	generation := int64(-1)
	for _, s := range c.slices.By(byPool, poolKey(driver, pool)) {
		if s.Spec.Pool.Generation < generation {
			continue
		}
		if s.Spec.Pool.Generation > generation {
			generation, taints = s.Spec.Pool.Generation, nil
		}
		for i := range s.Spec.Devices {
			if s.Spec.Devices[i].Name == device {
				taints = s.Spec.Devices[i].Taints
			}
		}
	}
	return taints
}

// decide tells whether and when the users of an allocation have to leave its devices.
func decide(a *resourcev1.AllocationResult, taintsOf func(driver, pool, device string) []resourcev1.DeviceTaint) (leaves bool, at time.Time) {
	for i := range a.Devices.Results {
		r := &a.Devices.Results[i]
		for _, t := range taintsOf(r.Driver, r.Pool, r.Device) {
			if t.Effect != resourcev1.DeviceTaintEffectNoExecute {
				continue
			}
			holds, forever := tolerated(r.Tolerations, t)
			if forever {
				continue
			}
			when := time.Time{}
			if t.TimeAdded != nil {
				when = t.TimeAdded.Add(holds)
			}
			if !leaves || when.Before(at) {
				leaves, at = true, when
			}
		}
	}
	return leaves, at
}

// tolerated tells how long a taint is put up with: the shortest of the tolerations that match counts, and one without an end is for ever.
func tolerated(list []resourcev1.DeviceToleration, t resourcev1.DeviceTaint) (holds time.Duration, forever bool) {
	some := false
	for _, o := range list {
		if o.Effect != "" && o.Effect != resourcev1.DeviceTaintEffectNoExecute || !claims.ToleratesTaint(o, t) {
			continue
		}
		if o.TolerationSeconds == nil {
			return 0, true
		}
		if d := time.Duration(max(*o.TolerationSeconds, 0)) * time.Second; !some || d < holds {
			some, holds = true, d
		}
	}
	return holds, false
}

func (c *controller) evict(ctx context.Context, p *corev1.Pod) error {
	c.in.Event(p, corev1.EventTypeNormal, "DeviceTaintManagerEviction", "Marking for deletion")
	return pod.Evict(ctx, c.api, p, c.in.Clock.Now(), "DeletionByDeviceTaintManager", "Device Taint manager: deleting due to NoExecute taint")
}
