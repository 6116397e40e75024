package scheduler

import (
	"cmp"
	"maps"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/yare-project/yare/scheduler/framework"
)

// What follows is the model of rules about volumes.

// claimNames are the claims that a pod mounts, and whether each was made for it.
func claimNames(p *corev1.Pod) (names []string, made []bool) {
	for _, v := range p.Spec.Volumes {
		switch {
		case v.PersistentVolumeClaim != nil:
			names, made = append(names, v.PersistentVolumeClaim.ClaimName), append(made, false)
		case v.Ephemeral != nil:
			names, made = append(names, p.Name+"-"+v.Name), append(made, true)
		}
	}
	return names, made
}

func (s *storage) claimsOf(p *corev1.Pod) (out []*corev1.PersistentVolumeClaim) {
	names, _ := claimNames(p)
	for _, name := range names {
		if c := s.claims[p.Namespace+"/"+name]; c != nil {
			out = append(out, c)
		}
	}
	return out
}

func modelBound(c *corev1.PersistentVolumeClaim) bool {
	return c.Spec.VolumeName != "" && c.Annotations["pv.kubernetes.io/bind-completed"] == "yes"
}

// late tells whether a claim waits for its first pod.
func (s *storage) late(c *corev1.PersistentVolumeClaim) bool {
	class := s.classes[*c.Spec.StorageClassName]
	return class != nil && *class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer
}

// claimsAreReady tells whether all claims exist, none is on its way out, and each has its volume or waits for the pod.
func (s *storage) claimsAreReady(p *corev1.Pod) bool {
	names, made := claimNames(p)
	for k, name := range names {
		c := s.claims[p.Namespace+"/"+name]
		if c == nil || c.DeletionTimestamp != nil || c.Status.Phase == corev1.ClaimLost {
			return false
		}
		if !modelBound(c) && (c.Spec.VolumeName != "" || !s.late(c)) {
			return false
		}
		if !made[k] && c.Spec.VolumeName != "" && s.volumes[c.Spec.VolumeName] == nil {
			return false
		}
	}
	return true
}

// disksFree keeps disks from two writers on one node, and claims for one pod to one pod.
func (m *model) disksFree(p *corev1.Pod, n *corev1.Node) framework.Code {
	for _, v := range p.Spec.Volumes {
		for _, o := range m.podsOn(n.Name) {
			for _, w := range o.Spec.Volumes {
				a, b := v.GCEPersistentDisk, w.GCEPersistentDisk
				if a != nil && b != nil && a.PDName == b.PDName && !(a.ReadOnly && b.ReadOnly) {
					return framework.Unschedulable
				}
				if c, d := v.AWSElasticBlockStore, w.AWSElasticBlockStore; c != nil && d != nil && c.VolumeID == d.VolumeID {
					return framework.Unschedulable
				}
			}
		}
	}
	names, made := claimNames(p)
	for k, name := range names {
		c := m.claims[p.Namespace+"/"+name]
		if made[k] || !slices.Contains(c.Spec.AccessModes, corev1.ReadWriteOncePod) {
			continue
		}
		for _, o := range m.pods {
			if others, _ := claimNames(o); o.Namespace == p.Namespace && slices.Contains(others, name) {
				return framework.Unschedulable
			}
		}
	}
	return framework.Success
}

// attachedAs is a volume as its driver knows it; empty if no driver attaches it.
func (s *storage) attachedAs(c *corev1.PersistentVolumeClaim) (driver, id string) {
	if v := s.volumes[c.Spec.VolumeName]; v != nil {
		return driversName(v)
	}
	id = "of claim " + c.Namespace + "/" + c.Name
	switch class := s.classes[*c.Spec.StorageClassName]; {
	case class == nil:
		return "", ""
	case class.Provisioner == "kubernetes.io/aws-ebs":
		return "ebs.csi.aws.com", id
	default:
		return class.Provisioner, id
	}
}

// driversName is what a driver calls a volume. Volumes of EBS are those of its driver; those of vSphere count for nobody.
func driversName(v *corev1.PersistentVolume) (driver, id string) {
	switch {
	case v.Spec.CSI != nil:
		return v.Spec.CSI.Driver, v.Spec.CSI.VolumeHandle
	case v.Spec.AWSElasticBlockStore != nil:
		return "ebs.csi.aws.com", path.Base(v.Spec.AWSElasticBlockStore.VolumeID)
	}
	return "", ""
}

// inline adds the EBS volumes in a pod's own spec.
func inline(p *corev1.Pod, add func(driver, id string)) {
	for _, v := range p.Spec.Volumes {
		if s := v.AWSElasticBlockStore; s != nil {
			add("ebs.csi.aws.com", path.Base(s.VolumeID))
		}
	}
}

// attachable keeps to the number of volumes that a driver can attach to a node.
func (m *model) attachable(p *corev1.Pod, n *corev1.Node) framework.Code {
	there, more := map[string]map[string]bool{}, map[string]map[string]bool{}
	add := func(to map[string]map[string]bool, driver, id string) {
		if driver == "" {
			return
		}
		if to[driver] == nil {
			to[driver] = map[string]bool{}
		}
		to[driver][id] = true
	}
	for _, o := range m.podsOn(n.Name) {
		inline(o, func(driver, id string) { add(there, driver, id) })
		for _, c := range m.claimsOf(o) {
			driver, id := m.attachedAs(c)
			add(there, driver, id)
		}
	}
	for _, a := range m.attachments {
		if v := m.volumes[*a.Spec.Source.PersistentVolumeName]; v != nil && a.Spec.NodeName == n.Name {
			if driver, id := driversName(v); driver != "" {
				add(there, a.Spec.Attacher, id)
			}
		}
	}
	inline(p, func(driver, id string) {
		if !there[driver][id] {
			add(more, driver, id)
		}
	})
	for _, c := range m.claimsOf(p) {
		if driver, id := m.attachedAs(c); !there[driver][id] {
			add(more, driver, id)
		}
	}
	if m.csiNodes[n.Name] == nil {
		return framework.Success
	}
	for _, d := range m.csiNodes[n.Name].Spec.Drivers {
		if len(more[d.Name]) > 0 && len(there[d.Name])+len(more[d.Name]) > int(*d.Allocatable.Count) {
			return framework.Unschedulable
		}
	}
	return framework.Success
}

func volumeReaches(v *corev1.PersistentVolume, n *corev1.Node) bool {
	return v.Spec.NodeAffinity == nil || modelTermsMatch(v.Spec.NodeAffinity.Required, n)
}

// reached is volumeReaches for a volume that is bound: where the node says that a driver serves EBS, the zone that counts is the one that the driver gave the node.
func (m *model) reached(v *corev1.PersistentVolume, n *corev1.Node) bool {
	says := m.csiNodes[n.Name]
	if v.Spec.AWSElasticBlockStore == nil || says == nil || !strings.Contains(says.Annotations["storage.alpha.kubernetes.io/migrated-plugins"], "kubernetes.io/aws-ebs") {
		return volumeReaches(v, n)
	}
	n = n.DeepCopy()
	zone, ok := n.Labels["topology.ebs.csi.aws.com/zone"]
	for _, key := range []string{corev1.LabelTopologyZone, corev1.LabelFailureDomainBetaZone} {
		if n.Labels[key] = zone; !ok {
			delete(n.Labels, key)
		}
	}
	named := false
	if v.Spec.NodeAffinity != nil {
		for _, term := range v.Spec.NodeAffinity.Required.NodeSelectorTerms {
			for _, e := range term.MatchExpressions {
				named = named || e.Key != corev1.LabelHostname
			}
		}
	}
	if label, labelled := v.Labels[corev1.LabelTopologyZone]; labelled && !named && (!ok || !slices.Contains(strings.Split(label, "__"), zone)) {
		return false
	}
	return volumeReaches(v, n)
}

// volumesReach tells whether bound volumes can be had on the node, and whether each waiting claim can get one there.
func (m *model) volumesReach(p *corev1.Pod, n *corev1.Node) framework.Code {
	var waiting []*corev1.PersistentVolumeClaim
	for _, c := range m.claimsOf(p) {
		if !modelBound(c) {
			waiting = append(waiting, c)
		} else if v := m.volumes[c.Spec.VolumeName]; v == nil || !m.reached(v, n) {
			return framework.Unresolvable
		}
	}
	slices.SortStableFunc(waiting, func(a, b *corev1.PersistentVolumeClaim) int { return cmp.Compare(sizeOf(a), sizeOf(b)) })
	taken := map[string]bool{}
	for _, c := range waiting {
		if on, ok := c.Annotations["volume.kubernetes.io/selected-node"]; ok {
			if on != n.Name || !m.canMake(c, n) {
				return framework.Unresolvable
			}
			continue
		}
		if v := m.bestVolume(c, n, taken); v != "" {
			taken[v] = true
		} else if !m.canMake(c, n) {
			return framework.Unresolvable
		}
	}
	return framework.Success
}

func sizeOf(c *corev1.PersistentVolumeClaim) int64 {
	return modelValue(c.Spec.Resources.Requests, corev1.ResourceStorage)
}

// bestVolume is the volume that was set aside for a claim, or else the smallest free one that will do for it on a node.
func (m *model) bestVolume(c *corev1.PersistentVolumeClaim, n *corev1.Node, taken map[string]bool) (best string) {
	for _, name := range slices.Sorted(maps.Keys(m.volumes)) {
		v := m.volumes[name]
		if taken[name] || v.Spec.StorageClassName != *c.Spec.StorageClassName || modelValue(v.Spec.Capacity, corev1.ResourceStorage) < sizeOf(c) {
			continue
		}
		if by := v.Spec.ClaimRef; by != nil && by.Namespace == c.Namespace && by.Name == c.Name {
			if volumeReaches(v, n) {
				return name
			}
			return ""
		}
		if v.Spec.ClaimRef != nil || v.Status.Phase != corev1.VolumeAvailable || !volumeReaches(v, n) {
			continue
		}
		if best == "" || modelValue(v.Spec.Capacity, corev1.ResourceStorage) < modelValue(m.volumes[best].Spec.Capacity, corev1.ResourceStorage) {
			best = name
		}
	}
	return best
}

// canMake tells whether the claim's class can make a volume on the node.
func (m *model) canMake(c *corev1.PersistentVolumeClaim, n *corev1.Node) bool {
	class := m.classes[*c.Spec.StorageClassName]
	if class.Provisioner == "kubernetes.io/no-provisioner" {
		return false
	}
	if class.AllowedTopologies != nil {
		e := class.AllowedTopologies[0].MatchLabelExpressions[0]
		if !slices.Contains(e.Values, n.Labels[e.Key]) {
			return false
		}
	}
	if m.drivers[class.Provisioner] == nil {
		return true // it does not say what it has left
	}
	for _, left := range m.capacities {
		if left.StorageClassName == class.Name && modelSelector(left.NodeTopology).Matches(labels.Set(n.Labels)) && left.Capacity.Value() >= sizeOf(c) {
			return true
		}
	}
	return false
}

// zonesMatch keeps to the zone that a volume's label names.
func (m *model) zonesMatch(p *corev1.Pod, n *corev1.Node) framework.Code {
	zone, zoned := n.Labels[corev1.LabelTopologyZone]
	names, made := claimNames(p)
	for k, name := range names {
		c := m.claims[p.Namespace+"/"+name]
		if v := m.volumes[c.Spec.VolumeName]; !made[k] && v != nil {
			if want, ok := v.Labels[corev1.LabelTopologyZone]; ok && zoned && !slices.Contains(strings.Split(want, "__"), zone) {
				return framework.Unresolvable
			}
		}
	}
	return framework.Success
}
