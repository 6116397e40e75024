package quota

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/component-helpers/storage/volume"
	"k8s.io/utils/ptr"
)

// useService adds node ports and load balancers. A load balancer without node ports of its own counts those that were asked for by number.
func useService(out corev1.ResourceList, s *corev1.Service) {
	ports, balancers := 0, 0
	switch s.Spec.Type {
	case corev1.ServiceTypeNodePort:
		ports = len(s.Spec.Ports)
	case corev1.ServiceTypeLoadBalancer:
		balancers = 1
		for _, p := range s.Spec.Ports {
			if p.NodePort != 0 || ptr.Deref(s.Spec.AllocateLoadBalancerNodePorts, true) {
				ports++
			}
		}
	}
	out[corev1.ResourceServicesNodePorts] = *resource.NewQuantity(int64(ports), resource.DecimalSI)
	out[corev1.ResourceServicesLoadBalancers] = *resource.NewQuantity(int64(balancers), resource.DecimalSI)
}

// ofClass stands between a storage class and what is bounded in it: gold.storageclass.storage.k8s.io/requests.storage.
const ofClass = ".storageclass.storage.k8s.io/"

func claimCovers(name corev1.ResourceName) bool {
	if name == corev1.ResourceRequestsStorage {
		return true
	}
	class, what, ok := strings.Cut(string(name), ofClass)
	return ok && class != "" && (what == string(corev1.ResourcePersistentVolumeClaims) || what == string(corev1.ResourceRequestsStorage))
}

// useClaim adds the storage that a claim asks for, or that an expansion which was taken back still holds.
func useClaim(out corev1.ResourceList, c *corev1.PersistentVolumeClaim) {
	class := corev1.ResourceName(volume.GetPersistentVolumeClaimClass(c)) + ofClass
	if class != ofClass {
		out[class+corev1.ResourcePersistentVolumeClaims] = one
	}
	size, ok := c.Spec.Resources.Requests[corev1.ResourceStorage]
	if !ok {
		return
	}
	if held, ok := c.Status.AllocatedResources[corev1.ResourceStorage]; ok && held.Cmp(size) > 0 {
		size = held
	}
	size = size.DeepCopy()
	size.RoundUp(0) // whole bytes only: status.used would not be valid otherwise
	out[corev1.ResourceRequestsStorage] = size
	if class != ofClass {
		out[class+corev1.ResourceRequestsStorage] = size
	}
}

// useDevices adds the devices that a ResourceClaim may get, by class; of alternatives the most of each class.
func useDevices(out corev1.ResourceList, c *resourcev1.ResourceClaim) {
	add := func(class string, n int64) {
		if n > 0 {
			name := corev1.ResourceName(class + corev1.ResourceClaimsPerClass)
			AddTo(out, corev1.ResourceList{name: *resource.NewQuantity(n, resource.DecimalSI)})
		}
	}
	for _, r := range c.Spec.Devices.Requests {
		if r.Exactly != nil {
			add(r.Exactly.DeviceClassName, deviceCount(r.Exactly.AllocationMode, r.Exactly.Count))
		}
		most := map[string]int64{}
		for _, s := range r.FirstAvailable {
			most[s.DeviceClassName] = max(most[s.DeviceClassName], deviceCount(s.AllocationMode, s.Count))
		}
		for class, n := range most {
			add(class, n)
		}
	}
}

func deviceCount(mode resourcev1.DeviceAllocationMode, count int64) int64 {
	switch mode {
	case resourcev1.DeviceAllocationModeExactCount:
		return count
	case resourcev1.DeviceAllocationModeAll:
		return resourcev1.AllocationResultsMaxSize
	}
	return 0
}
