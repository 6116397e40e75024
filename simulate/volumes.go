package simulate

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/storage/volume"

	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/internal/csimigration"
)

const selectedNode = "volume.kubernetes.io/selected-node"

// storage binds claims and makes volumes for them, at once and always with success, as the volume controller and the drivers' provisioners would in time. Claims
// that were there before the simulation are left alone until the scheduler asks for something: whoever was to bind them had the time.
type storage struct {
	memory *memory
	live   bool // the cluster is filled
}

// changed is told of each write.
func (s *storage) changed(_, new client.Object) {
	if !s.live {
		return
	}
	switch o := new.(type) {
	case *corev1.PersistentVolume:
		if ref := o.Spec.ClaimRef; ref != nil && o.Status.Phase != corev1.VolumeBound {
			if c, ok := find[*corev1.PersistentVolumeClaim](s.memory, ref.Namespace, ref.Name); ok && c.Spec.VolumeName == "" && (ref.UID == "" || ref.UID == c.UID) {
				s.bind(o, c)
			}
		}
	case *corev1.PersistentVolumeClaim:
		if o.Spec.VolumeName == "" && o.DeletionTimestamp == nil {
			s.serve(o)
		}
	}
}

// serve finds or makes the volume of a claim that waits for no pod, or whose pod has its node.
func (s *storage) serve(c *corev1.PersistentVolumeClaim) {
	class := s.class(c)
	node := c.Annotations[selectedNode]
	late := class != nil && class.VolumeBindingMode != nil && *class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer
	if late && node == "" {
		return
	}
	if !late {
		if v, err := volume.FindMatchingVolume(c, s.volumes(), nil, nil, false, true); err == nil && v != nil {
			s.bind(v, c)
			return
		}
	}
	if class != nil && class.Provisioner != "" && class.Provisioner != "kubernetes.io/no-provisioner" {
		s.bind(s.made(c, class, node), c)
	}
}

func (s *storage) bind(v *corev1.PersistentVolume, c *corev1.PersistentVolumeClaim) {
	v = v.DeepCopy()
	v.Spec.ClaimRef = &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: c.Namespace, Name: c.Name, UID: c.UID}
	v.Status.Phase = corev1.VolumeBound
	s.memory.put(v)
	c = c.DeepCopy()
	c.Spec.VolumeName = v.Name
	if c.Annotations == nil {
		c.Annotations = map[string]string{}
	}
	c.Annotations["pv.kubernetes.io/bind-completed"] = "yes"
	c.Status.Phase, c.Status.AccessModes, c.Status.Capacity = corev1.ClaimBound, v.Spec.AccessModes, v.Spec.Capacity
	s.memory.put(c)
}

// made is the volume that a provisioner would make: reachable where the node that was asked for is, as far as the driver tells such places apart.
// A class of an in-tree plugin is served by the driver that took it over.
func (s *storage) made(c *corev1.PersistentVolumeClaim, class *storagev1.StorageClass, node string) *corev1.PersistentVolume {
	driver := cmp.Or(csimigration.Driver(class.Provisioner), class.Provisioner)
	v := &corev1.PersistentVolume{}
	v.Name, v.UID = "pvc-"+string(c.UID), types.UID("volume-of-"+string(c.UID))
	v.Spec = corev1.PersistentVolumeSpec{StorageClassName: class.Name, AccessModes: c.Spec.AccessModes, Capacity: c.Spec.Resources.Requests, VolumeMode: c.Spec.VolumeMode,
		PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
		PersistentVolumeSource:        corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: v.Name}}}
	var terms []corev1.NodeSelectorRequirement
	labels := s.labels(node)
	for _, key := range s.topology(node, driver) {
		if value, ok := labels[key]; ok {
			terms = append(terms, corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{value}})
		}
	}
	if len(terms) > 0 {
		v.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: terms}}}}
	}
	return v
}

func (s *storage) labels(node string) map[string]string {
	if n, ok := find[*corev1.Node](s.memory, "", node); ok {
		return n.Labels
	}
	return nil
}

// topology are the labels by which a driver says on a node where it can reach a volume from.
func (s *storage) topology(node, driver string) []string {
	if n, ok := find[*storagev1.CSINode](s.memory, "", node); ok {
		for _, d := range n.Spec.Drivers {
			if d.Name == driver {
				return d.TopologyKeys
			}
		}
	}
	return nil
}

func (s *storage) class(c *corev1.PersistentVolumeClaim) *storagev1.StorageClass {
	if c.Spec.StorageClassName == nil {
		return nil
	}
	class, _ := find[*storagev1.StorageClass](s.memory, "", *c.Spec.StorageClassName)
	return class
}

// volumes are all there are, the smallest first.
func (s *storage) volumes() []*corev1.PersistentVolume {
	var out []*corev1.PersistentVolume
	for _, o := range s.memory.all(client.ResourceOf[*corev1.PersistentVolume](), "") {
		out = append(out, o.(*corev1.PersistentVolume))
	}
	slices.SortFunc(out, func(a, b *corev1.PersistentVolume) int {
		return cmp.Or(a.Spec.Capacity.Storage().Cmp(*b.Spec.Capacity.Storage()), strings.Compare(a.Name, b.Name))
	})
	return out
}

// find returns an object.
func find[T client.Object](m *memory, namespace, name string) (out T, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	o, ok := m.table(client.ResourceOf[T]()).objects[types.NamespacedName{Namespace: namespace, Name: name}]
	if ok {
		out, ok = o.(T)
	}
	return out, ok
}
