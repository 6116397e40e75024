package dra

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/scheduler/framework"
)

// conflicts is how often a claim is read and written anew when somebody else changed it.
const conflicts = 5

// PreBind writes what was set aside into the claims, reserves them for the pod, and waits until devices that must be got ready first are.
func (p *plugin) PreBind(ctx context.Context, c *framework.Cycle, node string) *framework.Status {
	s, ok := c.Get(Name).(*state)
	if !ok {
		return nil
	}
	pod := c.Pod.Object
	var bound []*resourcev1.ResourceClaim
	for _, pc := range s.claims {
		claim := pc.claim
		if !resourceclaim.IsReservedForPod(pod, claim, false) {
			var err error
			if claim, err = p.book.bind(ctx, claim, s.placedFor(claim), pod); err != nil {
				return framework.Fail(Name, err)
			}
		}
		bound = append(bound, claim)
	}
	for k := range s.placed {
		if s.placed[k].extended {
			claim, err := p.book.makeExtended(ctx, s, &s.placed[k], pod)
			if err != nil {
				return framework.Fail(Name, err)
			}
			bound = append(bound, claim)
		}
	}
	return p.awaitReady(ctx, pod, node, bound)
}

func (s *state) placedFor(claim *resourcev1.ResourceClaim) *resourcev1.AllocationResult {
	for _, p := range s.placed {
		if !p.extended && p.claim.UID == claim.UID {
			return p.allocation
		}
	}
	return nil
}

// bind writes an allocation, if there is one, and the pod into a claim.
func (b *Book) bind(ctx context.Context, claim *resourcev1.ResourceClaim, a *resourcev1.AllocationResult, pod *corev1.Pod) (*resourcev1.ResourceClaim, error) {
	api := client.Of[*resourcev1.ResourceClaim](b.config.Transport)
	uid := claim.UID
	defer b.alone(uid)()
	if known, ok := b.Claim(claim.Namespace, claim.Name); ok && known.UID == uid {
		claim = known // others may have been reserving it meanwhile
	}
	for try := 1; ; try++ {
		next, err := b.bindOnce(ctx, api, claim, a, pod)
		if err == nil {
			b.wrote(next)
			return next, nil
		}
		if !apierrors.IsConflict(err) || try == conflicts {
			return nil, fmt.Errorf("claim %s/%s: %w", claim.Namespace, claim.Name, err)
		}
		if claim, err = api.Get(ctx, claim.Namespace, claim.Name); err != nil {
			return nil, fmt.Errorf("reading claim after a conflict: %w", err)
		}
		if claim.UID != uid {
			return nil, fmt.Errorf("claim %s/%s was replaced by another of its name", claim.Namespace, claim.Name)
		}
	}
}

func (b *Book) bindOnce(ctx context.Context, api client.API[*resourcev1.ResourceClaim], claim *resourcev1.ResourceClaim, a *resourcev1.AllocationResult, pod *corev1.Pod) (*resourcev1.ResourceClaim, error) {
	if a != nil && claim.Status.Allocation != nil && equality.Semantic.DeepEqual(a.Devices, claim.Status.Allocation.Devices) {
		a = nil // a pod that shares them has written it
	}
	switch {
	case claim.DeletionTimestamp != nil:
		return nil, errors.New("it was deleted in the meantime")
	case a != nil && claim.Status.Allocation != nil:
		return nil, errors.New("it was allocated elsewhere in the meantime")
	case a == nil && claim.Status.Allocation == nil:
		return nil, errors.New("its devices were given back in the meantime")
	case resourceclaim.IsReservedForPod(pod, claim, false):
		return claim, nil
	}
	if a != nil && !slices.Contains(claim.Finalizers, resourcev1.Finalizer) {
		next := claim.DeepCopy()
		next.Finalizers = append(next.Finalizers, resourcev1.Finalizer)
		var err error
		if claim, err = api.Update(ctx, next); err != nil {
			return nil, fmt.Errorf("add finalizer: %w", err)
		}
	}
	next := claim.DeepCopy()
	if a != nil {
		next.Status.Allocation = a.DeepCopy()
		next.Status.Allocation.AllocationTimestamp = ptr.To(metav1.NewTime(b.config.Clock.Now()))
	}
	next.Status.ReservedFor = append(next.Status.ReservedFor, consumer(pod))
	next, err := api.UpdateStatus(ctx, next)
	if err != nil {
		return nil, fmt.Errorf("write allocation and reservation: %w", err)
	}
	return next, nil
}

func consumer(pod *corev1.Pod) resourcev1.ResourceClaimConsumerReference {
	return resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: pod.Name, UID: pod.UID}
}

// makeExtended makes the claim for a pod's extended resources, with its devices, and tells the pod of it.
func (b *Book) makeExtended(ctx context.Context, s *state, p *placement, pod *corev1.Pod) (*resourcev1.ResourceClaim, error) {
	claim := p.claim.DeepCopy()
	claim.UID = ""
	claim.Finalizers = []string{resourcev1.Finalizer}
	made, err := client.Of[*resourcev1.ResourceClaim](b.config.Transport).Create(ctx, claim)
	if err != nil {
		return nil, fmt.Errorf("create claim for extended resources: %w", err)
	}
	inMemory := p.claim.UID
	b.mu.Lock()
	s.extended.stale = made // from here on it must be removed if the pod is not bound
	b.mu.Unlock()
	bound, err := b.bind(ctx, made, p.allocation, pod)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	b.drop(inMemory) // the claim that was made says it now
	b.mu.Unlock()
	status := corev1.PodExtendedResourceClaimStatus{ResourceClaimName: bound.Name}
	for _, one := range s.extended.demands {
		if one.demand != nil && one.demand.claim == p.claim {
			status.RequestMappings = one.mappings
		}
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID}, "status": map[string]any{"extendedResourceClaimStatus": status}})
	if err != nil {
		return nil, err
	}
	if _, err := client.Of[*corev1.Pod](b.config.Transport).Patch(ctx, pod.Namespace, pod.Name, types.StrategicMergePatchType, body, "status"); err != nil {
		return nil, fmt.Errorf("tell the pod of its claim for extended resources: %w", err)
	}
	return bound, nil
}

// awaitReady waits for the conditions that devices have for binding.
func (p *plugin) awaitReady(ctx context.Context, pod *corev1.Pod, node string, claims []*resourcev1.ResourceClaim) *framework.Status {
	if !slices.ContainsFunc(claims, conditional) {
		return nil
	}
	p.book.config.Events(pod, corev1.EventTypeNormal, "BindingConditionsPending", "waiting for binding conditions for device on node "+node)
	timer := p.book.config.Clock.NewTimer(p.bindingTimeout)
	defer timer.Stop()
	for {
		changed := p.book.next()
		waiting := ""
		for _, c := range claims {
			now, ok := p.book.Claim(c.Namespace, c.Name)
			if !ok || now.UID != c.UID {
				return framework.Fail(Name, fmt.Errorf("claim %s is gone", c.Name))
			}
			ready, err := readyToBind(now)
			if err != nil {
				return framework.Fail(Name, err)
			}
			if !ready {
				waiting = c.Name
			}
		}
		if waiting == "" || p.book.config.Impatient != nil && p.book.config.Impatient() {
			return nil
		}
		select {
		case <-changed:
		case <-timer.C():
			return framework.Fail(Name, fmt.Errorf("device binding timeout: claim=%s", waiting))
		case <-ctx.Done():
			return framework.Fail(Name, fmt.Errorf("waiting for devices of claim %s: %w", waiting, ctx.Err()))
		}
	}
}

func conditional(c *resourcev1.ResourceClaim) bool {
	return c.Status.Allocation != nil && slices.ContainsFunc(c.Status.Allocation.Devices.Results, func(r resourcev1.DeviceRequestAllocationResult) bool { return len(r.BindingConditions) > 0 })
}

// readyToBind tells whether all devices of a claim meet their conditions; an error says which never will.
func readyToBind(c *resourcev1.ResourceClaim) (bool, error) {
	if !conditional(c) {
		return true, nil
	}
	ready := true
	for i := range c.Status.Allocation.Devices.Results {
		r := &c.Status.Allocation.Devices.Results[i]
		if len(r.BindingConditions) == 0 {
			continue
		}
		conditions := conditionsOf(c, r)
		for _, name := range r.BindingFailureConditions {
			if f := meta.FindStatusCondition(conditions, name); f != nil && f.Status == metav1.ConditionTrue {
				return false, fmt.Errorf("device binding failed: claim=%s, reason=%s, message=%q", c.Name, f.Reason, f.Message)
			}
		}
		for _, name := range r.BindingConditions {
			ready = ready && meta.IsStatusConditionTrue(conditions, name)
		}
	}
	return ready, nil
}

// conditionsOf is what a device's driver says of it.
func conditionsOf(c *resourcev1.ResourceClaim, r *resourcev1.DeviceRequestAllocationResult) []metav1.Condition {
	for _, d := range c.Status.Devices {
		if d.Driver == r.Driver && d.Pool == r.Pool && d.Device == r.Device && ptr.Deref(d.ShareID, "") == string(ptr.Deref(r.ShareID, "")) {
			return d.Conditions
		}
	}
	return nil
}

// Unmet lists the conditions that devices of a claim have yet to meet before a pod that uses them is bound, such as "attached of gpu.example.com/pool/gpu-0".
func Unmet(c *resourcev1.ResourceClaim) []string {
	if !conditional(c) {
		return nil
	}
	var out []string
	for i := range c.Status.Allocation.Devices.Results {
		r := &c.Status.Allocation.Devices.Results[i]
		for _, name := range r.BindingConditions {
			if !meta.IsStatusConditionTrue(conditionsOf(c, r), name) {
				out = append(out, fmt.Sprintf("%s of %s/%s/%s", name, r.Driver, r.Pool, r.Device))
			}
		}
	}
	return out
}

// overdue tells whether a claim has waited for its devices' conditions for too long.
func (p *plugin) overdue(c *resourcev1.ResourceClaim) bool {
	a := c.Status.Allocation
	return conditional(c) && a.AllocationTimestamp != nil && a.AllocationTimestamp.Add(p.bindingTimeout).Before(p.book.config.Clock.Now())
}

// Unreserve gives back what was set aside, and takes the pod off claims that were reserved for it.
func (p *plugin) Unreserve(c *framework.Cycle, _ string) {
	s, ok := c.Get(Name).(*state)
	if !ok {
		return
	}
	b, pod := p.book, c.Pod.Object
	b.mu.Lock()
	freed := false
	for _, placed := range s.placed {
		freed = b.leave(placed.claim.UID) || freed
	}
	s.placed = nil
	var reserved []*resourcev1.ResourceClaim
	for _, pc := range s.claims {
		if e := b.claims[keyOf(pc.claim)]; e != nil && e.claim.UID == pc.claim.UID && resourceclaim.IsReservedForPod(pod, e.claim, false) {
			reserved = append(reserved, e.claim)
		}
	}
	var made *resourcev1.ResourceClaim
	if s.extended != nil {
		made = s.extended.stale
	}
	b.mu.Unlock()
	if freed {
		b.config.Freed()
	}
	for _, claim := range reserved {
		b.release(claim, pod)
	}
	if made != nil {
		b.discard(made)
	}
}

// release takes a pod off a claim's consumers.
func (b *Book) release(claim *resourcev1.ResourceClaim, pod *corev1.Pod) {
	b.write("release claim", claim, func(ctx context.Context, api client.API[*resourcev1.ResourceClaim]) error {
		body := fmt.Appendf(nil, `{"metadata":{"uid":%q},"status":{"reservedFor":[{"$patch":"delete","uid":%q}]}}`, claim.UID, pod.UID)
		next, err := api.Patch(ctx, claim.Namespace, claim.Name, types.StrategicMergePatchType, body, "status")
		if err == nil {
			b.wrote(next)
		}
		return err
	})
}

// deallocate gives a claim's devices back, unless it changed meanwhile.
func (b *Book) deallocate(claim *resourcev1.ResourceClaim) {
	b.write("deallocate claim", claim, func(ctx context.Context, api client.API[*resourcev1.ResourceClaim]) error {
		next := claim.DeepCopy()
		next.Status.ReservedFor, next.Status.Allocation, next.Status.Devices = nil, nil, nil
		_, err := api.UpdateStatus(ctx, next)
		return err
	})
}

// discard deletes a claim that was made for extended resources.
func (b *Book) discard(claim *resourcev1.ResourceClaim) {
	b.write("delete claim", claim, func(ctx context.Context, api client.API[*resourcev1.ResourceClaim]) error {
		now, err := api.Get(ctx, claim.Namespace, claim.Name)
		if err != nil || now.UID != claim.UID {
			return err
		}
		next := now.DeepCopy()
		next.Finalizers = slices.DeleteFunc(next.Finalizers, func(f string) bool { return f == resourcev1.Finalizer })
		if len(next.Finalizers) < len(now.Finalizers) {
			if _, err := api.Update(ctx, next); err != nil {
				return err
			}
		}
		return api.Delete(ctx, claim.Namespace, claim.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &claim.UID}})
	})
}

func (b *Book) write(what string, claim *resourcev1.ResourceClaim, f func(context.Context, client.API[*resourcev1.ResourceClaim]) error) {
	if b.config.Transport == nil {
		return
	}
	b.config.Go(func() {
		err := f(b.config.Context(), client.Of[*resourcev1.ResourceClaim](b.config.Transport))
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			b.config.Log.Error(what, "claim", claim.Namespace+"/"+claim.Name, "error", err)
		}
	})
}
