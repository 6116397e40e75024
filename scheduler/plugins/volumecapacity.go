package plugins

import (
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/scheduler/framework"
)

// roomFor tells whether a driver can make a volume for a claim where node is. Only drivers that publish CSIStorageCapacity objects are asked.
func roomFor(known framework.Capacity, claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass, node *corev1.Node) bool {
	size, sized := claim.Spec.Resources.Requests[corev1.ResourceStorage]
	if known == nil || !sized {
		return true
	}
	driver, ok := known.Driver(class.Provisioner)
	if !ok || !ptr.Deref(driver.Spec.StorageCapacity, false) {
		return true
	}
	for _, c := range known.Capacities() {
		if limit := largestVolume(c); c.StorageClassName == class.Name && limit != nil && limit.Cmp(size) >= 0 && reaches(c.NodeTopology, node) {
			return true
		}
	}
	return false
}

// largestVolume is how large a volume may be: the driver's own limit, or all that is left; nil if the driver does not say.
func largestVolume(c *storagev1.CSIStorageCapacity) *resource.Quantity {
	if c.MaximumVolumeSize != nil {
		return c.MaximumVolumeSize
	}
	return c.Capacity
}

// reaches tells whether a topology segment has the node; one without a topology is nowhere.
func reaches(topology *metav1.LabelSelector, node *corev1.Node) bool {
	if topology == nil {
		return false
	}
	s, err := metav1.LabelSelectorAsSelector(topology)
	return err == nil && s.Matches(labels.Set(node.Labels))
}
