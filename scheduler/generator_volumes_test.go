package scheduler

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// testStorage is storage as framework.Volumes and framework.Capacity.
type testStorage struct{ *storage }

func get[T any](of map[string]*T, key string) (*T, bool) {
	v, ok := of[key]
	return v, ok
}

func (s testStorage) Claim(namespace, name string) (*corev1.PersistentVolumeClaim, bool) {
	return get(s.claims, namespace+"/"+name)
}
func (s testStorage) Volume(name string) (*corev1.PersistentVolume, bool) {
	return get(s.volumes, name)
}
func (s testStorage) List() []*corev1.PersistentVolume { // in some order, as caches do
	return slices.SortedFunc(maps.Values(s.volumes), func(a, b *corev1.PersistentVolume) int { return strings.Compare(b.Name, a.Name) })
}
func (s testStorage) Class(name string) (*storagev1.StorageClass, bool) { return get(s.classes, name) }
func (s testStorage) Node(name string) (*storagev1.CSINode, bool)       { return get(s.csiNodes, name) }
func (s testStorage) Driver(name string) (*storagev1.CSIDriver, bool)   { return get(s.drivers, name) }
func (s testStorage) Capacities() []*storagev1.CSIStorageCapacity       { return s.capacities }
func (s testStorage) Attachments(node string) (out []*storagev1.VolumeAttachment) {
	for _, a := range s.attachments {
		if a.Spec.NodeName == node {
			out = append(out, a)
		}
	}
	return out
}
func (testStorage) Bind(context.Context, *corev1.PersistentVolume, *corev1.PersistentVolumeClaim) error {
	return nil
}
func (testStorage) Provision(_ context.Context, c *corev1.PersistentVolumeClaim, _ string) (*corev1.PersistentVolumeClaim, error) {
	return c, nil
}
func (testStorage) WaitBound(context.Context, *corev1.PersistentVolumeClaim, string) error {
	return nil
}

// storage makes classes of all sorts, volumes and claims. Claims are c0 to c7 in each namespace; some do not exist.
func (g generator) storage() storage {
	class := func(name, provisioner string, mode storagev1.VolumeBindingMode) *storagev1.StorageClass {
		return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: provisioner, VolumeBindingMode: &mode}
	}
	s := storage{claims: map[string]*corev1.PersistentVolumeClaim{}, volumes: map[string]*corev1.PersistentVolume{}, csiNodes: map[string]*storagev1.CSINode{},
		classes: map[string]*storagev1.StorageClass{"now": class("now", "csi.example.com", storagev1.VolumeBindingImmediate),
			"late":   class("late", "csi.example.com", storagev1.VolumeBindingWaitForFirstConsumer),
			"local":  class("local", "kubernetes.io/no-provisioner", storagev1.VolumeBindingWaitForFirstConsumer),
			"sized":  class("sized", "sized.example.com", storagev1.VolumeBindingWaitForFirstConsumer),
			"legacy": class("legacy", "kubernetes.io/aws-ebs", storagev1.VolumeBindingWaitForFirstConsumer)},
		drivers: map[string]*storagev1.CSIDriver{"sized.example.com": {Spec: storagev1.CSIDriverSpec{StorageCapacity: ptr.To(true)}},
			"ebs.csi.aws.com": {Spec: storagev1.CSIDriverSpec{StorageCapacity: ptr.To(true)}}}}
	if g.often(50) {
		s.classes["late"].AllowedTopologies = []corev1.TopologySelectorTerm{{MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{{Key: corev1.LabelTopologyZone, Values: []string{"z1", "z2"}}}}}
	}
	for _, zone := range []string{"z1", "z2", "z3"} {
		if g.often(60) {
			s.capacities = append(s.capacities, &storagev1.CSIStorageCapacity{StorageClassName: "sized", Capacity: ptr.To(g.quantity("1Gi", "3Gi")),
				NodeTopology: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelTopologyZone: zone}}})
		}
	}
	for i := range 8 {
		s.addVolume(g, fmt.Sprintf("free%d", i), pick(g, "local", "local", "late"))
		if g.often(60) {
			s.csiNodes[fmt.Sprintf("n%d", i)] = &storagev1.CSINode{Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{
				{Name: "csi.example.com", Allocatable: &storagev1.VolumeNodeResources{Count: ptr.To(int32(1 + g.IntN(3)))}},
				{Name: "ebs.csi.aws.com", Allocatable: &storagev1.VolumeNodeResources{Count: ptr.To(int32(1 + g.IntN(3)))}}}}}
			if g.often(70) {
				s.csiNodes[fmt.Sprintf("n%d", i)].Annotations = map[string]string{"storage.alpha.kubernetes.io/migrated-plugins": "kubernetes.io/aws-ebs,kubernetes.io/cinder"}
			}
		}
		for _, ns := range []string{"default", "prod"} {
			g.claim(&s, ns, fmt.Sprintf("c%d", i))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.volumes)) {
		if g.often(15) {
			attacher := "csi.example.com"
			if s.volumes[name].Spec.AWSElasticBlockStore != nil {
				attacher = "ebs.csi.aws.com"
			}
			s.attachments = append(s.attachments, &storagev1.VolumeAttachment{Spec: storagev1.VolumeAttachmentSpec{Attacher: attacher, NodeName: fmt.Sprintf("n%d", g.IntN(8)),
				Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &name}}})
		}
	}
	return s
}

// addVolume makes a free volume. No two are of the same size, so that there is one smallest.
func (s *storage) addVolume(g generator, name, class string) *corev1.PersistentVolume {
	v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.PersistentVolumeStatus{Phase: pick(g, corev1.VolumeAvailable, corev1.VolumeAvailable, corev1.VolumeReleased)},
		Spec: corev1.PersistentVolumeSpec{StorageClassName: class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Capacity: corev1.ResourceList{"storage": *resource.NewQuantity(int64(1+g.IntN(4))<<30+int64(len(s.volumes)), resource.BinarySI)}}}
	if g.often(60) {
		e := corev1.NodeSelectorRequirement{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{fmt.Sprintf("n%d", g.IntN(8)), fmt.Sprintf("n%d", g.IntN(8))}}
		v.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{e}}}}}
	}
	switch {
	case g.often(45):
		v.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: "csi.example.com", VolumeHandle: "handle-" + name}
	case g.often(60):
		v.Spec.AWSElasticBlockStore = &corev1.AWSElasticBlockStoreVolumeSource{VolumeID: pick(g, "", "aws://z1/", "aws:///") + pick(g, "vol-1", "vol-"+name, "vol-"+name)}
		if g.often(40) {
			e := corev1.NodeSelectorRequirement{Key: pick(g, corev1.LabelTopologyZone, corev1.LabelFailureDomainBetaZone), Operator: corev1.NodeSelectorOpIn, Values: []string{pick(g, "z1", "z2"), "z3"}}
			v.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{e}}}}}
		}
	case g.often(30):
		v.Spec.VsphereVolume = &corev1.VsphereVirtualDiskVolumeSource{VolumePath: name}
	}
	if g.often(25) {
		v.Labels = map[string]string{corev1.LabelTopologyZone: pick(g, "z1", "z2__z3")}
	}
	s.volumes[name] = v
	return v
}

func (g generator) claim(s *storage, namespace, name string) {
	if g.often(8) {
		return
	}
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: map[string]string{}}, Spec: corev1.PersistentVolumeClaimSpec{
		StorageClassName: ptr.To(pick(g, "late", "local", "local", "sized", "now", "legacy")), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{"storage": g.quantity("1Gi", "2Gi", "3Gi")}}}}
	switch {
	case g.often(45):
		c.Spec.VolumeName, c.Annotations["pv.kubernetes.io/bind-completed"] = "of-"+namespace+"-"+name, "yes"
		if g.often(93) {
			v := s.addVolume(g, c.Spec.VolumeName, *c.Spec.StorageClassName)
			v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: namespace, Name: name}
		}
		if g.often(30) {
			c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}
		}
	case g.often(4):
		c.Status.Phase = corev1.ClaimLost
	case g.often(4):
		c.DeletionTimestamp = ptr.To(metav1.Unix(1, 0))
	case g.often(10):
		c.Annotations["volume.kubernetes.io/selected-node"] = fmt.Sprintf("n%d", g.IntN(8))
	}
	s.claims[namespace+"/"+name] = c
}

// mount gives few pods volumes.
func (g generator) mount(p *corev1.Pod) {
	add := func(source corev1.VolumeSource) {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: fmt.Sprintf("v%d", len(p.Spec.Volumes)), VolumeSource: source})
	}
	for range 3 {
		if g.often(12) {
			add(corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: fmt.Sprintf("c%d", g.IntN(8))}})
		}
	}
	if g.often(5) {
		add(corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}})
	}
	if g.often(10) {
		add(corev1.VolumeSource{GCEPersistentDisk: &corev1.GCEPersistentDiskVolumeSource{PDName: pick(g, "disk1", "disk2"), ReadOnly: g.often(60)}})
	}
	if g.often(8) {
		add(corev1.VolumeSource{AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{VolumeID: pick(g, "vol-1", "aws://z1/vol-1", "vol-2", "vol-free1")}})
	}
	if g.often(8) {
		add(corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: "model:7"}})
	}
	seen := map[string]bool{} // a pod does not mount one claim twice
	p.Spec.Volumes = slices.DeleteFunc(p.Spec.Volumes, func(v corev1.Volume) bool {
		if v.PersistentVolumeClaim == nil {
			return false
		}
		twice := seen[v.PersistentVolumeClaim.ClaimName]
		seen[v.PersistentVolumeClaim.ClaimName] = true
		return twice
	})
}

// own makes the claims that belong to a pod with ephemeral volumes, mostly.
func (g generator) own(s *storage, p *corev1.Pod) {
	names, made := claimNames(p)
	for k, name := range names {
		if made[k] && g.often(80) {
			g.claim(s, p.Namespace, name)
			if c := s.claims[p.Namespace+"/"+name]; c != nil {
				c.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: p.Name, UID: p.UID, Controller: ptr.To(true)}}
			}
		}
	}
}
