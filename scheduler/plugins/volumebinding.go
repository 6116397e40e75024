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
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/component-helpers/storage/volume"

	"github.com/yare-project/yare/internal/csimigration"
	"github.com/yare-project/yare/scheduler/framework"
)

// VolumeBinding is the plugin's name.
const VolumeBinding = "VolumeBinding"

// volumeBinding keeps pods from nodes that can't reach their volumes or have no storage left for them, and binds the claims whose class waits for the first
// consumer.
type volumeBinding struct {
	h       *framework.Handle
	timeout time.Duration

	disks    translations
	mu       sync.Mutex
	reserved map[string]string // volume to claim: decided, but perhaps not seen in the cache yet
}

var unboundNow = framework.Refuse(framework.Unresolvable, VolumeBinding, "pod has unbound immediate PersistentVolumeClaims")

// lack is a set of reasons why a node won't do.
type lack uint8

const (
	outOfReach lack = 1 << iota // a bound volume is elsewhere
	noVolume                    // no volume is free, and none can be made
	noSpace                     // no storage is left
	volumeGone                  // a bound volume does not exist
)

// lackStatus maps each set to its refusal, with the reasons in the order of the bits.
var lackStatus = func() (out [1 << 4]*framework.Status) {
	texts := []string{"node(s) didn't match PersistentVolume's node affinity", "node(s) didn't find available persistent volumes to bind",
		"node(s) did not have enough free storage", "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"}
	for set := 1; set < len(out); set++ {
		var reasons []string
		for bit, text := range texts {
			if set&(1<<bit) != 0 {
				reasons = append(reasons, text)
			}
		}
		out[set] = framework.Refuse(framework.Unresolvable, VolumeBinding, reasons...)
	}
	return out
}()

func newVolumeBinding(raw []byte, h *framework.Handle) (framework.Plugin, error) {
	var args struct {
		metav1.TypeMeta    `json:",inline"`
		BindTimeoutSeconds *int64       `json:"bindTimeoutSeconds,omitempty"`
		Shape              []shapePoint `json:"shape,omitempty"`
	}
	if err := decode(raw, VolumeBinding, &args); err != nil {
		return nil, err
	}
	if h.Volumes == nil {
		return nil, errors.New("plugin " + VolumeBinding + " needs Handle.Volumes")
	}
	p := &volumeBinding{h: h, timeout: 600 * time.Second, reserved: map[string]string{}}
	var errs field.ErrorList
	if s := args.BindTimeoutSeconds; s != nil {
		p.timeout = time.Duration(*s) * time.Second
		if *s < 0 {
			errs = append(errs, field.Invalid(field.NewPath("bindTimeoutSeconds"), *s, "invalid BindTimeoutSeconds, should not be a negative value"))
		}
	}
	if args.Shape != nil { // scoring by storage capacity is an alpha feature that is off in 1.36
		errs = append(errs, field.Invalid(field.NewPath("shape"), args.Shape, "unexpected field `shape`, remove it or turn on the feature gate StorageCapacityScoring"))
	}
	return p, invalid(VolumeBinding, errs)
}

func (*volumeBinding) Name() string                 { return VolumeBinding }
func (*volumeBinding) FilterScope() framework.Scope { return framework.OnCluster }

// podClaims sorts a pod's claims.
type podClaims struct {
	bound   []*corev1.PersistentVolumeClaim
	volumes []*corev1.PersistentVolume      // of bound claims; nil for one that does not exist
	waiting []*corev1.PersistentVolumeClaim // the smallest first, so that each gets the smallest volume that will do
	free    map[string][]*corev1.PersistentVolume
	plan    *bindingPlan // of the chosen node
}

// bindingPlan is what must be done so that the claims are bound on one node.
type bindingPlan struct {
	node      *corev1.Node
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
	unbound := false
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
			v, _ := p.h.Volumes.Volume(claim.Spec.VolumeName)
			s.bound, s.volumes = append(s.bound, claim), append(s.volumes, v)
		case claim.Spec.VolumeName == "" && p.waits(claim):
			s.waiting = append(s.waiting, claim)
		default:
			unbound = true
		}
	}
	if unbound {
		return unboundNow
	}
	slices.SortStableFunc(s.waiting, func(a, b *corev1.PersistentVolumeClaim) int {
		x, y := a.Spec.Resources.Requests[corev1.ResourceStorage], b.Spec.Resources.Requests[corev1.ResourceStorage]
		return x.Cmp(y)
	})
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
	_, lacks, err := p.plan(s, node)
	if err != nil {
		return framework.Fail(VolumeBinding, err)
	}
	bound, err := p.reach(s, node)
	if err != nil {
		return framework.Refuse(framework.Unresolvable, VolumeBinding, err.Error())
	}
	return lackStatus[lacks|bound]
}

// reach says what is wrong with the bound volumes on a node. The error says why a driver can't handle one.
func (p *volumeBinding) reach(s *podClaims, node *corev1.Node) (lack, error) {
	for _, v := range s.volumes {
		if v == nil {
			return volumeGone, nil
		}
		on, err := p.onNode(v, node)
		if err != nil {
			return 0, err
		}
		if volume.CheckNodeAffinity(on, node.Labels) != nil {
			return outOfReach, nil
		}
	}
	return 0, nil
}

// onNode is a volume as the node takes it: one of an in-tree plugin is the driver's where the node says that it has the driver for it. Elsewhere, and for plugins whose volumes
// the scheduler does not take for their drivers', its own labels say where it is.
func (p *volumeBinding) onNode(v *corev1.PersistentVolume, node *corev1.Node) (*corev1.PersistentVolume, error) {
	plugin := csimigration.PluginOf(v)
	if !csimigration.Counted(plugin) {
		return v, nil
	}
	if n, ok := p.h.Volumes.Node(node.Name); !ok || !csimigration.OnNode(n, plugin) {
		return v, nil
	}
	return p.disks.of(v)
}

const annSelectedNode = "volume.kubernetes.io/selected-node"

// plan finds a volume for each waiting claim on a node, or a class that can make one there.
func (p *volumeBinding) plan(s *podClaims, node *corev1.Node) (*bindingPlan, lack, error) {
	out := &bindingPlan{node: node}
	if len(s.waiting) == 0 {
		return out, 0, nil
	}
	taken := map[string]*corev1.PersistentVolume{}
	for _, claim := range s.waiting {
		if selected, ok := claim.Annotations[annSelectedNode]; ok {
			if selected != node.Name {
				return nil, noVolume, nil
			}
			out.provision = append(out.provision, claim)
			continue
		}
		v, err := volume.FindMatchingVolume(claim, p.available(s, claim), node, taken, true, true)
		switch {
		case err != nil:
			return nil, 0, err
		case v != nil:
			taken[v.Name] = v
			out.volumes, out.claims = append(out.volumes, v), append(out.claims, claim)
		default:
			out.provision = append(out.provision, claim)
		}
	}
	for _, claim := range out.provision {
		if lacks := p.provisions(claim, node); lacks != 0 {
			return nil, lacks, nil
		}
	}
	return out, 0, nil
}

// available are the volumes that a claim may get: free ones of its class, and those that are made for it. They are looked up once per decision.
func (p *volumeBinding) available(s *podClaims, claim *corev1.PersistentVolumeClaim) []*corev1.PersistentVolume {
	if list, known := s.free[claim.Name]; known {
		return list
	}
	if s.free == nil {
		s.free = map[string][]*corev1.PersistentVolume{}
	}
	s.free[claim.Name] = p.listFree(claim)
	return s.free[claim.Name]
}

func (p *volumeBinding) listFree(claim *corev1.PersistentVolumeClaim) []*corev1.PersistentVolume {
	p.mu.Lock()
	defer p.mu.Unlock()
	key, class := claim.Namespace+"/"+claim.Name, volume.GetPersistentVolumeClaimClass(claim)
	return slices.DeleteFunc(p.h.Volumes.List(), func(v *corev1.PersistentVolume) bool {
		if volume.GetPersistentVolumeClass(v) != class {
			return true
		}
		by, ok := p.reserved[v.Name]
		if ok && v.Spec.ClaimRef != nil { // the cache has caught up
			delete(p.reserved, v.Name)
			ok = false
		}
		return ok && by != key
	})
}

// provisions says what keeps a claim's class from making a volume on a node. A class that names an in-tree plugin is taken at its word: its topology is in the labels of
// nodes, not of the driver, and the driver publishes what room it has for classes that name it only.
func (p *volumeBinding) provisions(claim *corev1.PersistentVolumeClaim, node *corev1.Node) lack {
	class, ok := p.class(claim)
	if !ok || class.Provisioner == "" || class.Provisioner == "kubernetes.io/no-provisioner" {
		return noVolume
	}
	if len(class.AllowedTopologies) > 0 && !slices.ContainsFunc(class.AllowedTopologies, func(t corev1.TopologySelectorTerm) bool { return topologyMatches(t, node) }) {
		return noVolume
	}
	if !roomFor(p.h.Capacity, claim, class, node) {
		return noSpace
	}
	return 0
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
	s.free = nil // of several pods decided together, one may have taken what was free
	plan, lacks, err := p.plan(s, c.Nodes.Object[i])
	switch {
	case err != nil:
		return framework.Fail(VolumeBinding, err)
	case lacks != 0:
		return lackStatus[lacks]
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

// WillPreBind implements framework.PreBindTeller.
func (p *volumeBinding) WillPreBind(c *framework.Cycle) bool {
	s, ok := c.Get(VolumeBinding).(*podClaims)
	return ok && s.plan != nil
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
		err := p.h.Volumes.WaitBound(ctx, claim, selected)
		if err == nil {
			err = p.within(claim, s.plan.node)
		}
		if err != nil {
			return framework.Fail(VolumeBinding, fmt.Errorf("binding volumes: %w", err))
		}
	}
	return nil
}

// within tells of a volume that somebody made or took for a claim where the node does not reach it. The pod is decided on again, and then goes where the volume is.
func (p *volumeBinding) within(claim *corev1.PersistentVolumeClaim, node *corev1.Node) error {
	now, ok := p.h.Volumes.Claim(claim.Namespace, claim.Name)
	if !ok {
		return nil
	}
	v, ok := p.h.Volumes.Volume(now.Spec.VolumeName)
	if !ok {
		return nil // not heard of yet; the node will look again
	}
	on, err := p.onNode(v, node)
	if err == nil {
		err = volume.CheckNodeAffinity(on, node.Labels)
	}
	if err != nil {
		return fmt.Errorf("pv %q node affinity doesn't match node %q: %w", v.Name, node.Name, err)
	}
	return nil
}

// Events implements framework.HintPlugin.
func (*volumeBinding) Events() framework.EventKind {
	return framework.ClaimChanged | framework.VolumeChanged | framework.StorageClassChanged | framework.CapacityChanged | framework.NodeAdded | framework.NodeLabels |
		framework.CSINodeChanged | framework.SelfChanged
}

// Helps implements framework.HintPlugin. What a node says about its drivers matters to volumes that may be either the plugin's or the driver's.
func (p *volumeBinding) Helps(pod *framework.Pod, e *framework.Event) bool {
	if e.Kind&framework.CSINodeChanged == 0 {
		return concernsClaims(pod, e)
	}
	return slices.ContainsFunc(pod.Volumes, func(name string) bool {
		claim, ok := p.h.Volumes.Claim(pod.Object.Namespace, name)
		if !ok || claim.Spec.VolumeName == "" {
			return false
		}
		v, ok := p.h.Volumes.Volume(claim.Spec.VolumeName)
		return ok && csimigration.Counted(csimigration.PluginOf(v))
	})
}

// concernsClaims leaves out events about claims of other pods.
func concernsClaims(p *framework.Pod, e *framework.Event) bool {
	return e.Kind&framework.ClaimChanged == 0 || e.Namespace == p.Object.Namespace && slices.Contains(p.Volumes, e.Name)
}
