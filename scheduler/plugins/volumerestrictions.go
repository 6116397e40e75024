package plugins

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/storage/volume"

	"github.com/yare-project/yare/scheduler/framework"
)

// Names of the plugins of this file.
const (
	VolumeRestrictions = "VolumeRestrictions"
	VolumeZone         = "VolumeZone"
)

// volumeRestrictions keeps a claim of mode ReadWriteOncePod to one pod, and disks that can't be attached twice to one pod of a node.
type volumeRestrictions struct{ h *framework.Handle }

var (
	claimInUse = framework.Refuse(framework.Unschedulable, VolumeRestrictions, "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod")
	diskInUse  = framework.Refuse(framework.Unschedulable, VolumeRestrictions, "node(s) had no available disk")
)

func withVolumes(name string, f func(*framework.Handle) framework.Plugin) framework.Factory {
	return func(args []byte, h *framework.Handle) (framework.Plugin, error) {
		if h.Volumes == nil {
			return nil, errors.New("plugin " + name + " needs Handle.Volumes")
		}
		return f(h), decode(args, name, &struct {
			metav1.TypeMeta `json:",inline"`
		}{})
	}
}

func (*volumeRestrictions) Name() string                 { return VolumeRestrictions }
func (*volumeRestrictions) FilterScope() framework.Scope { return framework.OnCluster }

// exclusive is what a decision knows about the pod's claims for one pod only.
type exclusive struct {
	claims []string
	users  int
}

func (p *volumeRestrictions) PreFilter(c *framework.Cycle) *framework.Status {
	s := &exclusive{}
	for _, name := range namedClaims(c.Pod.Object) {
		claim, ok := p.h.Volumes.Claim(c.Pod.Object.Namespace, name)
		if !ok {
			return framework.Refuse(framework.Unresolvable, VolumeRestrictions, fmt.Sprintf("persistentvolumeclaim %q not found", name))
		}
		if slices.Contains(claim.Spec.AccessModes, corev1.ReadWriteOncePod) {
			s.claims = append(s.claims, name)
			s.users += c.Nodes.ClaimUsers(claim.Namespace, name)
		}
	}
	if len(s.claims) == 0 && !slices.ContainsFunc(c.Pod.Object.Spec.Volumes, isDisk) {
		return skipFilter
	}
	c.Put(VolumeRestrictions, s)
	return nil
}

// namedClaims lists the claims that a pod mounts by name, without those that are made for it.
func namedClaims(pod *corev1.Pod) (names []string) {
	for k := range pod.Spec.Volumes {
		if c := pod.Spec.Volumes[k].PersistentVolumeClaim; c != nil {
			names = append(names, c.ClaimName)
		}
	}
	return names
}

func isDisk(v corev1.Volume) bool {
	return v.GCEPersistentDisk != nil || v.AWSElasticBlockStore != nil || v.ISCSI != nil || v.RBD != nil
}

// Shift implements framework.ShiftPlugin.
func (*volumeRestrictions) Shift(c *framework.Cycle, other *framework.Pod, _ int, sign int) {
	s, ok := c.Get(VolumeRestrictions).(*exclusive)
	if !ok || other.Object.Namespace != c.Pod.Object.Namespace {
		return
	}
	for _, name := range other.Volumes {
		if slices.Contains(s.claims, name) {
			s.users += sign
		}
	}
}

func (*volumeRestrictions) Filter(c *framework.Cycle, i int) *framework.Status {
	s, ok := c.Get(VolumeRestrictions).(*exclusive)
	if !ok {
		return nil
	}
	for _, v := range c.Pod.Object.Spec.Volumes {
		if !isDisk(v) {
			continue
		}
		for _, o := range c.Nodes.Pods[i] {
			if slices.ContainsFunc(o.Object.Spec.Volumes, func(w corev1.Volume) bool { return disksConflict(v, w) }) {
				return diskInUse
			}
		}
	}
	if s.users > 0 {
		return claimInUse
	}
	return nil
}

// disksConflict follows what the volume types allow: some may be shared while all only read.
func disksConflict(a, b corev1.Volume) bool {
	switch {
	case a.GCEPersistentDisk != nil && b.GCEPersistentDisk != nil:
		x, y := a.GCEPersistentDisk, b.GCEPersistentDisk
		return x.PDName == y.PDName && !(x.ReadOnly && y.ReadOnly)
	case a.AWSElasticBlockStore != nil && b.AWSElasticBlockStore != nil:
		return a.AWSElasticBlockStore.VolumeID == b.AWSElasticBlockStore.VolumeID
	case a.ISCSI != nil && b.ISCSI != nil:
		return a.ISCSI.IQN == b.ISCSI.IQN && !(a.ISCSI.ReadOnly && b.ISCSI.ReadOnly)
	case a.RBD != nil && b.RBD != nil:
		x, y := a.RBD, b.RBD
		shared := slices.ContainsFunc(x.CephMonitors, func(m string) bool { return slices.Contains(y.CephMonitors, m) })
		return shared && x.RBDPool == y.RBDPool && x.RBDImage == y.RBDImage && !(x.ReadOnly && y.ReadOnly)
	}
	return false
}

func (*volumeRestrictions) Events() framework.EventKind {
	return framework.PodRemoved | framework.ClaimChanged | framework.NodeAdded | framework.SelfChanged
}

func (*volumeRestrictions) Helps(p *framework.Pod, e *framework.Event) bool {
	if e.Pod == nil {
		return concernsClaims(p, e)
	}
	return e.Pod.Object.Namespace == p.Object.Namespace && slices.ContainsFunc(e.Pod.Volumes, func(v string) bool { return slices.Contains(p.Volumes, v) }) ||
		slices.ContainsFunc(e.Pod.Object.Spec.Volumes, isDisk)
}

// volumeZone keeps pods to the zones and regions that labels of their volumes name.
type volumeZone struct{ h *framework.Handle }

var otherZone = framework.Refuse(framework.Unresolvable, VolumeZone, "node(s) had no available volume zone")

// zoneLabels maps the labels of volumes to the one that nodes have today.
var zoneLabels = map[string]string{corev1.LabelTopologyZone: corev1.LabelTopologyZone, corev1.LabelTopologyRegion: corev1.LabelTopologyRegion,
	corev1.LabelFailureDomainBetaZone: corev1.LabelTopologyZone, corev1.LabelFailureDomainBetaRegion: corev1.LabelTopologyRegion}

func (*volumeZone) Name() string                 { return VolumeZone }
func (*volumeZone) FilterScope() framework.Scope { return framework.OnCluster }

// zoneRule is that a node's label must be one of the values.
type zoneRule struct {
	old, key string
	values   []string
}

func (p *volumeZone) PreFilter(c *framework.Cycle) *framework.Status {
	var rules []zoneRule
	for _, name := range namedClaims(c.Pod.Object) {
		claim, ok := p.h.Volumes.Claim(c.Pod.Object.Namespace, name)
		if !ok {
			return framework.Refuse(framework.Unresolvable, VolumeZone, fmt.Sprintf("persistentvolumeclaim %q not found", name))
		}
		if claim.Spec.VolumeName == "" {
			if why := p.unboundRefusal(claim); why != "" {
				return framework.Refuse(framework.Unresolvable, VolumeZone, why)
			}
			continue
		}
		v, ok := p.h.Volumes.Volume(claim.Spec.VolumeName)
		if !ok {
			return framework.Refuse(framework.Unresolvable, VolumeZone, fmt.Sprintf("persistentvolume %q not found", claim.Spec.VolumeName))
		}
		for label, key := range zoneLabels {
			if zones := zonesIn(v.Labels[label]); len(zones) > 0 {
				rules = append(rules, zoneRule{label, key, zones})
			}
		}
	}
	if len(rules) == 0 {
		return skipFilter
	}
	c.Put(VolumeZone, rules)
	return nil
}

// unboundRefusal says why the volume's zone can't be known: only a claim that waits for its pod may be unbound.
func (p *volumeZone) unboundRefusal(claim *corev1.PersistentVolumeClaim) string {
	name := volume.GetPersistentVolumeClaimClass(claim)
	if name == "" {
		return "PersistentVolumeClaim had no pv name and storageClass name"
	}
	class, ok := p.h.Volumes.Class(name)
	switch {
	case !ok:
		return fmt.Sprintf("storageclass.storage.k8s.io %q not found", name)
	case class.VolumeBindingMode == nil:
		return fmt.Sprintf("VolumeBindingMode not set for StorageClass %q", name)
	case *class.VolumeBindingMode != storagev1.VolumeBindingWaitForFirstConsumer:
		return "PersistentVolume had no name"
	}
	return ""
}

// zonesIn splits a volume's label, which may name several zones; nil for one that says nothing.
func zonesIn(label string) (zones []string) {
	for _, z := range strings.Split(label, "__") {
		z = strings.TrimSpace(z)
		if z == "" {
			return nil
		}
		zones = append(zones, z)
	}
	return zones
}

func (*volumeZone) Filter(c *framework.Cycle, i int) *framework.Status {
	rules, _ := c.Get(VolumeZone).([]zoneRule)
	node := c.Nodes.Object[i].Labels
	zoned := false
	for label := range zoneLabels {
		_, ok := node[label]
		zoned = zoned || ok
	}
	if !zoned {
		return nil // a cluster without zones
	}
	for _, r := range rules {
		value, ok := node[r.old]
		if !ok {
			value, ok = node[r.key]
		}
		if !ok || !slices.Contains(r.values, value) {
			return otherZone
		}
	}
	return nil
}

func (*volumeZone) Events() framework.EventKind {
	return framework.ClaimChanged | framework.VolumeChanged | framework.StorageClassChanged | framework.NodeAdded | framework.NodeLabels | framework.SelfChanged
}
func (*volumeZone) Helps(p *framework.Pod, e *framework.Event) bool { return concernsClaims(p, e) }
