package plugins

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/storage/volume"

	"github.com/yare-project/yare/internal/csimigration"
	"github.com/yare-project/yare/scheduler/framework"
)

// NodeVolumeLimits is the plugin's name.
const NodeVolumeLimits = "NodeVolumeLimits"

// volumeLimits keeps pods from nodes that would have more volumes of a CSI driver than the driver can attach there, as the node's CSINode says. What is
// attached still counts, whether or not a pod uses it. Volumes of in-tree plugins are those of the drivers that took them over.
type volumeLimits struct {
	h     *framework.Handle
	disks translations
}

var tooManyVolumes = framework.Refuse(framework.Unschedulable, NodeVolumeLimits, "node(s) exceed max volume count")

func (*volumeLimits) Name() string                 { return NodeVolumeLimits }
func (*volumeLimits) FilterScope() framework.Scope { return framework.OnCluster }

// attachable maps what a pod has attached to the driver that attaches it: volumes by handle, claims that have none yet by name.
type attachable map[string]string

func (p *volumeLimits) of(pod *framework.Pod, into attachable) {
	for k := range pod.Disks {
		if d := &pod.Disks[k]; d.Err == nil && csimigration.Counted(d.Plugin) {
			into[d.Driver+"/"+d.Handle] = d.Driver
		}
	}
	for _, name := range pod.Volumes {
		claim, ok := p.h.Volumes.Claim(pod.Object.Namespace, name)
		if !ok {
			continue
		}
		if driver, id := p.driver(claim); driver != "" {
			into[driver+"/"+id] = driver
		}
	}
}

func (p *volumeLimits) driver(claim *corev1.PersistentVolumeClaim) (driver, id string) {
	if v, ok := p.h.Volumes.Volume(claim.Spec.VolumeName); ok && claim.Spec.VolumeName != "" {
		return p.disks.handle(v)
	}
	name := volume.GetPersistentVolumeClaimClass(claim)
	class, ok := p.h.Volumes.Class(name)
	if !ok || name == "" {
		return "", ""
	}
	driver, id = class.Provisioner, "claim "+claim.Namespace+"/"+claim.Name
	if of := csimigration.Driver(driver); of != "" {
		if !csimigration.Counted(driver) {
			return "", ""
		}
		driver = of
	}
	return driver, id
}

func (p *volumeLimits) PreFilter(c *framework.Cycle) *framework.Status {
	if len(c.Pod.Volumes) == 0 && len(c.Pod.Disks) == 0 {
		return skipFilter
	}
	for k := range c.Pod.Disks {
		if d := &c.Pod.Disks[k]; d.Err != nil {
			return framework.Refuse(framework.Unresolvable, NodeVolumeLimits, d.Err.Error())
		}
	}
	wants := attachable{}
	if p.of(c.Pod, wants); len(wants) == 0 {
		return skipFilter
	}
	c.Put(NodeVolumeLimits, wants)
	return nil
}

func (p *volumeLimits) Filter(c *framework.Cycle, i int) *framework.Status {
	wants, _ := c.Get(NodeVolumeLimits).(attachable)
	limits := p.limits(c.Nodes.Name[i])
	if len(limits) == 0 {
		return nil
	}
	has := attachable{}
	for _, o := range c.Nodes.Pods[i] {
		p.of(o, has)
	}
	p.attached(c.Nodes.Name[i], has)
	count, more := map[string]int32{}, map[string]int32{}
	for _, driver := range has {
		count[driver]++
	}
	for id, driver := range wants {
		if _, shared := has[id]; !shared {
			more[driver]++
		}
	}
	for driver, k := range more {
		if limit, limited := limits[driver]; limited && count[driver]+k > limit {
			return tooManyVolumes
		}
	}
	return nil
}

// attached adds what is attached to a node.
func (p *volumeLimits) attached(node string, into attachable) {
	if p.h.Capacity == nil {
		return
	}
	for _, a := range p.h.Capacity.Attachments(node) {
		if a.Spec.Attacher == "" {
			continue
		}
		if s := a.Spec.Source.InlineVolumeSpec; s != nil && s.CSI != nil {
			into[a.Spec.Attacher+"/"+s.CSI.VolumeHandle] = a.Spec.Attacher
		}
		if name := a.Spec.Source.PersistentVolumeName; name != nil {
			if v, ok := p.h.Volumes.Volume(*name); ok {
				if _, id := p.disks.handle(v); id != "" {
					into[a.Spec.Attacher+"/"+id] = a.Spec.Attacher
				}
			}
		}
	}
}

// limits are what the drivers on a node can attach.
func (p *volumeLimits) limits(node string) map[string]int32 {
	n, ok := p.h.Volumes.Node(node)
	if !ok {
		return nil
	}
	out := map[string]int32{}
	for _, d := range n.Spec.Drivers {
		if d.Allocatable != nil && d.Allocatable.Count != nil {
			out[d.Name] = *d.Allocatable.Count
		}
	}
	return out
}

func (*volumeLimits) Events() framework.EventKind {
	return framework.PodRemoved | framework.ClaimChanged | framework.VolumeChanged | framework.CSINodeChanged | framework.AttachmentRemoved | framework.NodeAdded |
		framework.SelfChanged
}

func (*volumeLimits) Helps(p *framework.Pod, e *framework.Event) bool {
	if e.Pod != nil {
		return len(e.Pod.Volumes) > 0 || len(e.Pod.Disks) > 0
	}
	return concernsClaims(p, e)
}
