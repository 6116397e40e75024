package plugins

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/storage/volume"

	"github.com/yare-project/yare/scheduler/framework"
)

// VolumeBinding is the plugin's name.
const VolumeBinding = "VolumeBinding"

// volumeBinding keeps pods from nodes that can't reach their volumes, and binds the claims whose class waits for the first consumer. How much storage a driver
// has left (CSIStorageCapacity) is not looked at: where it has too little, provisioning fails and the pod is tried again.
type volumeBinding struct {
	h       *framework.Handle
	timeout time.Duration

	mu       sync.Mutex
	reserved map[string]string // volume to claim: decided, but perhaps not seen in the cache yet
}

var (
	noVolume    = "node(s) didn't find available persistent volumes to bind"
	farVolume   = "node(s) didn't match PersistentVolume's node affinity"
	lostVolume  = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
	unboundNow  = framework.Refuse(framework.Unresolvable, VolumeBinding, "pod has unbound immediate PersistentVolumeClaims")
	cantBind    = framework.Refuse(framework.Unresolvable, VolumeBinding, noVolume)
	cantReach   = framework.Refuse(framework.Unresolvable, VolumeBinding, farVolume)
	volumesGone = framework.Refuse(framework.Unresolvable, VolumeBinding, lostVolume)
)

func newVolumeBinding(raw []byte, h *framework.Handle) (framework.Plugin, error) {
	var args struct {
		metav1.TypeMeta    `json:",inline"`
		BindTimeoutSeconds *int64 `json:"bindTimeoutSeconds,omitempty"`
	}
	if err := decode(raw, VolumeBinding, &args); err != nil {
		return nil, err
	}
	if h.Volumes == nil {
		return nil, errors.New("plugin " + VolumeBinding + " needs Handle.Volumes")
	}
	p := &volumeBinding{h: h, timeout: 600 * time.Second, reserved: map[string]string{}}
	if s := args.BindTimeoutSeconds; s != nil {
		if *s <= 0 {
			return nil, fmt.Errorf("arguments of plugin %s: bindTimeoutSeconds is %d; want more than 0", VolumeBinding, *s)
		}
		p.timeout = time.Duration(*s) * time.Second
	}
	return p, nil
}

func (*volumeBinding) Name() string                 { return VolumeBinding }
func (*volumeBinding) FilterScope() framework.Scope { return framework.OnCluster }

// podClaims sorts a pod's claims.
type podClaims struct {
	bound, waiting []*corev1.PersistentVolumeClaim
	plan           *bindingPlan // of the chosen node
}

// bindingPlan is what must be done so that the claims are bound on one node.
type bindingPlan struct {
	volumes   []*corev1.PersistentVolume // for claims[i]
	claims    []*corev1.PersistentVolumeClaim
	provision []*corev1.PersistentVolumeClaim
}

// PreFilter implements framework.PreFilterPlugin.
func (p *volumeBinding) PreFilter(c *framework.Cycle) *framework.Status {
	if len(c.Pod.Volumes) == 0 {
		return skipFilter
	}
	s := &podClaims{}
	pod := c.Pod.Object
	for k := range pod.Spec.Volumes {
		name := framework.ClaimOf(pod, &pod.Spec.Volumes[k])
		if name == "" {
			continue
		}
		claim, why := p.claim(pod, name, pod.Spec.Volumes[k].Ephemeral != nil)
		if why != "" {
			return framework.Refuse(framework.Unresolvable, VolumeBinding, why)
		}
		switch {
		case isBound(claim):
			s.bound = append(s.bound, claim)
		case claim.Spec.VolumeName == "" && p.waits(claim):
			s.waiting = append(s.waiting, claim)
		default:
			return unboundNow
		}
	}
	c.Put(VolumeBinding, s)
	return nil
}

// claim finds a claim that a pod may use, or says why it may not.
func (p *volumeBinding) claim(pod *corev1.Pod, name string, ephemeral bool) (*corev1.PersistentVolumeClaim, string) {
	claim, ok := p.h.Volumes.Claim(pod.Namespace, name)
	switch {
	case !ok && ephemeral:
		return nil, fmt.Sprintf("waiting for ephemeral volume controller to create the persistentvolumeclaim %q", name)
	case !ok:
		return nil, fmt.Sprintf("persistentvolumeclaim %q not found", name)
	case claim.Status.Phase == corev1.ClaimLost:
		return nil, fmt.Sprintf("persistentvolumeclaim %q bound to non-existent persistentvolume %q", name, claim.Spec.VolumeName)
	case claim.DeletionTimestamp != nil:
		return nil, fmt.Sprintf("persistentvolumeclaim %q is being deleted", name)
	case ephemeral && !metav1.IsControlledBy(claim, pod):
		return nil, fmt.Sprintf("PVC %s/%s was not created for pod %s/%s (pod is not owner)", claim.Namespace, claim.Name, pod.Namespace, pod.Name)
	}
	return claim, ""
}

func isBound(c *corev1.PersistentVolumeClaim) bool {
	_, completed := c.Annotations["pv.kubernetes.io/bind-completed"]
	return c.Spec.VolumeName != "" && (completed || c.Status.Phase == corev1.ClaimBound)
}

func (p *volumeBinding) class(c *corev1.PersistentVolumeClaim) (*storagev1.StorageClass, bool) {
	return p.h.Volumes.Class(volume.GetPersistentVolumeClaimClass(c))
}

// waits tells whether a claim is bound only when its first pod is placed.
func (p *volumeBinding) waits(c *corev1.PersistentVolumeClaim) bool {
	class, ok := p.class(c)
	return ok && class.VolumeBindingMode != nil && *class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer
}

// Filter implements framework.FilterPlugin.
func (p *volumeBinding) Filter(c *framework.Cycle, i int) *framework.Status {
	s, ok := c.Get(VolumeBinding).(*podClaims)
	if !ok {
		return nil
	}
	node := c.Nodes.Object[i]
	for _, claim := range s.bound {
		v, ok := p.h.Volumes.Volume(claim.Spec.VolumeName)
		if !ok {
			return volumesGone
		}
		if volume.CheckNodeAffinity(v, node.Labels) != nil {
			return cantReach
		}
	}
	_, refusal := p.plan(s, node)
	return refusal
}

const annSelectedNode = "volume.kubernetes.io/selected-node"

// plan finds a volume for each waiting claim on a node, or a class that can make one there.
func (p *volumeBinding) plan(s *podClaims, node *corev1.Node) (*bindingPlan, *framework.Status) {
	out := &bindingPlan{}
	if len(s.waiting) == 0 {
		return out, nil
	}
	taken := map[string]*corev1.PersistentVolume{}
	for _, claim := range s.waiting {
		if selected, ok := claim.Annotations[annSelectedNode]; ok {
			if selected != node.Name {
				return nil, cantBind
			}
			out.provision = append(out.provision, claim)
			continue
		}
		v, err := volume.FindMatchingVolume(claim, p.available(claim), node, taken, true, true)
		switch {
		case err != nil:
			return nil, framework.Fail(VolumeBinding, err)
		case v != nil:
			taken[v.Name] = v
			out.volumes, out.claims = append(out.volumes, v), append(out.claims, claim)
		default:
			out.provision = append(out.provision, claim)
		}
	}
	for _, claim := range out.provision {
		if !p.provisions(claim, node) {
			return nil, cantBind
		}
	}
	return out, nil
}

// available are the volumes that a claim may get: free ones, and those that are made for it.
func (p *volumeBinding) available(claim *corev1.PersistentVolumeClaim) []*corev1.PersistentVolume {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := claim.Namespace + "/" + claim.Name
	return slices.DeleteFunc(p.h.Volumes.List(), func(v *corev1.PersistentVolume) bool {
		by, ok := p.reserved[v.Name]
		if ok && v.Spec.ClaimRef != nil { // the cache has caught up
			delete(p.reserved, v.Name)
			ok = false
		}
		return ok && by != key
	})
}

func (p *volumeBinding) provisions(claim *corev1.PersistentVolumeClaim, node *corev1.Node) bool {
	class, ok := p.class(claim)
	if !ok || class.Provisioner == "" || class.Provisioner == "kubernetes.io/no-provisioner" {
		return false
	}
	for _, t := range class.AllowedTopologies {
		if topologyMatches(t, node) {
			return true
		}
	}
	return len(class.AllowedTopologies) == 0
}

func topologyMatches(t corev1.TopologySelectorTerm, node *corev1.Node) bool {
	for _, e := range t.MatchLabelExpressions {
		if v, ok := node.Labels[e.Key]; !ok || !slices.Contains(e.Values, v) {
			return false
		}
	}
	return len(t.MatchLabelExpressions) > 0
}

// Reserve implements framework.ReservePlugin.
func (p *volumeBinding) Reserve(c *framework.Cycle, node string) *framework.Status {
	s, ok := c.Get(VolumeBinding).(*podClaims)
	i, known := c.Nodes.Lookup(node)
	if !ok || !known || len(s.waiting) == 0 {
		return nil
	}
	plan, refusal := p.plan(s, c.Nodes.Object[i])
	if refusal != nil {
		return refusal
	}
	s.plan = plan
	p.mu.Lock()
	defer p.mu.Unlock()
	for k, v := range plan.volumes {
		p.reserved[v.Name] = plan.claims[k].Namespace + "/" + plan.claims[k].Name
	}
	return nil
}

// Unreserve implements framework.ReservePlugin.
func (p *volumeBinding) Unreserve(c *framework.Cycle, _ string) {
	s, ok := c.Get(VolumeBinding).(*podClaims)
	if !ok || s.plan == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, v := range s.plan.volumes {
		delete(p.reserved, v.Name)
	}
}

// PreBind writes the plan and waits until all claims are bound.
func (p *volumeBinding) PreBind(ctx context.Context, c *framework.Cycle, node string) *framework.Status {
	s, ok := c.Get(VolumeBinding).(*podClaims)
	if !ok || s.plan == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	for k, v := range s.plan.volumes {
		if err := p.h.Volumes.Bind(ctx, v, s.plan.claims[k]); err != nil {
			return framework.Fail(VolumeBinding, err)
		}
	}
	asked := map[string]*corev1.PersistentVolumeClaim{}
	for _, claim := range s.plan.provision {
		written, err := p.h.Volumes.Provision(ctx, claim, node)
		if err != nil {
			return framework.Fail(VolumeBinding, err)
		}
		asked[claim.Name] = written
	}
	for _, claim := range s.waiting {
		selected := ""
		if written := asked[claim.Name]; written != nil {
			claim, selected = written, node
		}
		if err := p.h.Volumes.WaitBound(ctx, claim, selected); err != nil {
			return framework.Fail(VolumeBinding, fmt.Errorf("binding volumes: %w", err))
		}
	}
	return nil
}

// Events implements framework.HintPlugin.
func (*volumeBinding) Events() framework.EventKind {
	return framework.ClaimChanged | framework.VolumeChanged | framework.StorageClassChanged | framework.NodeAdded | framework.NodeLabels | framework.SelfChanged
}

// Helps implements framework.HintPlugin.
func (*volumeBinding) Helps(p *framework.Pod, e *framework.Event) bool { return concernsClaims(p, e) }

// concernsClaims leaves out events about claims of other pods.
func concernsClaims(p *framework.Pod, e *framework.Event) bool {
	return e.Kind&framework.ClaimChanged == 0 || e.Namespace == p.Object.Namespace && slices.Contains(p.Volumes, e.Name)
}
