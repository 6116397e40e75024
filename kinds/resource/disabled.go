package resource

import resourcev1 "k8s.io/api/resource/v1"

// prepareSlice drops what Kubernetes 1.36 has off by default, unless old uses it: attributes with lists of values (DRAListTypeAttributes) and what
// devices take of a node's allocatable resources (DRANodeAllocatableResources).
func prepareSlice(s, old *resourcev1.ResourceSlice) {
	if old == nil {
		old = &resourcev1.ResourceSlice{}
	}
	if !anyDevice(old, func(d *resourcev1.Device) bool { return len(d.NodeAllocatableResourceMappings) > 0 }) {
		for i := range s.Spec.Devices {
			s.Spec.Devices[i].NodeAllocatableResourceMappings = nil
		}
	}
	if anyDevice(old, hasLists) {
		return
	}
	for i := range s.Spec.Devices {
		attributes := s.Spec.Devices[i].Attributes
		for name, a := range attributes {
			if isList(&a) {
				a.BoolValues, a.IntValues, a.StringValues, a.VersionValues = nil, nil, nil, nil
				attributes[name] = a
			}
		}
	}
}

func anyDevice(s *resourcev1.ResourceSlice, is func(*resourcev1.Device) bool) bool {
	for i := range s.Spec.Devices {
		if is(&s.Spec.Devices[i]) {
			return true
		}
	}
	return false
}

func hasLists(d *resourcev1.Device) bool {
	for _, a := range d.Attributes {
		if isList(&a) {
			return true
		}
	}
	return false
}

func isList(a *resourcev1.DeviceAttribute) bool {
	return a.BoolValues != nil || a.IntValues != nil || a.StringValues != nil || a.VersionValues != nil
}
